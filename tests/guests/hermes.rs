//! The hermes executor against an endpoint that speaks OpenAI's API.

mod cancelled;
mod errors;
mod history;
mod probe;
mod reasoning;
mod reply;
mod request;
mod retries;
mod streamed;
mod think;
mod tool_loop;
mod tools;

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Reply, Stream};
use talaria_rig::{Ran, Rig};

/// The endpoint's key; the executor may name it but never sees it.
const KEY: &str = "OPENAI_API_KEY";
/// A model that thinks.
const MODEL: &str = "nousresearch/hermes-4-70b";

/// The executor, pointed at this endpoint, with the calls that its settings imply granted. It repeats no call.
async fn rig(endpoint: &FakeGateway) -> Rig {
    rig_at(&endpoint.base_url()).await
}

async fn rig_at(url: &str) -> Rig {
    Rig::new("hermes").await.setting("base_url", url).setting("model", MODEL).setting("max_retries", 0)
}

/// An endpoint that answers `hi`.
async fn polite() -> FakeGateway {
    FakeGateway::always(Reply::completion("hi")).await
}

/// Runs a buffered turn against this answer.
async fn run_against(reply: impl Into<Reply>) -> Ran {
    let endpoint = FakeGateway::always(reply).await;
    rig(&endpoint).await.run("hello").await
}

/// Runs a streamed turn.
async fn stream_against(reply: impl Into<Reply>) -> Ran {
    let endpoint = FakeGateway::always(reply).await;
    rig(&endpoint).await.stream("hello").await
}

/// A whole answer with this message.
fn message(message: Value) -> Reply {
    Reply::json(&json!({
        "id": "gen-1", "object": "chat.completion", "model": MODEL,
        "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 },
    }))
}

/// A streamed answer with these deltas.
fn deltas(deltas: impl IntoIterator<Item = Value>) -> Stream {
    let chunk = |delta: Value| {
        let chunk = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
        format!("data: {chunk}\n\n")
    };
    deltas.into_iter().fold(Stream::new(), |stream, delta| stream.bytes(chunk(delta)))
}
