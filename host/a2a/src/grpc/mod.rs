//! The gRPC binding: the service `A2AService` of both versions, on the port of the other bindings.
//!
//! The path names the version and the operation, the body is one message of protobuf, and the trailers tell the result. What is
//! behind the message is the same as everywhere: a request becomes an `Operation`, metadata are the headers of the other
//! bindings (`authorization`, `a2a-version`, `a2a-extensions`, `last-event-id`), and a rejection becomes a status.
//!
//! The bounds are those of every request: the size and the deadline of the body, the memory that it takes, before and after it
//! is decoded. `grpc-timeout` ends the wait for an answer, as if the client had disconnected: a turn carries on.
//!
//! tonic gives the wire form of a status, and tonic-types its details. Its server would read bodies past the budget, and its
//! router would need a function for each of the 21 methods, so the calls are read here; see decision 065.

mod frame;
mod json;
mod respond;
#[cfg(test)]
mod round_trip;
mod status;
mod v03;
mod v1;

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method as HttpMethod, Version as HttpVersion};
use serde_json::Value;
use talaria_budget::Charge;
use tokio::time::Instant;

#[cfg(fuzzing)]
pub(crate) use self::respond::encode;
pub(crate) use self::respond::{refuse, respond};
#[cfg(fuzzing)]
pub(crate) use self::status::of as status_of;
use crate::capabilities::Capabilities;
use crate::dialect::{Dialect, finish_send};
use crate::json_fields::{Fields, Path};
use crate::operation::{Addressed, Operation, Request, Verb};
use crate::params;
use crate::rejection::{ErrorKind, Rejection};
use crate::service_params::ServiceParams;
use crate::version::{self, Version};

/// A method of the service.
#[derive(Debug)]
pub(crate) struct Method {
    path: &'static str,
    pub(crate) version: Version,
    verb: Verb,
}

/// A call, before its body is read.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: &'static Method,
    /// When the caller stops waiting.
    pub(crate) deadline: Option<Instant>,
}

/// A decoded request: the parameters as JSON has them, and the message of a send.
pub(crate) struct Params {
    params: Value,
    message: Option<Addressed>,
}

/// The methods of both versions.
static METHODS: [Method; 21] = [
    v1("/lf.a2a.v1.A2AService/SendMessage", Verb::Send),
    v1("/lf.a2a.v1.A2AService/SendStreamingMessage", Verb::Stream),
    v1("/lf.a2a.v1.A2AService/GetTask", Verb::Get),
    v1("/lf.a2a.v1.A2AService/ListTasks", Verb::List),
    v1("/lf.a2a.v1.A2AService/CancelTask", Verb::Cancel),
    v1("/lf.a2a.v1.A2AService/SubscribeToTask", Verb::Subscribe),
    v1("/lf.a2a.v1.A2AService/GetExtendedAgentCard", Verb::ExtendedCard),
    v1("/lf.a2a.v1.A2AService/CreateTaskPushNotificationConfig", Verb::CreatePushConfig),
    v1("/lf.a2a.v1.A2AService/GetTaskPushNotificationConfig", Verb::GetPushConfig),
    v1("/lf.a2a.v1.A2AService/ListTaskPushNotificationConfigs", Verb::ListPushConfigs),
    v1("/lf.a2a.v1.A2AService/DeleteTaskPushNotificationConfig", Verb::DeletePushConfig),
    v03("/a2a.v1.A2AService/SendMessage", Verb::Send),
    v03("/a2a.v1.A2AService/SendStreamingMessage", Verb::Stream),
    v03("/a2a.v1.A2AService/GetTask", Verb::Get),
    v03("/a2a.v1.A2AService/CancelTask", Verb::Cancel),
    v03("/a2a.v1.A2AService/TaskSubscription", Verb::Subscribe),
    v03("/a2a.v1.A2AService/GetAgentCard", Verb::ExtendedCard),
    v03("/a2a.v1.A2AService/CreateTaskPushNotificationConfig", Verb::CreatePushConfig),
    v03("/a2a.v1.A2AService/GetTaskPushNotificationConfig", Verb::GetPushConfig),
    v03("/a2a.v1.A2AService/ListTaskPushNotificationConfig", Verb::ListPushConfigs),
    v03("/a2a.v1.A2AService/DeleteTaskPushNotificationConfig", Verb::DeletePushConfig),
];

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

const fn v1(path: &'static str, verb: Verb) -> Method {
    Method { path, version: Version::V1, verb }
}

const fn v03(path: &'static str, verb: Verb) -> Method {
    Method { path, version: Version::V03, verb }
}

/// Whether a request is a call of gRPC. Over HTTP/1.1 there are no trailers to answer with, so it is a request for another
/// binding there, which does not take its media type.
pub(crate) fn is_call(method: &HttpMethod, version: HttpVersion, headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    let is_grpc =
        ["application/grpc", "application/grpc+proto"].iter().any(|ours| media.eq_ignore_ascii_case(ours));
    is_grpc && method == HttpMethod::POST && version == HttpVersion::HTTP_2
}

