//! JSON-RPC 2.0, one request a body.
//!
//! [`Call::read`] is pure: bytes in, an operation or a refusal out, and the body is gone before the operation is
//! performed, so a turn that takes minutes does not hold it. Errors travel with HTTP 200 unless HTTP itself is what went
//! wrong. Batches and notifications are refused, as the SDKs do: a call whose answer nobody awaits is a mistake here.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::body;
use crate::capabilities::{self, Capabilities};
use crate::dialect::{Dialect, Written};
use crate::operation::{Reply, Request, Verb};
use crate::params;
use crate::read::{Fields, Path};
use crate::refusal::{Kind, Refusal};
use crate::respond::{self, Body};
use crate::sse::{self, Envelope, Streaming};
use crate::version::{self, Version};

/// A method of the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Method {
    pub(crate) name: &'static str,
    pub(crate) version: Version,
    does: Verb,
}

/// One call, as far as it could be read.
#[derive(Debug)]
pub(crate) struct Call {
    /// What the answer echoes.
    pub(crate) id: Value,
    /// None where the call did not come so far.
    pub(crate) method: Option<&'static Method>,
    pub(crate) request: Result<Request, Refusal>,
    /// Whether an error must come as the only event of a stream: clients of 0.3 that asked for one read nothing else.
    pub(crate) streams_errors: bool,
}

/// All methods of both versions.
static METHODS: [Method; 21] = [
    v1("SendMessage", Verb::Send),
    v1("SendStreamingMessage", Verb::Stream),
    v1("GetTask", Verb::Get),
    v1("ListTasks", Verb::List),
    v1("CancelTask", Verb::Cancel),
    v1("SubscribeToTask", Verb::Subscribe),
    v1("GetExtendedAgentCard", Verb::ExtendedCard),
    v1("CreateTaskPushNotificationConfig", Verb::SetHook),
    v1("GetTaskPushNotificationConfig", Verb::GetHook),
    v1("ListTaskPushNotificationConfigs", Verb::ListHooks),
    v1("DeleteTaskPushNotificationConfig", Verb::RemoveHook),
    v03("message/send", Verb::Send),
    v03("message/stream", Verb::Stream),
    v03("tasks/get", Verb::Get),
    v03("tasks/cancel", Verb::Cancel),
    v03("tasks/resubscribe", Verb::Subscribe),
    v03("agent/getAuthenticatedExtendedCard", Verb::ExtendedCard),
    v03("tasks/pushNotificationConfig/set", Verb::SetHook),
    v03("tasks/pushNotificationConfig/get", Verb::GetHook),
    v03("tasks/pushNotificationConfig/list", Verb::ListHooks),
    v03("tasks/pushNotificationConfig/delete", Verb::RemoveHook),
];

const fn v1(name: &'static str, does: Verb) -> Method {
    Method { name, version: Version::V1, does }
}

const fn v03(name: &'static str, does: Verb) -> Method {
    Method { name, version: Version::V03, does }
}

// === impl Call ===

impl Call {
    /// Reads a call. `asked` is the version that the caller states.
    pub(crate) fn read(
        capabilities: &Capabilities,
        headers: &HeaderMap,
        asked: Option<&str>,
        body: &[u8],
    ) -> Self {
        if !is_json(headers) {
            let message = "the body must be application/json, or another type that ends in +json";
            return Self::refused(Refusal::new(Kind::ContentTypeNotSupported, message));
        }
        let mut members = match body::parse(body) {
            Ok(Value::Object(members)) => members,
            Ok(Value::Array(_)) => return Self::invalid("batches are not served; send one request a body"),
            Ok(_) => return Self::invalid("the body must be an object"),
            Err(refusal) => return Self::refused(refusal),
        };
        let id = match members.swap_remove("id") {
            Some(id @ (Value::String(_) | Value::Number(_) | Value::Null)) => id,
            Some(_) => return Self::invalid("id must be a string, a number or null"),
            None => return Self::without_id(members, capabilities, headers, asked),
        };
        Self::of(id, members, capabilities, headers, asked)
    }

    /// A call that nobody awaits is refused whatever it says; what else is wrong with it is the better reason.
    fn without_id(
        members: Map<String, Value>,
        capabilities: &Capabilities,
        headers: &HeaderMap,
        asked: Option<&str>,
    ) -> Self {
        let mut call = Self::of(Value::Null, members, capabilities, headers, asked);
        if call.request.is_ok() {
            let message = "id is required; notifications are not served";
            call.request = Err(Refusal::new(Kind::InvalidRequest, message));
        }
        call
    }

    fn of(
        id: Value,
        mut members: Map<String, Value>,
        capabilities: &Capabilities,
        headers: &HeaderMap,
        asked: Option<&str>,
    ) -> Self {
        let mut call = Self { id, ..Self::invalid("") };
        if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            call.request = Err(Refusal::new(Kind::InvalidRequest, "jsonrpc must be \"2.0\""));
            return call;
        }
        let Some(Value::String(name)) = members.get("method") else {
            call.request = Err(Refusal::new(Kind::InvalidRequest, "method is required and must be a string"));
            return call;
        };
        let Some(method) = METHODS.iter().find(|method| method.name == *name) else {
            let name: String = name.chars().take(80).collect();
            let message = format!("no method {name:?}; names are case sensitive");
            call.request = Err(Refusal::new(Kind::MethodNotFound, message));
            return call;
        };
        call.method = Some(method);
        call.streams_errors = method.version == Version::V03
            && matches!(method.does, Verb::Stream | Verb::Subscribe)
            && accepts_stream(headers);
        let params = members.swap_remove("params").filter(|params| !params.is_null());
        call.request = method.read(capabilities, headers, asked, params.unwrap_or_else(|| json!({})));
        call
    }

    /// A call that could not be read so far that its id were known.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self { id: Value::Null, method: None, request: Err(refusal), streams_errors: false }
    }

    fn invalid(message: &str) -> Self {
        Self::refused(Refusal::new(Kind::InvalidRequest, message))
    }
}

