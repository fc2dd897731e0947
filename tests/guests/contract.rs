//! Components that were built from the contract as it was load and run in this host: `tests/contract` has one in each
//! language, which calls every function that the contract had then. They are never built again, so a change of the
//! contract that would break the components of authors fails here.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Recorded, Reply};
use talaria_rig::{FakeTools, Format, Logged, MailHost, Ran, Rig};
use talaria_turns::{Content, Emitted, Executor as _, FailureKind, FinalState, Turn};

const SECRET: &str = "a-key-that-no-guest-sees";
const RAW: &str = "raw bytes";

/// Reads a component of `tests/contract`.
fn witness(language: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../contract/0.1.0/{language}.wasm.xz"));
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut component = Vec::new();
    lzma_rs::xz_decompress(&mut BufReader::new(file), &mut component).expect("a component in xz");
    component
}

fn reply(request: &Recorded) -> Reply {
    match request.path.as_str() {
        "/v1/fetch" => Reply::status(200, "text/plain", "fetched"),
        "/v1/events" => Reply::status(200, "text/event-stream", "event: news\ndata: an event\n\n"),
        "/v1/raw" => Reply::status(200, "application/octet-stream", RAW),
        other => Reply::status(404, "text/plain", other.to_owned()),
    }
}

/// What a component sees that calls every function once, without what a read brought.
fn everything() -> Value {
    json!({
        "http": [200, "fetched", 200, true, true, "an event", null, "denied"],
        "callback": [true, false, "timed-out", true],
        "events": ["plain", "answer 1", "answer 2"],
        "state": [true, "1", true, true],
        "control": [true, false, true, null],
        "config": ["\"hello\"", true],
        "tools": [["echo"], "{\"text\":\"hi\"}"],
    })
}

/// Runs everything that a host asks of an executor.
async fn runs(language: &str) {
    let logged = Logged::start(Format::Json);
    let (gateway, mail) = (FakeGateway::start(reply).await, MailHost::start().await);
    let rig = Rig::of(witness(language)).await.callbacks(mail.callbacks()).tools(FakeTools::new(), &["echo"]);
    let rig = rig.setting("url", gateway.base_url()).secret("WITNESS_KEY", SECRET);
    rig.setup().await.expect("a setup that passes");

    let Ran { result, events, questions, checkpoints } = rig.execute(rig.turn_of_record("look").await).await;
    let outcome = result.unwrap_or_else(|failure| panic!("{language}: {failure:?}"));
    let [part] = outcome.parts.as_slice() else { panic!("{language}: {:?}", outcome.parts) };
    let Content::Data(mut seen) = part.content.clone() else { panic!("{language}: {part:?}") };
    let raw = seen["http"][6].take();
    assert!(
        raw.as_str().is_some_and(|raw| !raw.is_empty() && RAW.starts_with(raw)),
        "one read, not all: {raw}"
    );
    assert_eq!(seen, everything(), "{language}");
    assert_eq!(outcome.state, FinalState::Completed);
    assert_eq!(outcome.metadata.unwrap()["witness"], true);
    let kinds: Vec<_> = events.iter().map(kind).collect();
    assert_eq!(kinds, ["status", "artifact", "tool-progress", "custom"], "{language}");
    assert_eq!((questions, checkpoints), (vec!["first?".into(), "second?".into()], vec![b"half".to_vec()]));
    let fetched = gateway.requests().into_iter().find(|request| request.path == "/v1/fetch").unwrap();
    assert_eq!(fetched.headers["x-witness"], SECRET, "the host fills in the secret");

    assert_eq!(rig.stream("stream").await.deltas(), ["one ", "two"], "{language}");
    let failed = rig.run("fail").await;
    let failure = failed.failure();
    assert_eq!((failure.kind, &*failure.message), (FailureKind::Upstream, "asked to fail"), "{language}");
    assert!(failure.retryable);

    let cancelled = Turn { checkpoint: Some(b"half".to_vec()), ..rig.turn("cancel") };
    rig.executor().cancel(cancelled).await.expect("a cancel that passes");
    let log = logged.text();
    assert!(log.contains("witnessed") && log.contains("cancelled after 4 bytes"), "{language}: {log}");
}

fn kind(event: &Emitted) -> &'static str {
    match event {
        Emitted::Status(_) => "status",
        Emitted::Artifact { .. } => "artifact",
        Emitted::Tool(_) => "tool-progress",
        Emitted::Custom { .. } => "custom",
        _ => "another",
    }
}

#[tokio::test]
async fn a_rust_component_of_the_first_contract_runs() {
    runs("rust").await;
}

#[tokio::test]
async fn a_python_component_of_the_first_contract_runs() {
    runs("python").await;
}

#[tokio::test]
async fn a_javascript_component_of_the_first_contract_runs() {
    runs("js").await;
}
