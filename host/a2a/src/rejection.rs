//! Rejections: errors for the caller, with the codes of the protocol.
//!
//! A [`Rejection`] holds only what the caller may read. What only the operator may read, such as the error of a store, is
//! logged where the rejection is made, and appears nowhere else.

use http::StatusCode;
use serde_json::{Value, json};
use talaria_budget::Full;
use talaria_turns::{FollowError, NoExecutor, OverShare, PushError, SendError, StoreError, TaskId};
use tracing::warn;

use crate::version::Version;

/// An invalid field. The two texts form a sentence: `message.parts` + `must not be empty`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) field: String,
    pub(crate) description: String,
}

/// The kind of a rejection, which determines the code, the reason and the HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The body is not JSON, or not the message of its method.
    Malformed,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    TaskNotFound,
    TaskNotCancelable,
    PushNotSupported,
    UnsupportedOperation,
    /// A part of the message has a media type that the executor cannot use.
    ContentTypeNotSupported,
    /// The body itself is not declared as JSON.
    BodyNotJson,
    ExtensionSupportRequired,
    VersionNotSupported,
    /// The message is compressed. Only in gRPC, where the client may compress it without asking.
    EncodingNotSupported,
    /// The caller has no token that the server knows. Only in gRPC; the other bindings leave it to HTTP.
    Unauthenticated,
    /// Another site's page sent the request, or it uses a name that is not this server's.
    Forbidden,
    /// The request names no host, or several.
    Misaddressed,
    /// The body exceeds the limit.
    TooLarge,
    /// The body did not arrive in time, or the answer was not there in the time that the caller gave it.
    TooSlow,
    /// The server is at its limit; the same request may succeed later.
    Busy,
}

/// A rejected request, which changed nothing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rejection {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) violation: Option<Violation>,
    /// Seconds after which a retry makes sense.
    pub(crate) retry_after: Option<u32>,
}

/// The domain of the reasons that A2A defines.
const A2A: &str = "a2a-protocol.org";
/// The domain of our own reasons.
const OURS: &str = "talaria";

/// Turns last seconds to minutes, so an earlier retry would only add load.
const RETRY_BUSY: u32 = 1;
/// A full store has room again once old tasks are deleted, which happens once a minute.
const RETRY_FULL: u32 = 60;
/// A host that shuts down is usually back, or replaced, once it has drained.
const RETRY_DRAINING: u32 = 5;

// === impl ErrorKind ===

