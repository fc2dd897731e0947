//! A turn as a run of hermes-agent: the route with events, approvals, and a stop that stops.
//!
//! A run is started, then followed through its events and its status. The status decides: the gateway streams events to
//! one reader, once, and a stream that was cut can stay silent for ever while the run goes on. So silence makes the
//! client ask for the status, and a broken stream is never opened again.
//!
//! The run's id is checkpointed before anything else happens. After a restart of this host the run is followed by its
//! status alone, and a cancel finds it. A restart of the gateway loses the run, and the turn then fails and says so. A
//! run that is not over when the turn's time is, is stopped.
//!
//! hermes-agent stores the turns of a session but does not load them for a run, so the client sends the earlier
//! messages of the context with each run ([`earlier`]).

mod approval;
mod backoff;
mod capabilities;
mod checkpoint;
mod earlier;
mod events;
mod gateway;
mod run;
mod status;

use serde::Serialize;
use talaria_guest::{Failure, FailureKind, Outcome, Turn};

use super::Session;
use crate::Prompt;
use crate::history::Said;

pub use backoff::Backoff;
pub use capabilities::Capabilities;
pub use checkpoint::Checkpoint;
pub use earlier::of_task;
pub use gateway::Gateway;

/// What a run is started with.
pub struct Start<'a> {
    /// The caller's message.
    pub prompt: &'a Prompt<'a>,
    /// The model to ask for; the gateway's own if `None`.
    pub model: Option<&'a str>,
    /// Instructions on top of the agent's own.
    pub instructions: Option<&'a str>,
    /// The session that keeps the run, and whose messages the run sees.
    pub session: Option<&'a Session>,
    /// The scope of the agent's long-term memory, which may be set without a session.
    pub scope: Option<&'a Session>,
    /// The earlier messages, for a run without a session, or with one of which the gateway has none.
    pub history: Vec<Said>,
}

/// The request body. A type and not a tree of values, because images are large.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conversation_history: Vec<Said>,
    input: Input<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Input<'a> {
    Text(&'a Prompt<'a>),
    /// The route takes images only within a message.
    Message([UserMessage<'a>; 1]),
}

#[derive(Serialize)]
struct UserMessage<'a> {
    content: &'a Prompt<'a>,
    role: &'static str,
}

/// Starts a run and follows it to its end.
///
/// # Errors
/// The failure that the caller reads.
pub fn start(gateway: Gateway, start: Start<'_>, streaming: bool) -> Result<Outcome, Failure> {
    let Start { prompt, model, instructions, session, scope, history } = start;
    let (session_id, conversation_history) = match session {
        Some(session) => {
            let (id, messages) = earlier::of_session(&gateway, session, history);
            (Some(id), messages)
        }
        None => (None, earlier::newest(history)),
    };
    let input = if prompt.is_text() {
        Input::Text(prompt)
    } else {
        Input::Message([UserMessage { content: prompt, role: "user" }])
    };
    let body = prompt.body(&Body { conversation_history, input, instructions, model, session_id })?;
    let checkpoint = Checkpoint::new(gateway.submit(&body, scope, streaming)?);
    checkpoint.store();
    run::Run::started(gateway, checkpoint, streaming).follow()
}

/// Follows a run that was started before a restart of this host.
///
/// # Errors
/// The failure that the caller reads.
pub fn resume(gateway: Gateway, checkpoint: Checkpoint, turn: &Turn) -> Result<Outcome, Failure> {
    run::Run::resumed(gateway, checkpoint, turn.streaming).follow()
}

/// The failure of a turn that was cancelled while it waited.
fn cancelled() -> Failure {
    Failure::new(FailureKind::Cancelled, "[hermes-agent unreachable] the turn was cancelled")
}
