//! The JSON-RPC 2.0 binding, with one request per body.
//!
//! [`Call::read`] is a pure function from bytes to an operation or a rejection. The body is dropped before the operation is
//! performed, so a turn of several minutes does not keep it in memory. Errors travel with HTTP 200 unless HTTP itself failed.
//! Batches and notifications are rejected, as in the SDKs: every operation of A2A has an answer.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value, json};
use talaria_budget::Charge;

use crate::body;
use crate::capabilities::Capabilities;
use crate::dialect::{Dialect, InDialect};
use crate::json_fields::{Fields, Path};
use crate::memory;
use crate::open_stream::Streaming;
use crate::operation::{Reply, Request, Verb};
use crate::params;
use crate::rejection::{ErrorKind, Rejection};
use crate::respond::{self, Body};
use crate::service_params::ServiceParams;
use crate::sse::{self, Envelope};
use crate::version::{self, Version};

/// A method of the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Method {
    pub(crate) name: &'static str,
    pub(crate) version: Version,
    verb: Verb,
}

/// One call, as far as it could be decoded.
#[derive(Debug)]
pub(crate) struct Call {
    /// The id that the answer echoes.
    pub(crate) id: Value,
    /// `None` if the call has no valid method.
    pub(crate) method: Option<&'static Method>,
    pub(crate) request: Result<Request, Rejection>,
    /// Whether an error must be sent as the only event of a stream: clients of 0.3 that ask for a stream read nothing else.
    pub(crate) streams_errors: bool,
}

/// The methods of both versions.
static METHODS: [Method; 21] = [
    v1("SendMessage", Verb::Send),
    v1("SendStreamingMessage", Verb::Stream),
    v1("GetTask", Verb::Get),
    v1("ListTasks", Verb::List),
    v1("CancelTask", Verb::Cancel),
    v1("SubscribeToTask", Verb::Subscribe),
    v1("GetExtendedAgentCard", Verb::ExtendedCard),
    v1("CreateTaskPushNotificationConfig", Verb::CreatePushConfig),
    v1("GetTaskPushNotificationConfig", Verb::GetPushConfig),
    v1("ListTaskPushNotificationConfigs", Verb::ListPushConfigs),
    v1("DeleteTaskPushNotificationConfig", Verb::DeletePushConfig),
    v03("message/send", Verb::Send),
    v03("message/stream", Verb::Stream),
    v03("tasks/get", Verb::Get),
    v03("tasks/cancel", Verb::Cancel),
    v03("tasks/resubscribe", Verb::Subscribe),
    v03("agent/getAuthenticatedExtendedCard", Verb::ExtendedCard),
    v03("tasks/pushNotificationConfig/set", Verb::CreatePushConfig),
    v03("tasks/pushNotificationConfig/get", Verb::GetPushConfig),
    v03("tasks/pushNotificationConfig/list", Verb::ListPushConfigs),
    v03("tasks/pushNotificationConfig/delete", Verb::DeletePushConfig),
];

const fn v1(name: &'static str, verb: Verb) -> Method {
    Method { name, version: Version::V1, verb }
}

const fn v03(name: &'static str, verb: Verb) -> Method {
    Method { name, version: Version::V03, verb }
}

// === impl Call ===

impl Call {
    /// Decodes a call.
    pub(crate) fn read(
        capabilities: &Capabilities,
        headers: &HeaderMap,
        params: &ServiceParams,
        body: &[u8],
        charge: &mut Charge,
    ) -> Self {
        if !is_json(headers) {
            return Self::rejected(Rejection::body_not_json());
        }
        let mut members = match body::parse(body, charge) {
            Ok(Value::Object(members)) => members,
            Ok(Value::Array(_)) => return Self::invalid("batches are not served; send one request a body"),
            Ok(_) => return Self::invalid("the body must be an object"),
            Err(rejection) => return Self::rejected(rejection),
        };
        let id = match members.swap_remove("id") {
            Some(id @ (Value::String(_) | Value::Number(_) | Value::Null)) => id,
            Some(_) => return Self::invalid("id must be a string, a number or null"),
            None => return Self::without_id(members, capabilities, headers, params),
        };
        Self::of(id, members, capabilities, headers, params)
    }

    /// A call without an id is always rejected; any other error in it is the better reason.
    fn without_id(
        members: Map<String, Value>,
        capabilities: &Capabilities,
        headers: &HeaderMap,
        params: &ServiceParams,
    ) -> Self {
        let mut call = Self::of(Value::Null, members, capabilities, headers, params);
        if call.request.is_ok() {
            let message = "id is required; notifications are not served";
            call.request = Err(Rejection::new(ErrorKind::InvalidRequest, message));
        }
        call
    }

