//! JSON-RPC 2.0, one request a body.
//!
//! [`Call::read`] is pure: bytes in, an operation or a refusal out, and the body is gone before the operation is
//! performed, so a turn that takes minutes does not hold it. Errors travel with HTTP 200 unless HTTP itself is what went
//! wrong. Batches and notifications are refused, as the SDKs do: a call whose answer nobody awaits is a mistake here.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::body;
use crate::operation::{Answer, Operation};
use crate::read::{Fields, Path};
use crate::refusal::{Kind, Refusal};
use crate::respond::{self, Body};
use crate::version::{self, Version};
use crate::{v1, v03};

/// A method of the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Method {
    pub(crate) name: &'static str,
    pub(crate) version: Version,
    does: Does,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Send,
    Get,
    /// In the protocol, but not served.
    Refuse(Kind),
}

/// One call, as far as it could be read.
#[derive(Debug)]
pub(crate) struct Call {
    /// What the answer echoes.
    pub(crate) id: Value,
    /// None where the call did not come so far.
    pub(crate) method: Option<&'static Method>,
    pub(crate) operation: Result<Operation, Refusal>,
}

const UNSUPPORTED: Does = Does::Refuse(Kind::UnsupportedOperation);
const NO_PUSH: Does = Does::Refuse(Kind::PushNotSupported);

/// All methods of both versions; those that are served come first.
static METHODS: [Method; 21] = [
    v1("SendMessage", Does::Send),
    v03("message/send", Does::Send),
    v1("GetTask", Does::Get),
    v03("tasks/get", Does::Get),
    v1("SendStreamingMessage", UNSUPPORTED),
    v1("ListTasks", UNSUPPORTED),
    v1("CancelTask", UNSUPPORTED),
    v1("SubscribeToTask", UNSUPPORTED),
    v1("GetExtendedAgentCard", UNSUPPORTED),
    v1("CreateTaskPushNotificationConfig", NO_PUSH),
    v1("GetTaskPushNotificationConfig", NO_PUSH),
    v1("ListTaskPushNotificationConfigs", NO_PUSH),
    v1("DeleteTaskPushNotificationConfig", NO_PUSH),
    v03("message/stream", UNSUPPORTED),
    v03("tasks/cancel", UNSUPPORTED),
    v03("tasks/resubscribe", UNSUPPORTED),
    v03("agent/getAuthenticatedExtendedCard", UNSUPPORTED),
    v03("tasks/pushNotificationConfig/set", NO_PUSH),
    v03("tasks/pushNotificationConfig/get", NO_PUSH),
    v03("tasks/pushNotificationConfig/list", NO_PUSH),
    v03("tasks/pushNotificationConfig/delete", NO_PUSH),
];

const fn v1(name: &'static str, does: Does) -> Method {
    Method { name, version: Version::V1, does }
}

const fn v03(name: &'static str, does: Does) -> Method {
    Method { name, version: Version::V03, does }
}

// === impl Call ===

impl Call {
    /// Reads a call. `asked` is the version that the caller states.
    pub(crate) fn read(headers: &HeaderMap, asked: Option<&str>, body: &[u8]) -> Self {
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
            None => return Self::invalid("id is required; notifications are not served"),
        };
        let mut call = Self { id, ..Self::invalid("") };
        if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            call.operation = Err(Refusal::new(Kind::InvalidRequest, "jsonrpc must be \"2.0\""));
            return call;
        }
        let Some(Value::String(name)) = members.get("method") else {
            call.operation =
                Err(Refusal::new(Kind::InvalidRequest, "method is required and must be a string"));
            return call;
        };
        let Some(method) = METHODS.iter().find(|method| method.name == *name) else {
            let name: String = name.chars().take(80).collect();
            let message = format!("no method {name:?}; names are case sensitive");
            call.operation = Err(Refusal::new(Kind::MethodNotFound, message));
            return call;
        };
        call.method = Some(method);
        let params = members.swap_remove("params").filter(|params| !params.is_null());
        call.operation = method.read(asked, params.unwrap_or_else(|| json!({})));
        call
    }

    /// A call that could not be read so far that its id were known.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self { id: Value::Null, method: None, operation: Err(refusal) }
    }

    fn invalid(message: &str) -> Self {
        Self::refused(Refusal::new(Kind::InvalidRequest, message))
    }
}