impl ErrorKind {
    /// The JSON-RPC code. A2A reserves -32001 to -32099, which leaves -32000 for our own.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Malformed => -32700,
            Self::InvalidRequest
            | Self::EncodingNotSupported
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::Misaddressed
            | Self::TooLarge
            | Self::TooSlow => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal => -32603,
            Self::Busy => -32000,
            Self::TaskNotFound => -32001,
            Self::TaskNotCancelable => -32002,
            Self::PushNotSupported => -32003,
            Self::UnsupportedOperation => -32004,
            Self::ContentTypeNotSupported | Self::BodyNotJson => -32005,
            Self::ExtensionSupportRequired => -32008,
            Self::VersionNotSupported => -32009,
        }
    }

    /// `reason` and `domain` of `google.rpc.ErrorInfo`.
    pub(crate) fn reason(self) -> (&'static str, &'static str) {
        match self {
            Self::Malformed => ("PARSE_ERROR", A2A),
            Self::InvalidRequest | Self::Misaddressed => ("INVALID_REQUEST", A2A),
            Self::MethodNotFound => ("METHOD_NOT_FOUND", A2A),
            Self::InvalidParams => ("INVALID_PARAMS", A2A),
            Self::Internal => ("INTERNAL_ERROR", A2A),
            Self::TaskNotFound => ("TASK_NOT_FOUND", A2A),
            Self::TaskNotCancelable => ("TASK_NOT_CANCELABLE", A2A),
            Self::PushNotSupported => ("PUSH_NOTIFICATION_NOT_SUPPORTED", A2A),
            Self::UnsupportedOperation => ("UNSUPPORTED_OPERATION", A2A),
            Self::ContentTypeNotSupported | Self::BodyNotJson => ("CONTENT_TYPE_NOT_SUPPORTED", A2A),
            Self::ExtensionSupportRequired => ("EXTENSION_SUPPORT_REQUIRED", A2A),
            Self::VersionNotSupported => ("VERSION_NOT_SUPPORTED", A2A),
            Self::EncodingNotSupported => ("ENCODING_NOT_SUPPORTED", OURS),
            Self::Unauthenticated => ("UNAUTHENTICATED", OURS),
            Self::Forbidden => ("FORBIDDEN", OURS),
            Self::TooLarge => ("REQUEST_TOO_LARGE", OURS),
            Self::TooSlow => ("REQUEST_TOO_SLOW", OURS),
            Self::Busy => ("BUSY", OURS),
        }
    }

    /// The name of its class in the SDKs.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Malformed
            | Self::InvalidRequest
            | Self::EncodingNotSupported
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::Misaddressed
            | Self::TooLarge
            | Self::TooSlow => "InvalidRequestError",
            Self::MethodNotFound => "MethodNotFoundError",
            Self::InvalidParams => "InvalidParamsError",
            Self::Internal | Self::Busy => "InternalError",
            Self::TaskNotFound => "TaskNotFoundError",
            Self::TaskNotCancelable => "TaskNotCancelableError",
            Self::PushNotSupported => "PushNotificationNotSupportedError",
            Self::UnsupportedOperation => "UnsupportedOperationError",
            Self::ContentTypeNotSupported | Self::BodyNotJson => "ContentTypeNotSupportedError",
            Self::ExtensionSupportRequired => "ExtensionSupportRequiredError",
            Self::VersionNotSupported => "VersionNotSupportedError",
        }
    }

    /// The HTTP status over JSON-RPC, which is 200 unless HTTP itself failed.
    ///
    /// It is never 502, 503 or 504: the platform takes those for a dead agent and may restart its container.
    pub(crate) fn jsonrpc_status(self) -> StatusCode {
        match self {
            Self::BodyNotJson | Self::EncodingNotSupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::Misaddressed => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::OK,
        }
    }

    /// The HTTP status over HTTP+JSON, and its name in `google.rpc.Code`.
    pub(crate) fn rest_status(self) -> (StatusCode, &'static str) {
        match self {
            Self::Malformed
            | Self::InvalidRequest
            | Self::InvalidParams
            | Self::ContentTypeNotSupported
            | Self::Misaddressed => (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT"),
            Self::BodyNotJson | Self::EncodingNotSupported => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "INVALID_ARGUMENT")
            }
            Self::Unauthenticated => (StatusCode::UNAUTHORIZED, "UNAUTHENTICATED"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "PERMISSION_DENIED"),
            Self::TaskNotCancelable
            | Self::PushNotSupported
            | Self::UnsupportedOperation
            | Self::ExtensionSupportRequired
            | Self::VersionNotSupported => (StatusCode::BAD_REQUEST, "FAILED_PRECONDITION"),
            Self::TaskNotFound | Self::MethodNotFound => (StatusCode::NOT_FOUND, "NOT_FOUND"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "INVALID_ARGUMENT"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "DEADLINE_EXCEEDED"),
            Self::Busy => (StatusCode::TOO_MANY_REQUESTS, "RESOURCE_EXHAUSTED"),
        }
    }
}

// === impl Rejection ===

