//! Who remembers a context: hermes-agent in its session, or the host for gateways that keep nothing.

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Recorded};
use talaria_rig::Rig;

use super::{KEY, polite, rig};

const SESSION: &str = "x-hermes-session-id";
const SCOPE: &str = "x-hermes-session-key";

async fn with_key(gateway: &FakeGateway) -> Rig {
    rig(gateway).await.secret(KEY, "k-0123456789abcdef")
}

/// Runs a buffered turn in the context.
async fn say(rig: &Rig, text: &str) {
    let turn = rig.turn_of_record(text).await;
    assert_eq!(rig.execute(turn).await.text(), "hi");
}

fn messages(request: &Recorded) -> Vec<(String, String)> {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let field = |message: &Value, name: &str| message[name].as_str().unwrap().to_owned();
    body["messages"].as_array().unwrap().iter().map(|it| (field(it, "role"), field(it, "content"))).collect()
}

fn chat<const N: usize>(lines: [(&str, &str); N]) -> Vec<(String, String)> {
    lines.map(|(role, content)| (role.to_owned(), content.to_owned())).into()
}

#[tokio::test]
async fn a_gateway_without_sessions_gets_the_earlier_messages() {
    let gateway = polite().await;
    gateway.keep_no_sessions();
    for rig in [rig(&gateway).await, with_key(&gateway).await] {
        let before = gateway.requests().len();
        let rig = rig.setting("system_prompt", "be brief");
        rig.said("my name is Ada", "Hello Ada").await;
        rig.said("I like tea", "So do I").await;
        for question in ["what is my name?", "and what do I like?"] {
            say(&rig, question).await;
        }
        let sent = &gateway.requests()[before..];
        let expected = [
            ("system", "be brief"),
            ("user", "my name is Ada"),
            ("assistant", "Hello Ada"),
            ("user", "I like tea"),
            ("assistant", "So do I"),
        ];
        for (request, question) in sent.iter().zip(["what is my name?", "and what do I like?"]) {
            let mut expected = expected.to_vec();
            expected.push(("user", question));
            let expected: Vec<_> = expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            assert_eq!(messages(request), expected);
        }
    }
}

#[tokio::test]
async fn hermes_agent_does_not_get_the_messages_that_it_remembers() {
    let gateway = polite().await;
    let rig = with_key(&gateway).await;
    say(&rig, "my name is Ada").await;
    rig.said("my name is Ada", "Hello Ada").await;
    for _ in 0..3 {
        say(&rig, "what is my name?").await;
    }
    for request in &gateway.requests()[1..] {
        assert_eq!(messages(request), chat([("user", "what is my name?")]));
        assert!(request.header(SESSION).is_some());
    }
    assert_eq!(gateway.probes(), 1, "its health is asked for once a context");
}

#[tokio::test]
async fn a_wrong_guess_about_the_gateway_corrects_itself() {
    let gateway = polite().await;
    let rig = with_key(&gateway).await;
    say(&rig, "my name is Ada").await;
    rig.said("my name is Ada", "Hello Ada").await;
    say(&rig, "one").await;
    // Another gateway takes its place, which keeps nothing and names no session.
    gateway.keep_no_sessions();
    for text in ["two", "three"] {
        say(&rig, text).await;
    }
    // The first one comes back.
    gateway.keep_sessions();
    for text in ["four", "five"] {
        say(&rig, text).await;
    }
    let told: Vec<usize> = gateway.requests().iter().map(|request| messages(request).len()).collect();
    assert_eq!(told, [1, 1, 1, 3, 3, 1]);
    assert_eq!(gateway.probes(), 1, "the answers tell");
}

#[tokio::test]
async fn the_setting_overrides_the_guess() {
    let known = [("user", "my name is Ada"), ("assistant", "Hello Ada"), ("user", "what is my name?")];
    for (history, keeps, told) in [
        ("messages", true, 3),
        ("messages", false, 3),
        ("session", false, 1),
        ("none", true, 1),
        ("none", false, 1),
    ] {
        let gateway = polite().await;
        if !keeps {
            gateway.keep_no_sessions();
        }
        let rig = with_key(&gateway).await.setting("history", history);
        rig.said("my name is Ada", "Hello Ada").await;
        say(&rig, "what is my name?").await;
        let [request] = gateway.requests().try_into().unwrap();
        assert_eq!(messages(&request), chat(known)[3 - told..], "{history}");
        assert_eq!(request.header(SESSION).is_some(), history == "session", "{history}");
        assert!(
            request.header(SCOPE).is_some(),
            "the scope of long-term memory is another matter: {history}"
        );
        assert_eq!(gateway.probes(), 0, "{history}");
    }
}

#[tokio::test]
async fn thoughts_and_files_are_not_sent_back_and_both_sides_take_turns() {
    let gateway = polite().await;
    let rig = rig(&gateway).await;
    rig.said("one", "<think>what could one be?</think>\n\nfirst").await;
    rig.said("two", "<think>cut off").await;
    rig.said("three", "third").await;
    say(&rig, "four").await;
    let expected = [
        ("user", "one"),
        ("assistant", "first"),
        ("user", "two\n\nthree"),
        ("assistant", "third"),
        ("user", "four"),
    ];
    assert_eq!(messages(&gateway.request()), chat(expected));
}

#[tokio::test]
async fn the_history_is_bounded_and_the_newest_messages_stay() {
    let gateway = polite().await;
    let rig = rig(&gateway).await;
    rig.said("oldest", &"x".repeat(200 << 10)).await;
    rig.said("old", &"y".repeat(200 << 10)).await;
    rig.said("new", "short").await;
    say(&rig, "now").await;
    let sent = messages(&gateway.request());
    let begins: Vec<&str> = sent.iter().map(|(_, content)| content.get(..3).unwrap_or_default()).collect();
    assert_eq!(begins, ["old", "yyy", "new", "sho", "now"]);
    let body: Value = serde_json::from_slice(&gateway.request().body).unwrap();
    assert_eq!(body["stream"], json!(false));
}
