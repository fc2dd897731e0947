//! Tools of the host: a guest calls those that its grant names, for its turn, within its limits.

use std::time::Duration;

use serde_json::{Value, json};
use talaria_engine::Limits;
use talaria_rig::{FakeTools, Rig};
use talaria_turns::{CallingTurn, Principal, Turn};
use tokio_util::sync::CancellationToken;

const ALL: [&str; 5] = ["echo", "say", "long", "hang", "down"];

async fn rig(tools: &std::sync::Arc<FakeTools>, granted: &[&str]) -> Rig {
    Rig::new("probe").await.tools(tools.clone(), granted)
}

#[tokio::test]
async fn only_granted_tools_are_listed_and_called() {
    let tools = FakeTools::new();
    let rig = rig(&tools, &["echo", "gone"]).await;
    let listed: Value = serde_json::from_str(rig.run("tools").await.text()).unwrap();
    assert_eq!(listed, json!([["echo", r#"{"type":"object"}"#]]));

    let turn = Turn { principal: Principal::named("alice"), ..rig.turn(r#"tool echo {"a":[1,"ü"]}"#) };
    let calling = CallingTurn::of(&turn);
    assert_eq!(rig.execute(turn).await.text(), r#"{"a":[1,"ü"]}"#);
    assert_eq!(tools.calls(), [(calling, "echo".into(), json!({ "a": [1, "ü"] }))]);

    for (call, expected) in [
        (
            "say {}",
            "ErrorKind::Denied: executor probe may not call the tool say; grant it with tools = [\"say\"]",
        ),
        ("nothing {}", "ErrorKind::Denied: executor probe may not call the tool nothing;"),
        ("gone {}", "ErrorKind::Unknown: there is no tool \"gone\""),
        ("a\"b {}", "ErrorKind::Unknown: there is no tool \"a\\\"b\""),
    ] {
        let ran = rig.run(&format!("tool {call}")).await;
        assert!(ran.text().starts_with(expected), "{call}: {}", ran.text());
    }
    assert_eq!(tools.calls().len(), 1, "nothing else reached a tool");

    let without = Rig::new("probe").await;
    assert_eq!(without.run("tools").await.text(), "[]");
    assert!(without.run("tool echo {}").await.text().starts_with("ErrorKind::Denied"));
}

#[tokio::test]
async fn arguments_that_are_no_object_too_large_or_too_deep_reach_no_tool() {
    let tools = FakeTools::new();
    let rig = rig(&tools, &ALL).await;
    let deep = format!("{}{}", r#"{"a":"#.repeat(101), "}".repeat(101));
    for (arguments, expected) in [
        ("[1]", "ErrorKind::Invalid: the arguments are not a JSON object"),
        ("\"text\"", "ErrorKind::Invalid: the arguments are not a JSON object"),
        ("{\"a\":", "ErrorKind::Invalid: the text of the arguments is not JSON"),
        (deep.as_str(), "ErrorKind::Invalid: the text of the arguments is n"),
        // Ten megabytes.
        ("10485760", "ErrorKind::TooLarge: the arguments have 10485771 bytes; 1048576 are the most"),
    ] {
        let ran = rig.run(&format!("tool echo {arguments}")).await;
        assert!(ran.text().starts_with(expected), "{}", ran.text());
    }
    assert_eq!(tools.calls(), []);
    assert_eq!(rig.run("tool say 1000000").await.text().len(), 1_000_000, "just small enough");
}

#[tokio::test]
async fn a_result_is_bounded_and_free_of_the_hosts_secrets() {
    let tools = FakeTools::new();
    let rig = rig(&tools, &ALL).await.secret("PROBE_KEY", "correct-horse-battery");
    let ran = rig.run(r#"tool long {"bytes":2000000}"#).await;
    assert!(ran.text().starts_with("ErrorKind::TooLarge: the result has 2000000 bytes"), "{}", ran.text());
    let (begin, end) = ("correct-horse", "-battery");
    let said = rig.run(&format!(r#"tool say {{"text":"it is {begin}{end}"}}"#)).await;
    assert_eq!(said.text(), "it is [REDACTED:secret]");
    assert_eq!(tools.calls()[1].2, json!({ "text": "it is [REDACTED:secret]" }), "no tool gets one either");
    let down = rig.run(r#"tool down {"text":"HTTP 500 sk-abcdefghijklmnopqrstuvwx"}"#).await;
    assert!(down.text().starts_with("ErrorKind::Unavailable: HTTP 500"), "{}", down.text());
    assert!(!down.text().contains("sk-abc"), "{}", down.text());
}

#[tokio::test]
async fn a_tool_that_never_answers_is_given_up_before_the_turn_is() {
    let tools = FakeTools::new();
    let limits = Limits { deadline: Duration::from_secs(5), ..Limits::default() };
    let rig = rig(&tools, &ALL).await.limits(limits);
    let ran = rig.run("tool hang {}").await;
    assert!(
        ran.text().starts_with("ErrorKind::TimedOut: the tool did not answer within 4."),
        "{}",
        ran.text()
    );
}

#[tokio::test]
async fn a_cancel_ends_the_wait_for_a_tool() {
    let tools = FakeTools::new();
    let rig = rig(&tools, &ALL).await;
    let cancelled = CancellationToken::new();
    let (ran, ()) = tokio::join!(rig.execute_until(rig.turn("tool hang {}"), cancelled.clone()), async {
        tools.called().await;
        cancelled.cancel();
    });
    assert_eq!(ran.text(), "ErrorKind::Cancelled: the turn was cancelled");
}

#[tokio::test]
async fn calls_and_bytes_of_tools_count_for_the_turn() {
    for (limits, prompt, expected) in [
        (
            Limits { calls: 3, ..Limits::default() },
            "tool-until 10 echo {}",
            "3 ErrorKind::Denied: executor probe may not make more than 3 calls a turn; grant it with calls = 6",
        ),
        (
            Limits { output_bytes: 64 << 10, ..Limits::default() },
            "tool-until 10 echo 30000",
            "2 ErrorKind::TooLarge: executor probe may not put out more than 65536 bytes a turn",
        ),
        (
            Limits { sent_bytes: 50_000, ..Limits::default() },
            "tool-until 10 echo 20000",
            "2 ErrorKind::TooLarge: executor probe may not send more than 50000 bytes a turn",
        ),
        (
            Limits { received_bytes: 50_000, ..Limits::default() },
            r#"tool-until 10 long {"bytes":20000}"#,
            "2 ErrorKind::TooLarge: executor probe may not receive more than 50000 bytes a turn",
        ),
    ] {
        let rig = rig(&FakeTools::new(), &ALL).await.limits(limits);
        let ran = rig.run(prompt).await;
        assert!(ran.text().starts_with(expected), "{}", ran.text());
    }
}
