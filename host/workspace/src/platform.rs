//! Calls to the platform.
//!
//! Every call is bounded in time and size, follows no redirect, and goes through egress like every other call, so the token
//! never reaches any other server. After a 401 the token's file is read again and the call repeated once, since the
//! platform may have written the file after this process began. Responses are not trusted: one that is HTML, empty or endless
//! is only an error with a reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::Value;
use talaria_egress::{Bounds, Egress, ErrorKind, Origin, Request};
use talaria_redact::Redactor;

use crate::keys::Key;

/// The maximum number of bytes of a response. A list of a hundred peers with their cards has a few hundred KiB.
const ANSWER_BYTES: usize = 4 << 20;

/// The maximum number of bytes of a request: the files that a person may be sent at once.
const REQUEST_BYTES: usize = 64 << 20;

/// The media type of all other requests.
const JSON: &str = "application/json";

/// The number of failed calls in a row after which all connections are closed: one may be dead although the kernel still
/// considers it open.
const GIVE_UP: u32 = 10;

/// The platform, seen from one workspace.
#[derive(Debug)]
pub(crate) struct Platform {
    base: String,
    origin: Origin,
    workspace: String,
    token: Arc<Key>,
    config: talaria_egress::Config,
    egress: ArcSwap<Egress>,
    failures: AtomicU32,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The request did not reach the platform.
    #[error("{0}")]
    Down(String),
    /// The request was sent, and there was no response: the platform may have acted on it.
    #[error("{0}")]
    Silent(String),
    /// The platform rejected the request.
    #[error("HTTP {status}{said}")]
    Rejected { status: u16, said: String },
    /// The response is not a JSON object or list.
    #[error("HTTP {0} with a body that is not JSON")]
    NotJson(u16),
}

// === impl Platform ===

impl Platform {
    /// Creates a client that calls paths below `base` as this workspace.
    ///
    /// # Errors
    /// If `base` is not a valid address.
    pub(crate) fn new(
        base: &str,
        workspace: &str,
        token: Arc<Key>,
        config: talaria_egress::Config,
    ) -> Result<Self, String> {
        let base = base.trim_end_matches('/').to_owned();
        let origin = base.parse().map_err(|error: talaria_egress::Error| error.to_string())?;
        Ok(Self {
            base,
            origin,
            workspace: workspace.to_owned(),
            token,
            egress: ArcSwap::from_pointee(Egress::new(config.clone())),
            config,
            failures: AtomicU32::new(0),
        })
    }

    pub(crate) async fn post(&self, path: &str, body: &Value, within: Duration) -> Result<Value, CallError> {
        self.call("POST", path, (JSON, body.to_string().into()), within).await
    }

    pub(crate) async fn get(&self, path: &str, within: Duration) -> Result<Value, CallError> {
        self.call("GET", path, (JSON, Bytes::new()), within).await
    }

    /// Posts a body of another type than JSON.
    pub(crate) async fn post_as(
        &self,
        path: &str,
        media_type: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<Value, CallError> {
        self.call("POST", path, (media_type, body), within).await
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        body: (&str, Bytes),
        within: Duration,
    ) -> Result<Value, CallError> {
        let result = match self.once(method, path, body.clone(), within).await {
            Err(CallError::Rejected { status: 401, .. }) => {
                self.token.reread();
                self.once(method, path, body, within).await
            }
            result => result,
        };
        if let Err(CallError::Down(_) | CallError::Silent(_)) = &result {
            if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= GIVE_UP {
                self.failures.store(0, Ordering::Relaxed);
                self.egress.store(Arc::new(Egress::new(self.config.clone())));
            }
        } else {
            self.failures.store(0, Ordering::Relaxed);
        }
        result
    }

    async fn once(
        &self,
        method: &str,
        path: &str,
        (media_type, body): (&str, Bytes),
        within: Duration,
    ) -> Result<Value, CallError> {
        let down = |what: String| CallError::Down(what);
        let mut headers = vec![("x-workspace-id".to_owned(), self.workspace.clone())];
        if !body.is_empty() {
            headers.push(("content-type".into(), media_type.to_owned()));
        }
        let request_body = REQUEST_BYTES;
        let bounds =
            Bounds { timeout: within, request_body, response_body: ANSWER_BYTES, ..Bounds::default() };
        // A registration answers with the token, so responses are not masked.
        let mut client =
            self.egress.load().origin_client("workspace", &self.origin).with_bounds(bounds).unmasked();
        if let Some(token) = self.token.get() {
            client = client.with_bearer(token).map_err(|error| down(error.to_string()))?;
        }
        let (method, url) = (method.to_owned(), format!("{}{path}", self.base));
        let request = Request { method, url, headers, body, ..Request::default() };
        let response = client.fetch(request).await;
        let response = response.map_err(|error| match error.kind() {
            ErrorKind::TimedOut | ErrorKind::Protocol | ErrorKind::TooLarge => {
                CallError::Silent(error.to_string())
            }
            _ => down(error.to_string()),
        })?;
        if !(200..300).contains(&response.status) {
            return Err(CallError::Rejected { status: response.status, said: said(&response.body) });
        }
        match serde_json::from_slice(&response.body) {
            Ok(value @ (Value::Object(_) | Value::Array(_))) => Ok(value),
            _ => Err(CallError::NotJson(response.status)),
        }
    }
}

/// The member `error` of a JSON body, for the log. Any other body is left out, since it may be an HTML page.
fn said(body: &[u8]) -> String {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let error = value.as_ref().and_then(|value| value.get("error")?.as_str());
    error.map_or_else(String::new, |error| {
        let error: String = Redactor::process()
            .all(error)
            .chars()
            .take(200)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        format!(": {error}")
    })
}