    fn of(
        id: Value,
        mut members: Map<String, Value>,
        capabilities: &Capabilities,
        headers: &HeaderMap,
        params: &ServiceParams,
    ) -> Self {
        let mut call = Self { id, ..Self::invalid("") };
        if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            call.request = Err(Rejection::new(ErrorKind::InvalidRequest, "jsonrpc must be \"2.0\""));
            return call;
        }
        let Some(Value::String(name)) = members.get("method") else {
            call.request =
                Err(Rejection::new(ErrorKind::InvalidRequest, "method is required and must be a string"));
            return call;
        };
        let Some(method) = METHODS.iter().find(|method| method.name == *name) else {
            let name: String = name.chars().take(80).collect();
            let message = format!("no method {name:?}; names are case sensitive");
            call.request = Err(Rejection::new(ErrorKind::MethodNotFound, message));
            return call;
        };
        call.method = Some(method);
        call.streams_errors = method.version == Version::V03
            && matches!(method.verb, Verb::Stream | Verb::Subscribe)
            && accepts_stream(headers);
        let value = members.swap_remove("params").filter(|value| !value.is_null());
        call.request = method.read(capabilities, headers, params, value.unwrap_or_else(|| json!({})));
        call
    }

    /// A call that was rejected before its id was known.
    pub(crate) fn rejected(rejection: Rejection) -> Self {
        Self { id: Value::Null, method: None, request: Err(rejection), streams_errors: false }
    }

    fn invalid(message: &str) -> Self {
        Self::rejected(Rejection::new(ErrorKind::InvalidRequest, message))
    }
}

// === impl Method ===

impl Method {
    /// The dialect of the method.
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
        params: &ServiceParams,
        value: Value,
    ) -> Result<Request, Rejection> {
        if !self.version.admits(params.version()) {
            let subject = format_args!("{} is a method of", self.name);
            return Err(version::mismatch(subject, self.version, params.version()));
        }
        capabilities.admit(self.verb, &params.extensions)?;
        let after = params::last_event(headers)?;
        let fields = Fields::of(value, Path::Root)?;
        params::read(capabilities, self.dialect(), self.verb, fields, after)
    }
}

/// Encodes the response to a call, and returns the code of an error for the access log.
pub(crate) fn respond(
    id: Value,
    method: Option<&Method>,
    streams_errors: bool,
    reply: Result<Reply, Rejection>,
    streaming: &Streaming,
) -> (Response<Body>, Option<i32>) {
    let dialect = method.map_or(Dialect::V1, Method::dialect);
    let written = match reply {
        Ok(Reply::Stream(updates)) => {
            Ok(sse::respond(*updates, dialect, Envelope::JsonRpc(id.clone()), streaming))
        }
        Ok(Reply::Once(answer)) => success(&id, InDialect(dialect, &answer))
            .map(|body| respond::json(StatusCode::OK, memory::hold(&streaming.budget, body)))
            .map_err(|error| {
                tracing::warn!(%error, "answer could not be encoded");
                Rejection::new(ErrorKind::Internal, "the answer could not be written")
            }),
        Err(rejection) => Err(rejection),
    };
    let version = method.map(|method| method.version);
    match written {
        Ok(mut response) => {
            respond::versioned(&mut response, version);
            (response, None)
        }
        Err(rejection) => {
            let body = rejection.jsonrpc_body(&id);
            let mut response = match rejection.kind.jsonrpc_status() {
                StatusCode::OK if streams_errors => sse::only(&body),
                status => respond::json(status, body.to_string()),
            };
            respond::retry(&mut response, &rejection);
            let spoken = version.filter(|_| rejection.kind != ErrorKind::VersionNotSupported);
            respond::versioned(&mut response, spoken);
            (response, Some(rejection.kind.code()))
        }
    }
}

#[derive(Serialize)]
struct Success<'a, T> {
    jsonrpc: &'static str,
    id: &'a Value,
    result: T,
}

fn success(id: &Value, result: impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Success { jsonrpc: "2.0", id, result })
}

/// Whether any of the `Accept` headers names a stream; the Python SDK of 0.3 sends two of them.
fn accepts_stream(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT).into_iter().filter_map(|line| line.to_str().ok());
    let types =
        lines.flat_map(|line| line.split(',')).map(|range| range.split(';').next().unwrap_or_default());
    types.map(str::trim).any(|kind| kind.eq_ignore_ascii_case("text/event-stream"))
}

/// Whether the body is declared as JSON, once. A page of another site cannot declare that without asking first, and a body
/// that is not declared is one that a page can send.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return false };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(body: &Value) -> Call {
        let body = body.to_string();
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let (params, mut charge) = (ServiceParams::default(), talaria_budget::Budget::unlimited().nothing());
        Call::read(&Capabilities::default(), &headers, &params, body.as_bytes(), &mut charge)
    }

    #[test]
    fn ids_are_echoed_unchanged() {
        for id in [json!("a"), json!(7), json!(-1.5), json!(null)] {
            let call =
                read(&json!({ "jsonrpc": "2.0", "id": id, "method": "GetTask", "params": { "id": "t" } }));
            assert!(call.request.is_ok(), "{id}");
            assert_eq!(call.id, id);
        }
    }

    #[test]
    fn any_accept_header_may_ask_for_a_stream() {
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
    fn recognizes_media_types_of_json() {
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
        assert!(!is_json(&HeaderMap::new()), "not declared");
        let json = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut twice = HeaderMap::from_iter([json]);
        twice.append(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        assert!(!is_json(&twice), "declared twice");
    }

    #[test]
    fn every_method_is_listed_once() {
        for (at, method) in METHODS.iter().enumerate() {
            let first = METHODS.iter().position(|other| other.name == method.name);
            assert_eq!(first, Some(at), "{}", method.name);
        }
    }
}
