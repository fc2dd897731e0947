//! The status of a call: a code of gRPC, a message, and the details of `google.rpc` in `grpc-status-details-bin`.
//!
//! Fields have the names of the proto (`message.message_id`). A client of 0.3 reads no details; it finds the class of the error
//! at the beginning of the message.

use std::collections::HashMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::json_fields::snake_case;
use crate::rejection::{ErrorKind, Rejection, Violation};
use crate::version::Version;

// === impl ErrorKind ===

impl ErrorKind {
    /// The code of gRPC.
    fn grpc_code(self) -> Code {
        match self {
            Self::Malformed
            | Self::InvalidRequest
            | Self::InvalidParams
            | Self::ContentTypeNotSupported
            | Self::BodyNotJson
            | Self::Misaddressed => Code::InvalidArgument,
            Self::MethodNotFound | Self::EncodingNotSupported => Code::Unimplemented,
            Self::Internal => Code::Internal,
            Self::TaskNotFound => Code::NotFound,
            Self::TaskNotCancelable
            | Self::PushNotSupported
            | Self::UnsupportedOperation
            | Self::ExtensionSupportRequired
            | Self::VersionNotSupported => Code::FailedPrecondition,
            Self::Unauthenticated => Code::Unauthenticated,
            Self::Forbidden => Code::PermissionDenied,
            Self::TooLarge | Self::Busy => Code::ResourceExhausted,
            Self::TooSlow => Code::DeadlineExceeded,
        }
    }
}

/// Encodes a rejection for a caller of this version.
pub(crate) fn of(rejection: &Rejection, version: Version) -> Status {
    let Rejection { kind, message, violation, retry_after } = rejection;
    let (reason, domain) = kind.reason();
    let metadata = retry_after.map(|seconds| ("retryAfter".to_owned(), seconds.to_string()));
    let mut details =
        ErrorDetails::with_error_info(reason, domain, metadata.into_iter().collect::<HashMap<_, _>>());
    let mut message = message.clone();
    if let Some(Violation { field, description }) = violation {
        let name = proto_name(field);
        message = message.replacen(field.as_str(), &name, 1);
        details.add_bad_request_violation(name, description);
    }
    if let Some(seconds) = retry_after {
        details.set_retry_info(Some(Duration::from_secs(u64::from(*seconds))));
    }
    if version == Version::V03 {
        message = format!("{}: {message}", kind.class());
    }
    Status::with_error_details(kind.grpc_code(), message, details)
}

/// The path of a field as the proto spells it. Metadata has names of its own.
fn proto_name(field: &str) -> String {
    if field.contains('-') { field.to_ascii_lowercase() } else { snake_case(field) }
}

#[cfg(test)]
mod tests {
    use talaria_turns::SendError;

    use super::*;

    #[test]
    fn a_status_has_the_field_the_reason_and_when_to_retry() {
        let violation =
            Violation { field: "message.parts[0].mediaType".into(), description: "must be x".into() };
        let status = of(&violation.into(), Version::V1);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), "message.parts[0].media_type must be x");
        let details = status.get_error_details();
        let violations = &details.bad_request().unwrap().field_violations;
        assert_eq!(
            (&*violations[0].field, &*violations[0].description),
            ("message.parts[0].media_type", "must be x")
        );
        let info = details.error_info().unwrap();
        assert_eq!((&*info.reason, &*info.domain), ("INVALID_PARAMS", "a2a-protocol.org"));

        let status = of(&SendError::Busy(3).into(), Version::V03);
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().starts_with("InternalError: "), "{}", status.message());
        let details = status.get_error_details();
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
        assert_eq!(proto_name("Last-Event-ID"), "last-event-id");
    }
}
