//! HTTP+JSON: the path says what, the body or the query says the rest, the status says how it went.
//!
//! The same operations and the same members as JSON-RPC, without the envelope. What the path says may be said again in the
//! body, but not otherwise. An answer has the media type of the request, `application/json` or `application/a2a+json`;
//! where there was no body, or where it is an error, what `Accept` prefers, and `application/json` where it says nothing.

use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value};

use crate::capabilities::{self, Capabilities};
use crate::dialect::Written;
use crate::operation::{Reply, Request, Verb};
use crate::read::{Fields, Path};
use crate::refusal::{Kind, Refusal};
use crate::respond::{self, Body, JSON};
use crate::route::{self, Rest};
use crate::sse::{self, Envelope, Streaming};
use crate::{body, jsonrpc, params, version};

/// The media type that 1.0 prefers.
const A2A_JSON: &str = "application/a2a+json";

/// What the answer's media types are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Media {
    answer: bool,
    error: bool,
}

// === impl Media ===

impl Media {
    /// What a request asks for.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let names_it = |name| {
            let values =
                headers.get_all(name).into_iter().filter_map(|value: &HeaderValue| value.to_str().ok());
            values.flat_map(|value| value.split(',')).any(|value| {
                value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(A2A_JSON)
            })
        };
        let accepts = names_it(ACCEPT);
        Self { answer: accepts || names_it(CONTENT_TYPE), error: accepts }
    }

    fn value(is_a2a: bool) -> HeaderValue {
        if is_a2a { HeaderValue::from_static(A2A_JSON) } else { JSON }
    }
}

/// Checks what needs no body: the version and what the card offers.
pub(crate) fn admit(
    capabilities: &Capabilities,
    rest: &Rest,
    verb: Verb,
    head: &Parts,
) -> Result<(), Refusal> {
    let asked = version::asked(&head.headers, head.uri.query());
    let version = rest.dialect.version();
    if !version.admits(asked) {
        return Err(version::mismatch("this path belongs to", version, asked));
    }
    capabilities.admit(verb, &capabilities::asked(&head.headers))
}

/// Reads a request. `body` is what a POST brought; none for the other methods.
pub(crate) fn read(rest: &Rest, verb: Verb, head: &Parts, body: Option<&[u8]>) -> Result<Request, Refusal> {
    let after = params::last_event(&head.headers)?;
    let mut fields = match body {
        None => Fields::of_query(route::query(head.uri.query())),
        Some([]) => Fields::of(Value::Object(Map::new()), Path::Root)?,
        Some(_) if !jsonrpc::is_json(&head.headers) => {
            let message = "the body must be application/json or application/a2a+json";
            return Err(Refusal::new(Kind::ContentTypeNotSupported, message));
        }
        Some(body) => Fields::of(body::parse(body)?, Path::Root)?,
    };
    // What a path is about is `id` in every request but those about a task's push configurations.
    let of_hooks = matches!(verb, Verb::SetHook | Verb::GetHook | Verb::ListHooks | Verb::RemoveHook);
    if let Some(task) = &rest.task {
        fields.bind(if of_hooks { "taskId" } else { "id" }, task)?;
    }
    if let Some(hook) = &rest.hook {
        fields.bind("id", hook)?;
    }
    if let Some(tenant) = &rest.tenant {
        fields.bind("tenant", tenant)?;
    }
    params::read(rest.dialect, verb, fields, after)
}

/// The response. Its second half is the error's code, for the access log.
pub(crate) fn respond(
    rest: &Rest,
    media: Media,
    reply: Result<Reply, Refusal>,
    streaming: &Streaming,
) -> (Response<Body>, Option<i32>) {
    let dialect = rest.dialect;
    let written = match reply {
        Ok(Reply::Stream(updates)) => Ok(sse::respond(*updates, dialect, Envelope::Rest, streaming)),
        Ok(Reply::Once(answer)) => serde_json::to_vec(&Written(dialect, &answer))
            .map(|body| respond::typed(StatusCode::OK, Media::value(media.answer), body))
            .map_err(|error| {
                tracing::warn!(%error, "an answer could not be written");
                Refusal::new(Kind::Internal, "the answer could not be written")
            }),
        Err(refusal) => Err(refusal),
    };
    let (mut response, version, code) = match written {
        Ok(response) => (response, Some(dialect.version()), None),
        Err(refusal) => {
            let (status, _) = refusal.kind.rest_status();
            let body = refusal.rest_body(dialect.version()).to_string();
            let mut response = respond::typed(status, Media::value(media.error), body);
            respond::retry(&mut response, &refusal);
            let spoken = (refusal.kind != Kind::VersionNotSupported).then_some(dialect.version());
            (response, spoken, Some(refusal.kind.code()))
        }
    };
    respond::versioned(&mut response, version);
    // A task is its owner's, and stale when it is old.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (response, code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_type_is_the_requests() {
        let of = |content_type: &'static str, accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            let Media { answer, error } = Media::of(&headers);
            (answer, error)
        };
        assert_eq!(of("application/json", "*/*"), (false, false));
        assert_eq!(of("application/a2a+json; charset=utf-8", "*/*"), (true, false));
        assert_eq!(of("application/json", "text/html, Application/A2A+JSON;q=1"), (true, true));
    }
}