impl Rejection {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), violation: None, retry_after: None }
    }

    /// Parameters that are well formed but do not fit what is stored.
    pub(crate) fn field(field: &str, description: impl Into<String>) -> Self {
        let description = description.into();
        let violation = Violation { field: field.to_owned(), description: description.clone() };
        Self { violation: Some(violation), ..Self::new(ErrorKind::InvalidParams, description) }
    }

    fn busy(message: impl Into<String>, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..Self::new(ErrorKind::Busy, message) }
    }

    /// A caller that has as much as its share.
    fn over_share(over: &OverShare) -> Self {
        // Rounded up, so that a retry at that time succeeds.
        let seconds = over.retry_after().as_millis().div_ceil(1_000).max(1);
        Self::busy(over.to_string(), u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    pub(crate) fn no_push() -> Self {
        Self::new(ErrorKind::PushNotSupported, "this server sends no push notifications")
    }

    /// A caller without a token that the server knows.
    pub(crate) fn unauthenticated() -> Self {
        let message = "this server needs a token that it knows: Authorization: Bearer TOKEN";
        Self::new(ErrorKind::Unauthenticated, message)
    }

    /// An answer that was not there before the caller's deadline.
    pub(crate) fn too_late() -> Self {
        let message = "the answer was not there within grpc-timeout; a task that was accepted carries on";
        Self::new(ErrorKind::TooSlow, message)
    }

    /// A list for a caller without a name, which would show the tasks of all the others.
    pub(crate) fn no_list() -> Self {
        let message = "this server lists tasks only for callers with a token; name a task by its id instead";
        Self::new(ErrorKind::UnsupportedOperation, message)
    }

    /// A body whose media type is absent or not JSON.
    pub(crate) fn body_not_json() -> Self {
        let message = "the body must be declared as JSON: Content-Type: application/json, or another type that ends in +json";
        Self::new(ErrorKind::BodyNotJson, message)
    }

    /// An unknown push configuration. The protocol has no error of its own for it.
    pub(crate) fn no_push_config(task: &TaskId) -> Self {
        Self::new(ErrorKind::TaskNotFound, format!("task {task} has no such push notification configuration"))
    }

    /// A push configuration that could not be set, for `task` if it exists already.
    pub(crate) fn push_config(task: Option<&TaskId>, error: &PushError) -> Self {
        match (error, task) {
            (PushError::Unsupported, _) => Self::no_push(),
            (PushError::Refused(why), _) => Self::field("url", why),
            (PushError::TooMany(_), _) => Self::new(ErrorKind::UnsupportedOperation, error.to_string()),
            (PushError::OverShare(over), _) => Self::over_share(over),
            (PushError::Store(error), Some(task)) => Self::lookup(task, error),
            (PushError::Store(error), None) => Self::store(error),
            (PushError::NoSuchConfig(_), _) => Self::new(ErrorKind::TaskNotFound, error.to_string()),
        }
    }

    pub(crate) fn no_task(task: &TaskId) -> Self {
        Self::new(ErrorKind::TaskNotFound, format!("task {task} not found"))
    }

    /// A failed read or write of the store.
    pub(crate) fn store(error: &StoreError) -> Self {
        match error {
            StoreError::Full(_) => return Self::busy(error.to_string(), RETRY_FULL),
            StoreError::NoMemory(full) => return (*full).into(),
            _ => {}
        }
        warn!(%error, "store failed a request");
        Self::new(ErrorKind::Internal, "the task could not be stored or read; the host's log says why")
    }

    /// A task that does not exist or could not be read.
    pub(crate) fn lookup(task: &TaskId, error: &StoreError) -> Self {
        match error {
            StoreError::NotFound => Self::no_task(task),
            error => Self::store(error),
        }
    }

    /// A task that cannot be followed.
    pub(crate) fn follow(task: &TaskId, error: FollowError) -> Self {
        let message = error.to_string();
        match error {
            FollowError::Over { .. } => Self::new(ErrorKind::UnsupportedOperation, message),
            FollowError::NoSuchEvent { .. } => Self::field("Last-Event-ID", message),
            FollowError::Store(error) => Self::lookup(task, &error),
        }
    }

    /// Encodes the error for HTTP+JSON. Clients of 0.3 look for the message at the top level, beside the class of the error
    /// (Python) or its JSON-RPC code (JavaScript).
    pub(crate) fn rest_body(&self, version: Version) -> Value {
        let (status, name) = self.kind.rest_status();
        let mut body = json!({ "error": {
            "code": status.as_u16(), "status": name, "message": self.message, "details": self.details(),
        } });
        if version == Version::V03
            && let Some(body) = body.as_object_mut()
        {
            body.insert("type".into(), self.kind.class().into());
            body.insert("code".into(), self.kind.code().into());
            body.insert("message".into(), self.message.as_str().into());
        }
        body
    }

    /// Encodes the error for JSON-RPC.
    pub(crate) fn jsonrpc_body(&self, id: &Value) -> Value {
        let error = json!({ "code": self.kind.code(), "message": self.message, "data": self.details() });
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }

    /// The typed details of the error: `data` in JSON-RPC, `details` in HTTP+JSON.
    pub(crate) fn details(&self) -> Value {
        let (reason, domain) = self.kind.reason();
        let mut info = json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": domain,
            "metadata": {},
        });
        if let Some(seconds) = self.retry_after
            && let Some(metadata) = info.get_mut("metadata")
        {
            *metadata = json!({ "retryAfter": seconds.to_string() });
        }
        let mut details = vec![info];
        if let Some(Violation { field, description }) = &self.violation {
            details.push(json!({
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{ "field": field, "description": description }],
            }));
        }
        if let Some(seconds) = self.retry_after {
            details.push(json!({
                "@type": "type.googleapis.com/google.rpc.RetryInfo",
                "retryDelay": format!("{seconds}s"),
            }));
        }
        Value::Array(details)
    }
}

