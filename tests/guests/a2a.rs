//! The a2a executor against an agent that says what the test wrote down.

mod bad_answers;
mod bad_streams;
mod cancelled;
mod conversation;
mod followed;
mod polled;
mod probe;
mod request;
mod resumed;
mod streamed;

use serde_json::{Value, json};
use talaria_fakes::{FakeAgent, Say, Spoken};
use talaria_rig::{Ran, Rig};
use talaria_turns::{Message, Part, Role, Turn};

/// The token; the executor may name it but never sees it.
const KEY: &str = "A2A_TOKEN";

/// The executor, pointed at this agent.
async fn rig(agent: &FakeAgent) -> Rig {
    Rig::new("a2a").await.setting("url", agent.url())
}

/// An agent that streams 1.0, and says this to its first message.
async fn streaming(say: Say) -> FakeAgent {
    let agent = FakeAgent::start(Spoken::V1, true).await;
    agent.next("SendStreamingMessage", say);
    agent
}

/// Runs a streamed turn against such an agent.
async fn stream_against(say: Say) -> Ran {
    let agent = streaming(say).await;
    rig(&agent).await.stream("hello").await
}

/// Another turn of the same task, whose earlier message is in its history.
fn next(turn: &Turn, text: &str) -> Turn {
    let message = Message { role: Role::User, ..Message::agent(vec![Part::text(text)]) };
    let history = turn.history.iter().cloned().chain([turn.message.clone()]).collect();
    Turn { message: message.into(), history, ..turn.clone() }
}

/// A task in a state, with the text of its message and of its answer.
fn task(state: &str, said: &str, answer: &str) -> Value {
    let mut task = json!({ "id": "t1", "contextId": "c1", "status": status(state, said) });
    if !answer.is_empty() {
        task["artifacts"] = json!([{ "artifactId": "a", "parts": [{ "text": answer }] }]);
    }
    json!({ "task": task })
}

/// A task as `GetTask` returns it.
fn bare(state: &str, said: &str, answer: &str) -> Value {
    task(state, said, answer)["task"].clone()
}

fn status(state: &str, said: &str) -> Value {
    let mut status =
        json!({ "state": format!("TASK_STATE_{state}"), "timestamp": "2026-11-19T05:00:00.000Z" });
    if !said.is_empty() {
        status["message"] = json!({ "messageId": "s", "role": "ROLE_AGENT", "parts": [{ "text": said }] });
    }
    status
}

/// A status update of the task.
fn update(state: &str, said: &str) -> Value {
    json!({ "statusUpdate": { "taskId": "t1", "contextId": "c1", "status": status(state, said) } })
}

/// A piece of the answer.
fn piece(text: &str, append: bool) -> Value {
    artifact(json!({ "artifactId": "a", "parts": [{ "text": text }] }), append)
}

fn artifact(artifact: Value, append: bool) -> Value {
    json!({ "artifactUpdate": { "taskId": "t1", "contextId": "c1", "artifact": artifact, "append": append } })
}
