//! `talaria send`: what it prints, and what it exits with.

use serde_json::Value;

use crate::bridge::{Start, run, stderr, stdout, talaria};

#[test]
fn a_reply_is_on_standard_output_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    let sent = run(talaria(folder.path()).args(["send", bridge.url(), "hello"]));
    assert_eq!(sent.status.code(), Some(0));
    assert_eq!(stdout(&sent).lines().count(), 1, "{}", stdout(&sent));
    assert!(stderr(&sent).contains("context "), "{}", stderr(&sent));

    let sent = run(talaria(folder.path()).args(["send", bridge.url(), "hello", "--output", "json"]));
    let result: Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert!(result.to_string().contains("You said"), "{result}");
}

#[test]
fn a_turn_that_failed_is_told_and_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    for protocol in ["1.0", "0.3"] {
        let sent =
            run(talaria(folder.path()).args(["send", bridge.url(), "fail please", "--protocol", protocol]));
        assert_eq!(sent.status.code(), Some(1), "{protocol}: {}", stderr(&sent));
        assert!(stdout(&sent).starts_with("[hermes-agent error]"), "{protocol}: {}", stdout(&sent));
    }
}

#[test]
fn what_cannot_be_reached_or_understood_is_a_failure_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let port = talaria_fakes::free_port();
    let nobody = run(talaria(folder.path()).args(["send", &format!("http://127.0.0.1:{port}"), "hello"]));
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("connection refused"), "{}", stderr(&nobody));
    let no_url = run(talaria(folder.path()).args(["send", "not a url", "hello"]));
    assert_eq!(no_url.status.code(), Some(64), "{}", stderr(&no_url));
}