// === impl Method ===

impl Method {
    fn read(&self, asked: Option<&str>, params: Value) -> Result<Operation, Refusal> {
        let Self { name, version, does } = self;
        if !version.serves(asked) {
            return Err(self.version_mismatch(asked));
        }
        let params = || Fields::of(params, Path::Root);
        Ok(match (does, version) {
            (Does::Refuse(kind), _) => {
                return Err(Refusal::new(*kind, format!("{name} is not supported by this server yet")));
            }
            (Does::Send, Version::V1) => Operation::SendMessage(Box::new(v1::send_message(params()?)?)),
            (Does::Send, Version::V03) => Operation::SendMessage(Box::new(v03::send_message(params()?)?)),
            (Does::Get, Version::V1) => Operation::GetTask(v1::get_task(params()?)?),
            (Does::Get, Version::V03) => Operation::GetTask(v03::get_task(params()?)?),
        })
    }

    fn version_mismatch(&self, asked: Option<&str>) -> Refusal {
        let (name, header) = (self.name, version::NAME);
        let says = match asked {
            Some(asked) => format!("{header} says {:?}", asked.chars().take(20).collect::<String>()),
            None => format!("there is no {header}, which means 0.3"),
        };
        let version = self.version.as_str();
        let message = format!("{name} is a method of A2A {version}, but {says}; served are 1.0 and 0.3");
        Refusal::new(Kind::VersionNotSupported, message)
    }
}

/// The response to a call. Its second half is the error's code, for the access log.
pub(crate) fn respond(
    id: &Value,
    method: Option<&Method>,
    answer: &Result<Answer, Refusal>,
) -> (Response<Body>, Option<i32>) {
    let version = method.map(|method| method.version);
    let written = match (answer, version) {
        (Ok(answer), Some(Version::V03)) => success(id, v03::AnswerOut(answer)),
        (Ok(answer), _) => success(id, v1::AnswerOut(answer)),
        (Err(refusal), _) => return failure(id, version, refusal),
    };
    match written {
        Ok(body) => (versioned(respond::json(StatusCode::OK, body), version), None),
        Err(error) => {
            tracing::warn!(%error, "an answer could not be written");
            failure(id, version, &Refusal::new(Kind::Internal, "the answer could not be written"))
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

fn failure(id: &Value, version: Option<Version>, refusal: &Refusal) -> (Response<Body>, Option<i32>) {
    let code = refusal.kind.code();
    let error = json!({ "code": code, "message": refusal.message, "data": refusal.details() });
    let body = json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string();
    let mut response = respond::json(refusal.kind.jsonrpc_status(), body);
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    let spoken = version.filter(|_| refusal.kind != Kind::VersionNotSupported);
    (versioned(response, spoken), Some(code))
}

/// Says which version the answer is in, where one was agreed on.
fn versioned(mut response: Response<Body>, version: Option<Version>) -> Response<Body> {
    if let Some(version) = version {
        response.headers_mut().insert(version::HEADER, HeaderValue::from_static(version.as_str()));
    }
    response
}

/// Whether the body claims to be JSON. No claim is one.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return true };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Call {
        Call::read(&HeaderMap::new(), Some("1.0"), body.to_string().as_bytes())
    }

    #[test]
    fn ids_are_echoed_as_they_came() {
        for id in [json!("a"), json!(7), json!(-1.5), json!(null)] {
            let call =
                read(&json!({ "jsonrpc": "2.0", "id": id, "method": "GetTask", "params": { "id": "t" } }));
            assert!(call.operation.is_ok(), "{id}");
            assert_eq!(call.id, id);
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