// === impl Method ===

impl Method {
    /// The JSON that it is written in.
    pub(crate) fn dialect(&self) -> Dialect {
        match self.version {
            Version::V1 => Dialect::V1,
            Version::V03 => Dialect::V03,
        }
    }

    fn read(
        &self,
        capabilities: &Capabilities,
        headers: &HeaderMap,
        asked: Option<&str>,
        params: Value,
    ) -> Result<Request, Refusal> {
        if !self.version.admits(asked) {
            return Err(self.version_mismatch(asked));
        }
        capabilities.admit(self.does, &capabilities::asked(headers))?;
        let after = params::last_event(headers)?;
        params::read(self.dialect(), self.does, Fields::of(params, Path::Root)?, after)
    }

    fn version_mismatch(&self, asked: Option<&str>) -> Refusal {
        version::mismatch(format_args!("{} is a method of", self.name), self.version, asked)
    }
}

/// The response to a call. Its second half is the error's code, for the access log.
pub(crate) fn respond(
    id: Value,
    method: Option<&Method>,
    streams_errors: bool,
    reply: Result<Reply, Refusal>,
    streaming: &Streaming,
) -> (Response<Body>, Option<i32>) {
    let dialect = method.map_or(Dialect::V1, Method::dialect);
    let written = match reply {
        Ok(Reply::Stream(updates)) => {
            Ok(sse::respond(*updates, dialect, Envelope::JsonRpc(id.clone()), streaming))
        }
        Ok(Reply::Once(answer)) => success(&id, Written(dialect, &answer))
            .map(|body| respond::json(StatusCode::OK, body))
            .map_err(|error| {
                tracing::warn!(%error, "an answer could not be written");
                Refusal::new(Kind::Internal, "the answer could not be written")
            }),
        Err(refusal) => Err(refusal),
    };
    let version = method.map(|method| method.version);
    match written {
        Ok(mut response) => {
            respond::versioned(&mut response, version);
            (response, None)
        }
        Err(refusal) => {
            let body = refusal.jsonrpc_body(&id);
            let mut response = match refusal.kind.jsonrpc_status() {
                StatusCode::OK if streams_errors => sse::only(&body),
                status => respond::json(status, body.to_string()),
            };
            respond::retry(&mut response, &refusal);
            let spoken = version.filter(|_| refusal.kind != Kind::VersionNotSupported);
            respond::versioned(&mut response, spoken);
            (response, Some(refusal.kind.code()))
        }
    }
}

#[derive(Serialize)]
struct Success<'a, T> {
    jsonrpc: &'static str,
    id: &'a Value,
    result: T,
}

fn success(id: &Value, result: impl Serialize) -> Result<Bytes, serde_json::Error> {
    serde_json::to_vec(&Success { jsonrpc: "2.0", id, result }).map(Bytes::from)
}

/// Whether the caller wants a stream, by any of its `Accept` lines: the Python SDK of 0.3 sends two.
fn accepts_stream(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT).into_iter().filter_map(|line| line.to_str().ok());
    let types =
        lines.flat_map(|line| line.split(',')).map(|range| range.split(';').next().unwrap_or_default());
    types.map(str::trim).any(|kind| kind.eq_ignore_ascii_case("text/event-stream"))
}

/// Whether the body claims to be JSON. No claim is one.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return true };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(body: &Value) -> Call {
        Call::read(&Capabilities::default(), &HeaderMap::new(), Some("1.0"), body.to_string().as_bytes())
    }

    #[test]
    fn ids_are_echoed_as_they_came() {
        for id in [json!("a"), json!(7), json!(-1.5), json!(null)] {
            let call =
                read(&json!({ "jsonrpc": "2.0", "id": id, "method": "GetTask", "params": { "id": "t" } }));
            assert!(call.request.is_ok(), "{id}");
            assert_eq!(call.id, id);
        }
    }

    #[test]
    fn any_line_of_accept_may_want_a_stream() {
        for (lines, wants) in [
            (vec!["text/event-stream"], true),
            (vec!["*/*", "text/event-stream"], true),
            (vec!["application/json, Text/Event-Stream;q=0.9"], true),
            (vec!["*/*"], false),
            (vec!["text/event-streams", "application/json"], false),
            (vec![], false),
        ] {
            let headers = lines.iter().map(|line| (ACCEPT, HeaderValue::from_static(line))).collect();
            assert_eq!(accepts_stream(&headers), wants, "{lines:?}");
        }
    }

    #[test]
    fn the_types_of_bodies() {
        for (value, is) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/a2a+json", true),
            ("text/plain", false),
            ("application/jsonp", false),
            ("", false),
            ("ü+json", false),
        ] {
            let headers =
                HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_bytes(value.as_bytes()).unwrap())]);
            assert_eq!(is_json(&headers), is, "{value}");
        }
        assert!(is_json(&HeaderMap::new()));
    }

    #[test]
    fn every_method_of_the_protocol_is_known_once() {
        for (at, method) in METHODS.iter().enumerate() {
            let first = METHODS.iter().position(|other| other.name == method.name);
            assert_eq!(first, Some(at), "{}", method.name);
        }
    }
}
