//! The tools that delegate: give a task to a peer, ask for its answer, stop waiting for it.

use std::time::Duration;

use serde_json::{Value, json};
use talaria_turns::{CallingTurn, Delegation, DelegationState};

use super::arguments::Arguments;
use super::refusal::Refusal;
use super::{TEXT, TeamTools, outgoing, untrusted};
use crate::delegations::{BeginError, WrongTicket};
use crate::platform_context::Peer;

/// Seconds that a call waits by default, and at most. Calls of one agent run one after the other, so a longer wait would hold
/// up all its conversations.
const WAIT: (u64, u64) = (20, 60);

/// Bytes of an answer that one call shows.
const PAGE: usize = 32 << 10;

/// Delegations in a list.
const LISTED: usize = 10;

const LATER: &str = "go on with other work, or ask with check_task_status later; if nothing else is left to do, end your turn \
                     with a line about what you wait for: the answer comes as the next message";

impl TeamTools {
    /// `delegate_task`, which waits, and `delegate_task_async`, which does not.
    pub(super) async fn delegate(
        &self,
        turn: Option<CallingTurn>,
        arguments: &Arguments,
        waits: bool,
    ) -> Result<String, Refusal> {
        let wanted = arguments.required("workspace_id", 200)?;
        let task = arguments.required("task", TEXT)?;
        let wait = match waits {
            true => arguments.number("wait_seconds", WAIT.1)?.unwrap_or(WAIT.0),
            false => 0,
        };
        let turn = self.calling_turn(turn, arguments)?;
        let peer = self.peer(wanted).await?;
        self.delegate_to(turn, &peer, task, Duration::from_secs(wait)).await
    }

    /// The turn that calls: the one that is known, or that of the ticket, or the only one that runs.
    pub(super) fn calling_turn(
        &self,
        known: Option<CallingTurn>,
        arguments: &Arguments,
    ) -> Result<Option<CallingTurn>, Refusal> {
        let ticket = arguments.text("ticket", 200)?;
        match known {
            Some(turn) => Ok(Some(turn)),
            None => self.delegations.calling_turn(ticket).map_err(|WrongTicket| {
                Refusal::new(
                    "the ticket is not that of a conversation whose turn runs now",
                    "use the ticket in your instructions, or leave it out",
                )
            }),
        }
    }

    pub(super) async fn delegate_to(
        &self,
        turn: Option<CallingTurn>,
        peer: &Peer,
        task: &str,
        wait: Duration,
    ) -> Result<String, Refusal> {
        let target = (peer.id.as_str(), peer.name.as_str());
        let made = self.delegations.delegate(target, &outgoing(task), turn, wait).await;
        let delegation = made.map_err(|error| match error {
            BeginError::Full(_) => Refusal::new(
                error.to_string(),
                "wait for answers, or give some up with cancel_delegation (check_task_status lists them)",
            ),
            BeginError::Store(_) => {
                Refusal::failure(error.to_string(), "try again in a minute; nothing was sent")
            }
        })?;
        Ok(show(&delegation, 0))
    }

    pub(super) async fn check_task(&self, arguments: &Arguments) -> Result<String, Refusal> {
        let offset =
            usize::try_from(arguments.number("offset", 1 << 30)?.unwrap_or_default()).unwrap_or(usize::MAX);
        let id = match arguments.text("task_id", 200)? {
            Some(id) => Some(id),
            None => arguments.text("delegation_id", 200)?,
        };
        let Some(id) = id else {
            let list: Vec<_> = self.delegations.newest(LISTED).iter().map(brief).collect();
            return Ok(json!({ "count": list.len(), "delegations": list }).to_string());
        };
        match self.delegations.look(id).await {
            Some(delegation) => Ok(show(&delegation, offset)),
            None => Err(unknown(id)),
        }
    }

    pub(super) async fn cancel_delegation(&self, arguments: &Arguments) -> Result<String, Refusal> {
        let id = arguments.required("task_id", 200)?;
        let Some(before) = self.delegations.withdraw(id).await else { return Err(unknown(id)) };
        let note = match before.state.is_open() {
            true => {
                "its answer is no longer awaited; the platform cannot stop the peer, which may still do the task"
            }
            false => "it had ended already",
        };
        Ok(json!({ "delegation_id": id, "status": "canceled", "note": note }).to_string())
    }
}

fn unknown(id: &str) -> Refusal {
    let reason = format!("there is no delegation {:?}", untrusted::line(id, 80));
    Refusal::new(reason, "call check_task_status without task_id, which lists the newest")
}

fn status(delegation: &Delegation) -> &'static str {
    match delegation.state {
        DelegationState::Sending => "not sent yet",
        DelegationState::Working => "working",
        DelegationState::Completed => "completed",
        DelegationState::Failed => "failed",
        DelegationState::Withdrawn => "canceled",
    }
}

fn brief(delegation: &Delegation) -> Value {
    json!({
        "delegation_id": delegation.id,
        "workspace_id": delegation.target,
        "name": untrusted::line(&delegation.target_name, 80),
        "status": status(delegation),
        "task": untrusted::line(&delegation.task, 80),
    })
}

/// A delegation, with a page of its answer from `offset` on.
fn show(delegation: &Delegation, offset: usize) -> String {
    let mut head = brief(delegation);
    let note = match delegation.state {
        DelegationState::Sending => Some("the platform could not be reached; it is sent as soon as possible"),
        DelegationState::Working => Some(LATER),
        DelegationState::Failed => {
            Some("try another peer, or do it yourself, or tell the caller; do not pass on the raw reason")
        }
        DelegationState::Completed | DelegationState::Withdrawn => None,
    };
    if let (Some(note), Some(head)) = (note, head.as_object_mut()) {
        head.insert("next_step".into(), json!(note));
    }
    let Some(result) = delegation.result.as_deref() else { return head.to_string() };
    let begin = result.floor_char_boundary(offset.min(result.len()));
    let end = result.floor_char_boundary(begin.saturating_add(PAGE).min(result.len()));
    if let (true, Some(head)) = (end < result.len() || begin > 0, head.as_object_mut()) {
        head.insert("bytes".into(), json!(format!("{begin} to {end} of {}", result.len())));
        if end < result.len() {
            head.insert("read_on".into(), json!(format!("check_task_status with offset {end}")));
        }
    }
    let page = result.get(begin..end).unwrap_or_default();
    format!("{head}\n{}", untrusted::wrap(&delegation.target_name, page))
}
