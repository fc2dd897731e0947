//! `talaria send`: its output and its exit codes.

use serde_json::Value;

use crate::bridge::{Start, run, stderr, stdout, talaria};

#[test]
fn prints_only_the_reply_on_standard_output() {
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
fn prints_a_failed_turn_and_exits_with_1() {
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
fn reports_an_unreachable_server_and_a_bad_address() {
    let folder = tempfile::tempdir().unwrap();
    let port = talaria_fakes::free_port();
    let unreachable =
        run(talaria(folder.path()).args(["send", &format!("http://127.0.0.1:{port}"), "hello"]));
    assert_eq!(unreachable.status.code(), Some(1));
    assert!(stderr(&unreachable).contains("connection refused"), "{}", stderr(&unreachable));
    let bad_address = run(talaria(folder.path()).args(["send", "not a url", "hello"]));
    assert_eq!(bad_address.status.code(), Some(64), "{}", stderr(&bad_address));
}
