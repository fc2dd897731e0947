//! Why a request was refused, in words and in the codes of the protocol.
//!
//! Two faces: what the caller reads is in the [`Refusal`]; what only the operator may read (a store's own error) goes
//! to the log where the refusal is made, and nowhere else.

use http::StatusCode;
use serde_json::{Value, json};
use talaria_turns::{FollowError, HookError, NoExecutor, SendError, StoreError, TaskId};
use tracing::warn;

use crate::version::Version;

/// A field that is not as it must be. The two texts make a sentence: `message.parts` + `must not be empty`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) field: String,
    pub(crate) description: String,
}

/// What kind of refusal; fixes the code, the reason and the HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    NotJson,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    TaskNotFound,
    TaskNotCancelable,
    PushNotSupported,
    UnsupportedOperation,
    ContentTypeNotSupported,
    ExtensionSupportRequired,
    VersionNotSupported,
    /// The body is over the bound.
    TooLarge,
    /// The body did not come in time.
    TooSlow,
    /// No room now; the same request may succeed later.
    Busy,
}

/// A request refused: nothing was changed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) kind: Kind,
    pub(crate) message: String,
    pub(crate) violation: Option<Violation>,
    /// Seconds after which it is worth trying again.
    pub(crate) retry_after: Option<u32>,
}

/// The domain of A2A's own reasons.
const A2A: &str = "a2a-protocol.org";
/// The domain of the reasons that A2A has no name for.
const OURS: &str = "talaria";

/// Turns last seconds to minutes: asking again much sooner only adds to the load.
const RETRY_BUSY: u32 = 1;
/// A host that shuts down is usually back, or replaced, after its drain.
const RETRY_DRAINING: u32 = 5;

// === impl Kind ===

impl Kind {
    /// The JSON-RPC code. A2A reserves -32001 to -32099; -32000 is the one server code left to us.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::NotJson => -32700,
            Self::InvalidRequest | Self::TooLarge | Self::TooSlow => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal => -32603,
            Self::Busy => -32000,
            Self::TaskNotFound => -32001,
            Self::TaskNotCancelable => -32002,
            Self::PushNotSupported => -32003,
            Self::UnsupportedOperation => -32004,
            Self::ContentTypeNotSupported => -32005,
            Self::ExtensionSupportRequired => -32008,
            Self::VersionNotSupported => -32009,
        }
    }

    /// `reason` and `domain` of `google.rpc.ErrorInfo`.
    fn reason(self) -> (&'static str, &'static str) {
        match self {
            Self::NotJson => ("PARSE_ERROR", A2A),
            Self::InvalidRequest => ("INVALID_REQUEST", A2A),
            Self::MethodNotFound => ("METHOD_NOT_FOUND", A2A),
            Self::InvalidParams => ("INVALID_PARAMS", A2A),
            Self::Internal => ("INTERNAL_ERROR", A2A),
            Self::TaskNotFound => ("TASK_NOT_FOUND", A2A),
            Self::TaskNotCancelable => ("TASK_NOT_CANCELABLE", A2A),
            Self::PushNotSupported => ("PUSH_NOTIFICATION_NOT_SUPPORTED", A2A),
            Self::UnsupportedOperation => ("UNSUPPORTED_OPERATION", A2A),
            Self::ContentTypeNotSupported => ("CONTENT_TYPE_NOT_SUPPORTED", A2A),
            Self::ExtensionSupportRequired => ("EXTENSION_SUPPORT_REQUIRED", A2A),
            Self::VersionNotSupported => ("VERSION_NOT_SUPPORTED", A2A),
            Self::TooLarge => ("REQUEST_TOO_LARGE", OURS),
            Self::TooSlow => ("REQUEST_TOO_SLOW", OURS),
            Self::Busy => ("BUSY", OURS),
        }
    }

    /// The name of the class that the SDKs have for it.
    fn class(self) -> &'static str {
        match self {
            Self::NotJson | Self::InvalidRequest | Self::TooLarge | Self::TooSlow => "InvalidRequestError",
            Self::MethodNotFound => "MethodNotFoundError",
            Self::InvalidParams => "InvalidParamsError",
            Self::Internal | Self::Busy => "InternalError",
            Self::TaskNotFound => "TaskNotFoundError",
            Self::TaskNotCancelable => "TaskNotCancelableError",
            Self::PushNotSupported => "PushNotificationNotSupportedError",
            Self::UnsupportedOperation => "UnsupportedOperationError",
            Self::ContentTypeNotSupported => "ContentTypeNotSupportedError",
            Self::ExtensionSupportRequired => "ExtensionSupportRequiredError",
            Self::VersionNotSupported => "VersionNotSupportedError",
        }
    }

    /// The HTTP status that carries it over JSON-RPC: 200, unless HTTP itself is what went wrong.
    ///
    /// Never 502, 503 or 504: the platform takes those for a dead agent and may restart its container.
    pub(crate) fn jsonrpc_status(self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::OK,
        }
    }

    /// The HTTP status over HTTP+JSON, and the name that `google.rpc.Code` has for it.
    pub(crate) fn rest_status(self) -> (StatusCode, &'static str) {
        match self {
            Self::NotJson | Self::InvalidRequest | Self::InvalidParams | Self::ContentTypeNotSupported => {
                (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT")
            }
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

// === impl Refusal ===

impl Refusal {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), violation: None, retry_after: None }
    }

    /// Invalid parameters that were read well enough, but do not fit what is stored.
    pub(crate) fn field(field: &str, description: impl Into<String>) -> Self {
        let description = description.into();
        let violation = Violation { field: field.to_owned(), description: description.clone() };
        Self { violation: Some(violation), ..Self::new(Kind::InvalidParams, description) }
    }

    fn busy(message: impl Into<String>, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..Self::new(Kind::Busy, message) }
    }

    pub(crate) fn no_push() -> Self {
        Self::new(Kind::PushNotSupported, "this server sends no push notifications")
    }

    /// The protocol has no error of its own for it.
    pub(crate) fn no_hook(task: &TaskId) -> Self {
        Self::new(Kind::TaskNotFound, format!("task {task} has no such push notification configuration"))
    }

    /// A push configuration that was not set; `task` is where it was to be.
    pub(crate) fn hook(task: Option<&TaskId>, error: &HookError) -> Self {
        match (error, task) {
            (HookError::Unsupported, _) => Self::no_push(),
            (HookError::Refused(why), _) => Self::field("url", why),
            (HookError::TooMany(_), _) => Self::new(Kind::UnsupportedOperation, error.to_string()),
            (HookError::Store(error), Some(task)) => Self::lookup(task, error),
            (HookError::Store(error), None) => Self::store(error),
            (HookError::NoSuchHook(_), _) => Self::new(Kind::TaskNotFound, error.to_string()),
        }
    }

    pub(crate) fn no_task(task: &TaskId) -> Self {
        Self::new(Kind::TaskNotFound, format!("task {task} not found"))
    }

    /// A read or write that the store did not do.
    pub(crate) fn store(error: &StoreError) -> Self {
        warn!(%error, "the store failed a request");
        Self::new(Kind::Internal, "the task could not be stored or read; the host's log says why")
    }

    /// A task that could not be found or read.
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
            FollowError::Over { .. } => Self::new(Kind::UnsupportedOperation, message),
            FollowError::NoSuchEvent { .. } => Self::field("Last-Event-ID", message),
            FollowError::Store(error) => Self::lookup(task, &error),
        }
    }

    /// The error as HTTP+JSON has it. Clients of 0.3 look for the message at the top, beside the error's class (Python) or
    /// its code in JSON-RPC (JavaScript).
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

    /// The error as JSON-RPC has it.
    pub(crate) fn jsonrpc_body(&self, id: &Value) -> Value {
        let error = json!({ "code": self.kind.code(), "message": self.message, "data": self.details() });
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }

    /// What `data` holds: an array of typed details.
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

