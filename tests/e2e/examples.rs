//! The example executors as operators run them: dropped into the folder with their own grants, in front of an upstream that
//! records its requests.
//!
//! `cargo xtask examples` builds them; without it these tests fail. The tests need several threads, because the upstreams run in
//! the runtime of the test and must answer probes while the test waits for its bridge.

use std::path::{Path, PathBuf};

use talaria_fakes::{FakeGateway, Reply, Stream, soon};

use crate::bridge::{Bridge, Start, run, stderr, stdout, talaria};

/// The addresses of the upstreams in an example's configuration.
const FIRST: &str = "http://127.0.0.1:8642/v1";
const SECOND: &str = "http://127.0.0.1:8643/v1";

/// Returns a component that `cargo xtask examples` built.
pub(crate) fn component(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_talaria")).ancestors().nth(2).expect("a target folder");
    let path = target.join("examples").join(format!("{name}.wasm"));
    assert!(path.is_file(), "there is no {}; build it with `cargo xtask examples`", path.display());
    path
}

/// Starts a bridge with one example and these upstreams.
fn serve(folder: &Path, name: &str, upstreams: &[(&str, String)], keys: &[(&str, &str)]) -> Bridge {
    let executors = folder.join("executors");
    std::fs::create_dir(&executors).unwrap();
    std::fs::copy(component(name), executors.join(format!("{name}.wasm"))).unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/{name}/{name}.toml"));
    let mut own = std::fs::read_to_string(shipped).unwrap();
    for (from, to) in upstreams {
        own = own.replace(from, to);
    }
    std::fs::write(executors.join(format!("{name}.toml")), own).unwrap();
    let start = Start::new(folder).config(&format!("[executors]\ndefault = \"{name}\"\n"));
    keys.iter().fold(start, |start, (key, value)| start.env(key, value)).up()
}

fn streamed(bridge: &Bridge, folder: &Path, text: &str) -> String {
    let sent = run(talaria(folder).args(["send", bridge.url(), text, "--stream"]));
    assert_eq!(sent.status.code(), Some(0), "{}", stderr(&sent));
    stdout(&sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_upstream_of_redact_never_sees_personal_data_and_the_caller_gets_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = FakeGateway::script([
        Reply::completion("I wrote to [email-1] and called [phone-1]."),
        Stream::new().delta("Called [pho").delta("ne-1], wrote to [email-1].").finish("stop").into(),
    ])
    .await;
    let upstreams = [(FIRST, gateway.base_url())];
    let bridge = serve(folder.path(), "redact", &upstreams, &[("API_SERVER_KEY", "the-key")]);
    assert!(gateway.probes() > 0, "the setup checks the health");

    let text = "Write to jane.doe@example.com and call +44 20 7946 0958";
    assert_eq!(bridge.say(text).await, "I wrote to jane.doe@example.com and called +44 20 7946 0958.");
    let reply = streamed(&bridge, folder.path(), text);
    assert!(reply.contains("Called +44 20 7946 0958, wrote to jane.doe@example.com."), "{reply}");

    let requests = gateway.requests();
    assert_eq!(requests.len(), 2, "one buffered, one streamed");
    for request in &requests {
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains("jane") && !body.contains("7946"), "personal data was sent: {body}");
        assert!(body.contains("Write to [email-1] and call [phone-1]"), "{body}");
        assert_eq!(request.header("authorization"), Some("Bearer the-key"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_language_sends_each_message_to_its_upstream_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let english = FakeGateway::always(Reply::completion("sunny")).await;
    let other = FakeGateway::script([
        Reply::completion("sonnig"),
        Stream::new().delta("ensol").delta("eillé").finish("stop").into(),
    ])
    .await;
    let upstreams = [(FIRST, english.base_url()), (SECOND, other.base_url())];
    let keys = [("ENGLISH_KEY", "one"), ("OTHER_KEY", "two")];
    let bridge = serve(folder.path(), "by-language", &upstreams, &keys);

    assert_eq!(bridge.say("What is the weather like in the north?").await, "sunny");
    assert_eq!(bridge.say("Wie ist das Wetter im Norden?").await, "sonnig");
    let reply = streamed(&bridge, folder.path(), "Quel temps fait-il dans le nord, s'il vous plaît ?");
    assert!(reply.contains("ensoleillé"), "{reply}");

    assert_eq!(english.request().header("authorization"), Some("Bearer one"));
    let requests = other.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|request| request.header("authorization") == Some("Bearer two")));
    assert_eq!(requests[1].json()["stream"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_upstream_to_answer_wins_the_race_and_the_other_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    // Dropped together with the stream that holds it.
    let (held, let_go) = tokio::sync::oneshot::channel::<()>();
    let slow = FakeGateway::script([Stream::new().hold(held).hang().into()]).await;
    let fast = FakeGateway::always(Reply::stream(["the ", "fast one"])).await;
    let upstreams = [(FIRST, slow.base_url()), (SECOND, fast.base_url())];
    let keys = [("FIRST_KEY", "one"), ("SECOND_KEY", "two")];
    let bridge = serve(folder.path(), "race", &upstreams, &keys);

    assert_eq!(bridge.say("hello").await, "the fast one");
    let _ = soon("the loser's connection is closed", let_go).await;
    assert_eq!(slow.request().header("authorization"), Some("Bearer one"));
    assert_eq!(fast.request().header("authorization"), Some("Bearer two"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_working_upstream_wins_the_race() {
    let folder = tempfile::tempdir().unwrap();
    let broken = FakeGateway::always(Reply::status(503, "text/plain", "busy")).await;
    let whole = FakeGateway::always(Reply::stream(["still ", "here"])).await;
    let upstreams = [(FIRST, broken.base_url()), (SECOND, whole.base_url())];
    let bridge = serve(folder.path(), "race", &upstreams, &[]);
    let reply = streamed(&bridge, folder.path(), "hello");
    assert!(reply.contains("still here"), "{reply}");
}
