//! The status of a run, which decides how the run ended.

use serde_json::Value;
use talaria_guest::{Failure, Outcome, Usage, http};

use super::approval::Request;
use crate::hermes_agent::{self, NO_CONTENT, error_status};
use crate::{is_success, text, usage};

/// The status of a run.
pub(super) enum Status {
    Ended(End),
    /// The run waits for an approval.
    Waiting {
        /// The time at which it began to wait.
        mark: String,
        /// What it wants to do, where the gateway says so.
        request: Option<Request>,
    },
    Working,
    /// The status could not be read this time.
    Unreadable(Failure),
}

/// The end of a run.
pub(super) struct End {
    pub(super) decided: Decided,
    pub(super) output: Option<String>,
    pub(super) error: Option<String>,
    usage: Option<Usage>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Decided {
    Completed,
    Failed,
    Cancelled,
}

impl Status {
    /// Reads a status. A run that the gateway does not know any more is a failure, and so is a key that it rejects.
    pub(super) fn read(response: &http::Response) -> Result<Self, Failure> {
        if response.status == 404 {
            return Err(hermes_agent::error("gateway restarted: it does not know the run any more"));
        }
        if !is_success(response.status) {
            let failure = error_status(response.status, &response.body);
            return if failure.retryable { Ok(Self::Unreadable(failure)) } else { Err(failure) };
        }
        Ok(Self::parse(&serde_json::from_slice(&response.body).unwrap_or_default()))
    }

    fn parse(data: &Value) -> Self {
        let decided = match text(data, "/status").as_deref() {
            Some("completed") => Decided::Completed,
            Some("failed") => Decided::Failed,
            Some("cancelled" | "interrupted") => Decided::Cancelled,
            // The gateway keeps saying so after the wait; the last event tells whether the wait is over.
            Some("waiting_for_approval")
                if text(data, "/last_event").as_deref() == Some("approval.request") =>
            {
                let mark = data.get("updated_at").map(ToString::to_string).unwrap_or_default();
                let request = data.get("approval").filter(|approval| approval.is_object()).map(Request::of);
                return Self::Waiting { mark, request };
            }
            Some(_) => return Self::Working,
            None => return Self::Unreadable(hermes_agent::error("the run's status makes no sense")),
        };
        Self::Ended(End::new(decided, data))
    }
}

impl End {
    /// The end of a run as an event, or a status, has it.
    pub(super) fn new(decided: Decided, data: &Value) -> Self {
        Self {
            decided,
            output: text(data, "/output"),
            error: text(data, "/error"),
            usage: usage(data, "/usage/input_tokens", "/usage/output_tokens"),
        }
    }

    /// What the turn returns.
    pub(super) fn outcome(self) -> Result<Outcome, Failure> {
        match self.decided {
            Decided::Completed => {
                let text =
                    self.output.filter(|output| !output.is_empty()).unwrap_or_else(|| NO_CONTENT.into());
                Ok(Outcome { usage: self.usage, ..Outcome::text(text) })
            }
            Decided::Failed => Err(hermes_agent::error(self.error.as_deref().unwrap_or("the run failed"))),
            Decided::Cancelled => Err(hermes_agent::error("the run was cancelled at the gateway")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn brief(status: u16, body: &str) -> String {
        let response = http::Response { status, headers: Vec::new(), body: body.into() };
        match Status::read(&response) {
            Ok(Status::Ended(end)) => match end.outcome() {
                Ok(outcome) => format!("{} {}", outcome.parts.len(), outcome.usage.is_some()),
                Err(failure) => failure.message,
            },
            Ok(Status::Waiting { mark, request }) => format!("waiting since {mark} {}", request.is_some()),
            Ok(Status::Working) => "working".into(),
            Ok(Status::Unreadable(failure)) => format!("unreadable: {}", failure.message),
            Err(failure) => format!("failed: {}", failure.message),
        }
    }

    #[test]
    fn every_status_of_a_run_is_told_apart() {
        let usage = json!({ "input_tokens": 11, "output_tokens": 7 });
        for (status, body, expected) in [
            (200, json!({ "status": "queued" }), "working"),
            (200, json!({ "status": "running" }), "working"),
            (200, json!({ "status": "stopping" }), "working"),
            (200, json!({ "status": "of a later gateway" }), "working"),
            (200, json!({ "status": "completed", "output": "hi", "usage": usage }), "1 true"),
            (200, json!({ "status": "completed" }), "1 false"),
            (200, json!({ "status": "failed", "error": "no" }), "[hermes-agent error] no"),
            (200, json!({ "status": "failed" }), "[hermes-agent error] the run failed"),
            (
                200,
                json!({ "status": "interrupted" }),
                "[hermes-agent error] the run was cancelled at the gateway",
            ),
            (
                200,
                json!({ "status": "waiting_for_approval", "last_event": "approval.request", "updated_at": 1.5 }),
                "waiting since 1.5 false",
            ),
            (
                200,
                json!({ "status": "waiting_for_approval", "last_event": "approval.request", "approval": {} }),
                "waiting since  true",
            ),
            (200, json!({ "status": "waiting_for_approval", "last_event": "tool.started" }), "working"),
            (200, json!([]), "unreadable: [hermes-agent error] the run's status makes no sense"),
            (503, json!(1), "unreadable: [hermes-agent error 503] 1"),
            (401, json!(1), "failed: [hermes-agent error 401] 1"),
            (
                404,
                json!({}),
                "failed: [hermes-agent error] gateway restarted: it does not know the run any more",
            ),
        ] {
            let body = body.to_string();
            assert_eq!(brief(status, &body), expected, "{status} {body}");
        }
    }
}
