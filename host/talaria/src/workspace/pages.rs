//! The routes of a workspace that the platform reads, beside A2A and at the same address.
//!
//! | route | answers | to |
//! |---|---|---|
//! | `GET /transcript?since=&limit=&source=` | the latest messages and events | the platform only, by its token or its secret; nobody without these |
//! | `GET /capabilities` | the capabilities of the executor that takes the turns | every caller of the server |
//! | `GET /config-schema` | the settings of that executor, as a JSON Schema | every caller of the server |

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{ALLOW, CACHE_CONTROL, HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Map, Value, json};
use talaria_a2a::Auth;
use talaria_workspace::Keys;
use tracing::warn;

use super::status;
use super::transcript::{Records, Wanted};
use talaria_executors::Executors;

/// The default and the largest number of lines in a response, as in the platform's own runtime.
const LIMIT: (u64, u64) = (100, 1_000);

/// The pages.
pub(super) struct Pages {
    pub(super) runtime: String,
    pub(super) keys: Keys,
    pub(super) auth: Auth,
    pub(super) records: Records,
    pub(super) executors: Arc<Executors>,
}

type Reply = Response<Full<Bytes>>;

impl talaria_a2a::ExtraRoutes for Pages {
    fn matches(&self, path: &str) -> bool {
        matches!(path, "/transcript" | "/capabilities" | "/config-schema")
    }

    fn respond<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, Reply> {
        Box::pin(self.page(head))
    }
}

// === impl Pages ===

impl Pages {
    async fn page(&self, head: &Parts) -> Reply {
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let mut reply = failure(StatusCode::METHOD_NOT_ALLOWED, "this path takes GET");
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return reply;
        }
        let path = head.uri.path();
        let allowed = match path {
            "/transcript" => bearer(&head.headers).is_some_and(|token| self.keys.is_platform(token)),
            _ => self.auth.caller(&head.headers).is_some(),
        };
        if !allowed {
            let mut reply = failure(StatusCode::UNAUTHORIZED, "unauthorized");
            reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return reply;
        }
        match path {
            "/transcript" => self.read_transcript(head.uri.query().unwrap_or_default()).await,
            "/capabilities" => self.capabilities(),
            _ => respond(StatusCode::OK, &self.schema()),
        }
    }

    async fn read_transcript(&self, query: &str) -> Reply {
        let value = |name: &str| {
            let values = query.split('&').filter_map(|pair| pair.split_once('='));
            values.filter(|(key, _)| *key == name).map(|(_, value)| value).next_back()
        };
        let number = |name: &str, otherwise: u64| value(name).map_or(Ok(otherwise), str::parse);
        let (Ok(since), Ok(limit)) = (number("since", 0), number("limit", LIMIT.0)) else {
            return failure(StatusCode::BAD_REQUEST, "since and limit must be integers, not negative");
        };
        let wanted = match value("source") {
            None => Wanted::Any,
            Some("bridge") => Wanted::Bridge,
            Some(_) => {
                return failure(
                    StatusCode::BAD_REQUEST,
                    "source can only be `bridge`; leave it out for the agent's",
                );
            }
        };
        let limit = u32::try_from(limit.min(LIMIT.1)).unwrap_or(u32::MAX);
        let (page, source) = match self.records.read(wanted, since, limit).await {
            Ok(read) => read,
            Err(error) => {
                warn!(%error, "cannot read the transcript");
                return failure(StatusCode::INTERNAL_SERVER_ERROR, "the transcript cannot be read");
            }
        };
        let body = json!({
            "runtime": self.runtime,
            "supported": true,
            "lines": page.lines,
            "cursor": page.cursor,
            "more": page.more,
            "source": source,
        });
        respond(StatusCode::OK, &body)
    }

    fn capabilities(&self) -> Reply {
        let status = status(&self.executors.table());
        let capabilities: Map<_, _> =
            status.capabilities.iter().map(|(name, is)| ((*name).to_owned(), json!(is))).collect();
        let mut body =
            json!({ "runtime": self.runtime, "executor": status.executor, "capabilities": capabilities });
        if let (Value::Object(body), Some(seconds @ 1..)) = (&mut body, status.idle_timeout_seconds) {
            body.insert("idle_timeout_seconds".into(), json!(seconds));
        }
        respond(StatusCode::OK, &body)
    }

    fn schema(&self) -> Value {
        let executors = self.executors.table();
        let taking = executors.stand_in(executors.default_name());
        let text =
            taking.map(|(_, loaded)| loaded.executor.component().description().settings_schema.clone());
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_else(|| json!({}))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(http::header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn failure(status: StatusCode, message: &str) -> Reply {
    respond(status, &json!({ "error": message }))
}

fn respond(status: StatusCode, body: &Value) -> Reply {
    let mut reply = talaria_listen::json(status, body.to_string());
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
