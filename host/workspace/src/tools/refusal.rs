//! Why a tool did not do what it was asked: an ordinary result with the reason and the next step.
//!
//! A refusal is never an error of the protocol. Agents stop calling a server after a few errors in a row, and a model can
//! act only on what it reads.

use serde_json::json;
use talaria_redact::Redactor;

use crate::platform::CallError;

/// Why a tool did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: String,
    pub(super) next: &'static str,
    /// Whether the platform or the store failed; otherwise the call itself is at fault or not allowed.
    pub(super) is_failure: bool,
}

// === impl Refusal ===

impl Refusal {
    /// The call is wrong or not allowed.
    pub(super) fn new(reason: impl Into<String>, next: &'static str) -> Self {
        Self { reason: reason.into(), next, is_failure: false }
    }

    /// Something that the host needs failed.
    pub(super) fn failure(reason: impl Into<String>, next: &'static str) -> Self {
        Self { reason: reason.into(), next, is_failure: true }
    }

    /// The text for the model.
    pub(super) fn text(&self) -> String {
        let status = if self.is_failure { "failed" } else { "refused" };
        let reason = Redactor::process().all(&self.reason).into_owned();
        json!({ "status": status, "reason": reason, "next_step": self.next }).to_string()
    }
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        const LATER: &str = "go on without it, and try again in a minute or two";
        match &error {
            CallError::Down(_) | CallError::Silent(_) => {
                Self::failure(format!("the platform did not answer: {error}"), LATER)
            }
            CallError::NotJson(_) => {
                Self::failure(format!("the platform's answer cannot be used: {error}"), LATER)
            }
            CallError::Rejected { status: 401, .. } => Self::failure(
                format!("the platform does not accept this workspace's token: {error}"),
                "tell the user that the workspace must be restarted from the platform",
            ),
            CallError::Rejected { status: 403, .. } => Self::new(
                format!("the platform does not allow it: {error}"),
                "do not try again; find another way, or tell the user",
            ),
            CallError::Rejected { status: 404 | 405 | 410 | 501, .. } => Self::new(
                format!("the platform does not have this: {error}"),
                "do not try again; go on without it",
            ),
            CallError::Rejected { status: 400 | 409 | 413 | 422, .. } => {
                Self::new(format!("the platform rejected it: {error}"), "correct the arguments")
            }
            CallError::Rejected { .. } => Self::failure(format!("the platform failed: {error}"), LATER),
        }
    }
}