impl From<Violation> for Rejection {
    fn from(violation: Violation) -> Self {
        let message = format!("{} {}", violation.field, violation.description);
        Self { violation: Some(violation), ..Self::new(ErrorKind::InvalidParams, message) }
    }
}

impl From<Full> for Rejection {
    fn from(full: Full) -> Self {
        Self::busy(full.to_string(), RETRY_BUSY)
    }
}

impl From<SendError> for Rejection {
    fn from(error: SendError) -> Self {
        let message = error.to_string();
        match error {
            SendError::TaskNotFound(task) => Self::no_task(&task),
            SendError::TaskOver { .. } | SendError::ApprovalNeedsName(_) => {
                Self::new(ErrorKind::UnsupportedOperation, message)
            }
            SendError::ContextMismatch { .. } => Self::field("message.contextId", message),
            SendError::HistoryFull { .. } | SendError::TaskTooLarge { .. } => {
                Self::field("message.taskId", message)
            }
            SendError::NoExecutor(NoExecutor::Refused(_)) | SendError::Hops(_) => {
                Self::field("message.metadata", message)
            }
            SendError::NoExecutor(NoExecutor::Unavailable(_) | NoExecutor::OutOfService { .. }) => {
                Self::new(ErrorKind::Internal, message)
            }
            SendError::NoExecutor(NoExecutor::Media(_)) => {
                Self::new(ErrorKind::ContentTypeNotSupported, message)
            }
            SendError::TooLarge(_) => Self::new(ErrorKind::TooLarge, message),
            SendError::Busy(_) | SendError::LaneFull(_) | SendError::NoMemory(_) => {
                Self::busy(message, RETRY_BUSY)
            }
            SendError::OverShare(over) => Self::over_share(&over),
            SendError::Draining => Self::busy(message, RETRY_DRAINING),
            SendError::Push(error) => Self::push_config(None, &error),
            SendError::Store(error) => Self::store(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_hold_the_reason_the_field_and_when_to_retry() {
        let violation =
            Violation { field: "message.parts[0]".into(), description: "must be an object".into() };
        let rejection = Rejection::from(violation);
        assert_eq!(rejection.message, "message.parts[0] must be an object");
        assert_eq!(
            rejection.details(),
            json!([
                { "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "INVALID_PARAMS", "domain": A2A, "metadata": {} },
                {
                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                    "fieldViolations": [{ "field": "message.parts[0]", "description": "must be an object" }],
                },
            ])
        );
        let details = Rejection::from(SendError::Busy(3)).details();
        assert_eq!(details[0]["metadata"], json!({ "retryAfter": "1" }));
        assert_eq!(details[1]["retryDelay"], "1s");
        let draining = Rejection::from(SendError::Draining);
        assert_eq!(
            draining.kind.jsonrpc_status(),
            StatusCode::TOO_MANY_REQUESTS,
            "not a status that means a dead agent"
        );
    }

    #[test]
    fn a_caller_over_its_share_and_a_full_store_are_told_when_to_retry() {
        let wait = std::time::Duration::from_millis(2_400);
        let cases = [
            (SendError::OverShare(OverShare::Turns(3)), 1, "`limits.caller.turns`"),
            (OverShare::Rate { limit: 9, wait }.into(), 3, "`limits.caller.turns_per_minute`"),
            (OverShare::Tasks { tasks: 9, limit: 7 }.into(), 10, "`limits.caller.tasks`"),
            (OverShare::Bytes { bytes: 9, limit: 7 }.into(), 10, "`limits.caller.bytes`"),
            (
                SendError::Push(OverShare::Webhooks { limit: 9, wait }.into()),
                3,
                "`limits.caller.webhooks_per_minute`",
            ),
            (StoreError::Full("raise `store.max_size`".into()).into(), 60, "`store.max_size`"),
            (Full::Caller.into(), 1, "`limits.caller.memory`"),
        ];
        for (error, seconds, key) in cases {
            let rejection = Rejection::from(error);
            assert_eq!((rejection.kind, rejection.retry_after), (ErrorKind::Busy, Some(seconds)));
            assert!(rejection.message.contains(key), "{}", rejection.message);
        }
    }

    #[test]
    fn the_error_of_a_store_stays_in_the_log() {
        let rejection =
            Rejection::from(SendError::Store(StoreError::Unavailable("/var/lib/secret.db".into())));
        assert_eq!(rejection.kind, ErrorKind::Internal);
        assert!(!rejection.message.contains("secret"));
    }
}
