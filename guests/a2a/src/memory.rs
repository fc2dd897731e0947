//! What is stored: the agent's side of a conversation, and what a turn needs after a restart.
//!
//! The agent's context belongs to our context, its open task to our task. Both count only for the agent at the same
//! address.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use talaria_guest::{Failure, FailureKind, Turn, state};
use talaria_upstream::warn;

use crate::peer::Peer;

/// The key of the agent's context.
const CONTEXT: &str = "context";

/// The key of the tasks that wait for their caller.
const OPEN: &str = "open";
/// The tasks of one conversation that may wait at once; of more, the newest count.
const WAITING: usize = 64;

/// One of our tasks, and the agent's that waits for its next message.
#[derive(Serialize, Deserialize)]
struct Waiting {
    ours: String,
    open: Open,
}

/// The agent's context.
#[derive(Serialize, Deserialize)]
struct Context {
    /// The agent's address.
    at: String,
    id: String,
}

/// A task of the agent that waits for its caller.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Open {
    pub(crate) task: String,
    /// The mark of the status with the question, so that it is not taken for a new one.
    pub(crate) mark: u64,
    /// Whether it waits for an authentication, after which the agent may go on by itself.
    #[serde(default)]
    pub(crate) auth: bool,
}

/// A turn as it is stored before a restart.
#[derive(Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    pub(crate) peer: Peer,
    /// The agent's task; `None` if the message was about to be sent.
    pub(crate) task: Option<String>,
    #[serde(default)]
    pub(crate) context: Option<String>,
    /// The mark of the question that the message answers.
    #[serde(default)]
    pub(crate) answers: Option<u64>,
}

/// Returns the agent's context of this conversation.
pub(crate) fn context(at: &str) -> Result<Option<String>, Failure> {
    Ok(read::<Context>(CONTEXT)?.filter(|context| context.at == at).map(|context| context.id))
}

/// Stores the agent's context.
pub(crate) fn set_context(at: &str, id: &str) -> Result<(), Failure> {
    write(CONTEXT, Some(&Context { at: at.to_owned(), id: id.to_owned() }))
}

/// Returns the agent's task that our task continues.
pub(crate) fn open(turn: &Turn) -> Result<Option<Open>, Failure> {
    // The first turn of a task continues nothing.
    if turn.history.is_empty() {
        return Ok(None);
    }
    let waiting = waiting()?.into_iter().find(|waiting| waiting.ours == turn.task_id);
    Ok(waiting.map(|waiting| waiting.open))
}

/// Stores the agent's task that our task continues, or that it continues none.
pub(crate) fn set_open(turn: &Turn, open: Option<&Open>) -> Result<(), Failure> {
    let mut waiting = waiting()?;
    waiting.retain(|waiting| waiting.ours != turn.task_id);
    if let Some(open) = open {
        waiting.push(Waiting { ours: turn.task_id.clone(), open: open.clone() });
    }
    // Those that were cancelled, or never answered, are the oldest.
    let surplus = waiting.len().saturating_sub(WAITING);
    waiting.drain(..surplus);
    write(OPEN, Some(&waiting).filter(|waiting| !waiting.is_empty()))
}

fn waiting() -> Result<Vec<Waiting>, Failure> {
    Ok(read(OPEN)?.unwrap_or_default())
}

fn read<T: DeserializeOwned>(key: &str) -> Result<Option<T>, Failure> {
    let stored = state::get(key).map_err(|error| unstored(&error.message))?;
    // What another version stored is no use to this one.
    Ok(stored.and_then(|stored| serde_json::from_slice(&stored).ok()))
}

fn write<T: Serialize>(key: &str, value: Option<&T>) -> Result<(), Failure> {
    let value = value.map(serde_json::to_vec).transpose().map_err(|error| unstored(&error.to_string()))?;
    state::set(key, value.as_deref()).map_err(|error| unstored(&error.message))
}

fn unstored(why: &str) -> Failure {
    let message = format!("[agent error] what is known of the conversation was not read or stored: {why}");
    Failure { retryable: true, ..Failure::new(FailureKind::Internal, message) }
}

impl Checkpoint {
    /// Reads a checkpoint.
    pub(crate) fn read(stored: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(stored).map_err(|error| {
            Failure::new(
                FailureKind::Internal,
                format!("[agent error] the checkpoint is unreadable: {error}"),
            )
        })
    }

    /// Stores it. If that fails, the task is followed all the same.
    pub(crate) fn store(&self) {
        let stored = serde_json::to_vec(self).map_err(|error| error.to_string());
        let stored = stored.and_then(|data| state::checkpoint(&data).map_err(|error| error.message));
        if let Err(why) = stored {
            warn(&format!("task not checkpointed; a restart would lose it: {why}"));
        }
    }
}
