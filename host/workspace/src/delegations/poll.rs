//! Sends delegations, and looks for their answers.
//!
//! The platform's list of delegations cuts answers at 300 bytes, so answers are read from its activity log. The log is read
//! from the time of the oldest open delegation on, without a cursor: the platform rewrites rows after it has shown them, and
//! forgets cursors. If the log cannot be read, the list shows at least how a delegation ended; its short answer is taken after
//! [`FAILURES`] failures in a row.
//!
//! A workspace that polls for its messages never answers this way. The platform reports such a delegation as completed, with
//! its own receipt as the text; it counts as open, until its deadline.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_turns::{Delegation, DelegationState, Timestamp};
use tracing::warn;

use super::Delegations;
use crate::platform::CallError;

/// The time that a call may take.
const WITHIN: Duration = Duration::from_secs(10);

/// Seconds before the oldest open delegation from which the log is read, since clocks differ.
const SLACK: u64 = 300;

/// Failures to read the log after which a short answer is better than none.
const FAILURES: u32 = 3;

/// The length at which the platform cuts answers in its list.
const PREVIEW: usize = 300;

/// The end of a delegation, as the platform reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct End {
    state: DelegationState,
    text: String,
}

// === impl Delegations ===

impl Delegations {
    /// Sends what was not sent, and ends what has an answer or is past its deadline. Counts failures to read the log.
    pub(super) async fn poll(&self, failures: &mut u32) {
        let open: Vec<Delegation> = {
            let state = self.state();
            state.known.values().filter(|one| one.state.is_open()).cloned().collect()
        };
        for one in open.iter().filter(|one| one.state == DelegationState::Sending) {
            // A call that has just made it sends it.
            if !self.state().awaited.contains_key(&one.id) {
                self.send(one).await;
            }
        }
        let working: Vec<&Delegation> = open.iter().filter(|one| one.remote.is_some()).collect();
        if !working.is_empty() {
            let ends = self.ends(&working, failures).await;
            for one in &working {
                let end = one.remote.as_ref().and_then(|remote| ends.get(&**remote));
                if let Some(end) = end {
                    self.end(&one.id, end.state, &end.text).await;
                }
            }
        }
        let now = Timestamp::now();
        for one in open.iter().filter(|one| one.until <= now) {
            let minutes = (one.until.millis().saturating_sub(one.created.millis())) / 60_000;
            let text = match one.state {
                DelegationState::Sending => {
                    "the platform could not be reached in time; the task was not sent".to_owned()
                }
                _ => format!("there was no answer within {minutes} min; the peer may still be working on it"),
            };
            self.end(&one.id, DelegationState::Failed, &text).await;
        }
    }

    /// Sends a delegation to the platform.
    pub(super) async fn send(&self, delegation: &Delegation) {
        let body = json!({
            "target_id": delegation.target, "task": delegation.task, "idempotency_key": delegation.id,
        });
        let path = format!("/workspaces/{}/delegate", self.workspace);
        match self.platform.post(&path, &body, WITHIN).await {
            Ok(answer) => {
                let Some(remote) = answer.get("delegation_id").and_then(Value::as_str) else {
                    return warn!(id = %delegation.id, "the platform's answer to a delegation names no delegation_id; will retry");
                };
                self.change(&delegation.id, |one| {
                    if one.state == DelegationState::Sending {
                        (one.state, one.remote) = (DelegationState::Working, Some(remote.into()));
                    }
                })
                .await;
            }
            // The platform will say the same the next time.
            Err(error @ CallError::Rejected { status: 400 | 403 | 404 | 405 | 409..=418 | 422, .. }) => {
                self.end(
                    &delegation.id,
                    DelegationState::Failed,
                    &format!("the platform refused it: {error}"),
                )
                .await;
            }
            Err(error) => warn!(id = %delegation.id, %error, "delegation not sent; will retry"),
        }
    }

    /// The ends that the platform knows, by its ids.
    async fn ends(&self, working: &[&Delegation], failures: &mut u32) -> HashMap<String, End> {
        let oldest = working.iter().map(|one| one.created.millis()).min().unwrap_or_default();
        let seconds = Timestamp::now().millis().saturating_sub(oldest) / 1000 + SLACK;
        let base = format!("/workspaces/{}", self.workspace);
        let log = format!("{base}/activity?type=delegation&since_secs={seconds}&limit=500");
        match self.platform.get(&log, WITHIN).await {
            Ok(answer) => {
                *failures = 0;
                return rows(&answer).filter_map(of_log).collect();
            }
            Err(error) => {
                *failures = failures.saturating_add(1);
                if *failures == 1 {
                    warn!(%error, "cannot read the answers to delegations; will retry");
                }
            }
        }
        if *failures < FAILURES {
            return HashMap::new();
        }
        match self.platform.get(&format!("{base}/delegations"), WITHIN).await {
            Ok(answer) => rows(&answer).filter_map(of_list).collect(),
            Err(_) => HashMap::new(),
        }
    }
}

