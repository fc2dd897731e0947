//! The hermes-runs executor against a gateway whose runs behave like hermes-agent's.

mod approvals;
mod busy;
mod cancelled;
mod earlier_messages;
mod events;
mod memory;
mod older;
mod probe;
mod request;
mod resumed;
mod status;

use talaria_fakes::{FakeRuns, Script};
use talaria_rig::{Ran, Rig};
use talaria_turns::{Part, Turn};
use tokio_util::sync::CancellationToken;

/// The gateway's key; the executor may name it but never sees it.
const KEY: &str = "API_SERVER_KEY";

/// The executor, pointed at this gateway, with the calls that its settings imply granted.
async fn rig(runs: &FakeRuns) -> Rig {
    Rig::new("hermes-runs").await.setting("base_url", runs.base_url())
}

/// Runs a buffered turn against this run.
async fn run_against(script: Script) -> Ran {
    let runs = FakeRuns::start([script]).await;
    rig(&runs).await.run("hello").await
}

/// Runs a streamed turn.
async fn stream_against(script: Script) -> Ran {
    let runs = FakeRuns::start([script]).await;
    rig(&runs).await.stream("hello").await
}

/// An answer of one text.
fn says(text: &str) -> Vec<Part> {
    vec![Part::text(text)]
}

/// Runs a turn whose questions get these answers, one after the other.
async fn converse(rig: &Rig, turn: Turn, answers: impl IntoIterator<Item = Vec<Part>>) -> Ran {
    let mut answers = answers.into_iter();
    let next = |_: &str| answers.next().expect("no more questions than answers");
    rig.converse(turn, CancellationToken::new(), next).await
}