impl From<Violation> for Refusal {
    fn from(violation: Violation) -> Self {
        let message = format!("{} {}", violation.field, violation.description);
        Self { violation: Some(violation), ..Self::new(Kind::InvalidParams, message) }
    }
}

impl From<SendError> for Refusal {
    fn from(error: SendError) -> Self {
        let message = error.to_string();
        match error {
            SendError::TaskNotFound(task) => Self::no_task(&task),
            SendError::TaskOver { .. } => Self::new(Kind::UnsupportedOperation, message),
            SendError::ContextMismatch { .. } => Self::field("message.contextId", message),
            SendError::HistoryFull { .. } => Self::field("message.taskId", message),
            SendError::NoExecutor(NoExecutor::Refused(_)) => Self::field("message.metadata", message),
            SendError::NoExecutor(NoExecutor::Unavailable(_) | NoExecutor::OutOfService { .. }) => {
                Self::new(Kind::Internal, message)
            }
            SendError::NoExecutor(NoExecutor::Media(_)) => Self::new(Kind::ContentTypeNotSupported, message),
            SendError::Busy(_) | SendError::LaneFull(_) => Self::busy(message, RETRY_BUSY),
            SendError::Draining => Self::busy(message, RETRY_DRAINING),
            SendError::Hook(error) => Self::hook(None, &error),
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
        let refusal = Refusal::from(violation);
        assert_eq!(refusal.message, "message.parts[0] must be an object");
        assert_eq!(
            refusal.details(),
            json!([
                { "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "INVALID_PARAMS", "domain": A2A, "metadata": {} },
                {
                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                    "fieldViolations": [{ "field": "message.parts[0]", "description": "must be an object" }],
                },
            ])
        );
        let details = Refusal::from(SendError::Busy(3)).details();
        assert_eq!(details[0]["metadata"], json!({ "retryAfter": "1" }));
        assert_eq!(details[1]["retryDelay"], "1s");
        let draining = Refusal::from(SendError::Draining);
        assert_eq!(
            draining.kind.jsonrpc_status(),
            StatusCode::TOO_MANY_REQUESTS,
            "never a code for a dead agent"
        );
    }

    #[test]
    fn a_stores_own_words_stay_in_the_log() {
        let refusal = Refusal::from(SendError::Store(StoreError::Unavailable("/var/lib/secret.db".into())));
        assert_eq!(refusal.kind, Kind::Internal);
        assert!(!refusal.message.contains("secret"));
    }
}