fn rows(answer: &Value) -> impl Iterator<Item = &Value> {
    answer.as_array().into_iter().flatten()
}

/// The end of a delegation in a row of the log.
fn of_log(row: &Value) -> Option<(String, End)> {
    if text(row, "method") != "delegate_result" {
        return None;
    }
    let body = match row.get("response_body")? {
        Value::String(text) => serde_json::from_str(text).ok()?,
        body => body.clone(),
    };
    end(text(&body, "delegation_id"), text(row, "status"), text(&body, "text"), text(row, "error_detail"))
}

/// The end of a delegation in a row of the list, which has only the beginning of the answer.
fn of_list(row: &Value) -> Option<(String, End)> {
    let preview = text(row, "response_preview");
    let note =
        if preview.len() >= PREVIEW { "\n[the platform gave only the beginning of this answer]" } else { "" };
    end(text(row, "delegation_id"), text(row, "status"), &format!("{preview}{note}"), text(row, "error"))
}

fn end(id: &str, status: &str, text: &str, error: &str) -> Option<(String, End)> {
    if id.is_empty() {
        return None;
    }
    let end = match status {
        "completed" if is_receipt(text) => return None,
        "completed" if text.trim().is_empty() => {
            End { state: DelegationState::Completed, text: "(an answer without text)".into() }
        }
        "completed" => End { state: DelegationState::Completed, text: text.to_owned() },
        "failed" => {
            let why = [error, text].into_iter().find(|text| !text.trim().is_empty());
            End {
                state: DelegationState::Failed,
                text: why.unwrap_or("the platform gives no reason").to_owned(),
            }
        }
        _ => return None,
    };
    Some((id.to_owned(), end))
}

/// Whether a text is the platform's receipt for a message that a workspace will poll for.
fn is_receipt(text: &str) -> bool {
    let text = text.trim();
    text.starts_with('{')
        && serde_json::from_str::<Value>(text).is_ok_and(|value| {
            value.get("delivery_mode").and_then(Value::as_str) == Some("poll")
                && value.get("status").and_then(Value::as_str) == Some("queued")
        })
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receipt_of_a_polling_workspace_is_not_an_answer() {
        let receipt = json!({ "status": "queued", "delivery_mode": "poll", "method": "message/send" });
        let row = |text: &str| json!({ "method": "delegate_result", "status": "completed", "response_body": { "delegation_id": "d", "text": text } });
        assert_eq!(of_log(&row(&receipt.to_string())), None);
        for answer in ["{\"delivery_mode\":\"push\"}", "{", "the delivery_mode is poll and queued"] {
            let (_, end) = of_log(&row(answer)).unwrap();
            assert_eq!((end.state, end.text.as_str()), (DelegationState::Completed, answer));
        }
    }

    #[test]
    fn only_ends_are_taken_from_rows_and_anything_else_is_ignored() {
        let body = json!({ "delegation_id": "d", "text": "x" });
        for row in [
            json!(null),
            json!(7),
            json!({}),
            json!({ "method": "delegate", "status": "completed", "response_body": body }),
            json!({ "method": "delegate_result", "status": "queued", "response_body": body }),
            json!({ "method": "delegate_result", "status": "completed", "response_body": "<html>" }),
            json!({ "method": "delegate_result", "status": "completed", "response_body": { "text": "x" } }),
        ] {
            assert_eq!(of_log(&row), None, "{row}");
        }
        let failed = json!({ "method": "delegate_result", "status": "failed", "response_body": body.to_string(), "error_detail": "gone" });
        assert_eq!(of_log(&failed).unwrap().1, End { state: DelegationState::Failed, text: "gone".into() });
        let cut =
            json!({ "delegation_id": "d", "status": "completed", "response_preview": "y".repeat(PREVIEW) });
        assert!(of_list(&cut).unwrap().1.text.ends_with("only the beginning of this answer]"));
    }
}