/// The version that a path belongs to; 1.0 if it belongs to none.
pub(crate) fn version_of(path: &str) -> Version {
    if path.starts_with("/a2a.v1.") { Version::V03 } else { Version::V1 }
}

// === impl Call ===

impl Call {
    /// Reads the head of a call that arrived now.
    pub(crate) fn of(head: &Parts) -> Result<Self, Rejection> {
        let path = head.uri.path();
        let Some(method) = METHODS.iter().find(|method| method.path == path) else {
            let path: String = path.chars().take(80).collect();
            let message = format!("no method {path:?}; names are case sensitive");
            return Err(Rejection::new(ErrorKind::MethodNotFound, message));
        };
        if head.headers.get_all(ENCODING).iter().any(|encoding| encoding != "identity") {
            let message = "the message is compressed, which this server does not offer";
            return Err(Rejection::new(ErrorKind::EncodingNotSupported, message));
        }
        let deadline = match head.headers.get(TIMEOUT) {
            None => None,
            Some(value) => match value.to_str().ok().and_then(timeout) {
                // A wait beyond what a clock can express has no end.
                Some(wait) => Instant::now().checked_add(wait),
                None => {
                    let wanted = "must be up to eight digits and one of H, M, S, m, u and n";
                    return Err(Rejection::field("grpc-timeout", format!("grpc-timeout {wanted}")));
                }
            },
        };
        Ok(Self { method, deadline })
    }

    /// Checks what needs no body: the version, and that the card offers the operation.
    pub(crate) fn admit(&self, capabilities: &Capabilities, params: &ServiceParams) -> Result<(), Rejection> {
        let Method { path, version, verb } = self.method;
        if !version.admits(params.version()) {
            let subject = format_args!("{path} belongs to");
            return Err(version::mismatch(subject, *version, params.version()));
        }
        capabilities.admit(*verb, &params.extensions)
    }

    /// Decodes the request in a body.
    pub(crate) fn read(
        &self,
        capabilities: &Capabilities,
        headers: &HeaderMap,
        body: &[u8],
        charge: &mut Charge,
    ) -> Result<Request, Rejection> {
        let verb = self.method.verb;
        let after = params::last_event(headers)?;
        let bytes = frame::unframe(body)?;
        let dialect = self.method.dialect();
        let Params { params, message } = match self.method.version {
            Version::V1 => v1::read(verb, bytes, charge)?,
            Version::V03 => v03::read(verb, bytes, charge)?,
        };
        let mut fields = Fields::of(params, Path::Root)?;
        if !matches!(verb, Verb::Send | Verb::Stream) {
            return params::read(capabilities, dialect, verb, fields, after);
        }
        let tenant = fields.string("tenant")?;
        let configuration = match self.method.version {
            Version::V1 => crate::v1::configuration,
            Version::V03 => crate::v03::rest::configuration,
        };
        let send = finish_send(fields, message, configuration)?;
        if send.configuration.push.is_some() {
            capabilities.require_push()?;
        }
        let send = Box::new(send);
        let operation =
            if verb == Verb::Send { Operation::Send(send) } else { Operation::Stream(send, after) };
        Ok(Request { tenant, operation })
    }

    /// Waits for `answer` no longer than the caller does.
    pub(crate) async fn in_time<T>(
        deadline: Option<Instant>,
        answer: impl Future<Output = Result<T, Rejection>>,
    ) -> Result<T, Rejection> {
        match deadline {
            None => answer.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(Rejection::too_late()),
            },
        }
    }
}

// === impl Method ===

impl Method {
    /// The name for the access log.
    pub(crate) fn name(&self) -> &'static str {
        self.path
    }

    fn dialect(&self) -> Dialect {
        match self.version {
            Version::V1 => Dialect::V1,
            Version::V03 => Dialect::V03Rest,
        }
    }
}

/// Parses `grpc-timeout`.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_number_and_a_unit() {
        for (text, wait) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("30S", Duration::from_secs(30)),
            ("500m", Duration::from_millis(500)),
            ("7u", Duration::from_micros(7)),
            ("99999999n", Duration::from_nanos(99_999_999)),
            ("0m", Duration::ZERO),
        ] {
            assert_eq!(timeout(text), Some(wait), "{text}");
        }
        for bad in ["", "S", "1", "1s", "-1S", "+1S", "1.5S", "123456789S", "1 S", "1ü"] {
            assert_eq!(timeout(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_http_2_and_protobuf_are_calls() {
        let is = |media: &str, version| {
            let headers = [(CONTENT_TYPE, media.parse().unwrap())].into_iter().collect();
            is_call(&HttpMethod::POST, version, &headers)
        };
        for media in ["application/grpc", "Application/gRPC+proto", "application/grpc; charset=utf-8"] {
            assert!(is(media, HttpVersion::HTTP_2), "{media}");
            assert!(!is(media, HttpVersion::HTTP_11), "{media}");
        }
        for media in ["application/grpc-web", "application/grpc+json", "application/json", ""] {
            assert!(!is(media, HttpVersion::HTTP_2), "{media}");
        }
    }
}
