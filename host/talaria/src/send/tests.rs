//! Sending to an agent over a real socket: the card, the choice of version, the reply, and what goes wrong.

mod conversations;
mod cuts;
mod fake;
mod seat;
mod streams;

use tokio::net::TcpListener;

use super::*;
use fake::{Fake, card, hello};
use seat::{Seat, arguments, env};

async fn send_to(url: &str, flags: &str) -> Result<String, SendError> {
    let mut seat = Seat::new(Format::Text);
    converse(&arguments(url, flags), &env, &mut seat.desk).await?;
    Ok(seat.words.text())
}

impl Fake {
    /// What is printed.
    async fn send(&self, flags: &str) -> Result<String, SendError> {
        send_to(&self.url, flags).await
    }
}

async fn error(url: &str, flags: &str) -> String {
    send_to(url, flags).await.expect_err("a failure").to_string()
}

#[tokio::test]
async fn the_newest_version_is_spoken() {
    let fake = Fake::answering(hello).await;
    let answer = fake.send("hi --context c1 --task t1").await.expect("a reply");
    assert_eq!(answer, "hello\n");
    let asked = fake.last();
    assert_eq!((asked.version.as_deref(), asked.body["method"].as_str()), (Some("1.0"), Some("SendMessage")));
    let message = &asked.body["params"]["message"];
    assert_eq!((&message["role"], &message["parts"]), (&json!("ROLE_USER"), &json!([{ "text": "hi" }])));
    assert_eq!((&message["contextId"], &message["taskId"]), (&json!("c1"), &json!("t1")));
    assert!(!message["messageId"].as_str().expect("an id").is_empty());
    assert_eq!(asked.authorization, None);
}

#[tokio::test]
async fn the_old_version_is_spoken_when_asked_for() {
    let fake = Fake::answering(hello).await;
    assert_eq!(fake.send("hi --protocol 0.3").await.expect("a reply"), "hello\n");
    let asked = fake.last();
    assert_eq!(asked.body["method"], "message/send");
    let message = &asked.body["params"]["message"];
    assert_eq!((&message["kind"], &message["role"]), (&json!("message"), &json!("user")));
    assert_eq!(message["parts"], json!([{ "kind": "text", "text": "hi" }]));
    assert!(message.get("contextId").is_none() && message.get("taskId").is_none());
}

#[tokio::test]
async fn a_dash_reads_standard_input() {
    let fake = Fake::answering(hello).await;
    fake.send("-").await.expect("a reply");
    assert_eq!(fake.last().body["params"]["message"]["parts"][0]["text"], "from a pipe");
    let read = |bytes: Vec<u8>| {
        let mut keyboard = desk::Keyboard::new(std::io::Cursor::new(bytes), false);
        keyboard.all().map_err(|error| error.to_string())
    };
    assert!(read(vec![b'x'; 1 << 20]).is_ok());
    assert_eq!(
        read(vec![b'x'; (1 << 20) + 1]).expect_err("too long"),
        "the message on standard input is longer than 1 MiB; send less"
    );
    assert_eq!(read(vec![0xff]).expect_err("no text"), "the message on standard input is not UTF-8 text");
}

#[tokio::test]
async fn a_card_below_a_path_or_at_an_older_place_is_found() {
    let at = |place: &'static str| {
        Fake::start(move |url, asked| match asked.method.as_str() {
            "GET" if asked.path == place => (200, card(url)),
            "GET" => (404, json!("nothing here")),
            _ => hello(asked),
        })
    };
    for place in [
        "/agents/a/.well-known/agent-card.json",
        "/.well-known/agent-card.json",
        "/agents/a/.well-known/agent.json",
    ] {
        let fake = at(place).await;
        assert!(send_to(&format!("{}/agents/a/", fake.url), "hi").await.is_ok(), "{place}");
    }
    let fake = at("/.well-known/agent-card.json").await;
    assert!(send_to(&format!("{}/.well-known/agent-card.json", fake.url), "hi").await.is_ok());
}

#[tokio::test]
async fn the_token_goes_where_the_caller_pointed_and_nowhere_else() {
    let fake = Fake::answering(hello).await;
    fake.send("hi --token-env TOKEN_OF_TEST").await.expect("a reply");
    assert!(
        fake.asked
            .lock()
            .expect("no panic")
            .iter()
            .all(|asked| asked.authorization.as_deref() == Some("Bearer hunter2"))
    );

    let elsewhere = Fake::answering(hello).await;
    let target = elsewhere.url.clone();
    let lure = Fake::start(move |_, _| (200, card(&target))).await;
    let text = error(&lure.url, "hi --token-env TOKEN_OF_TEST").await;
    assert!(text.starts_with(&format!("the card names {} as the agent's address", elsewhere.url)), "{text}");
    assert!(elsewhere.asked.lock().expect("no panic").is_empty());
    assert!(lure.send("hi").await.is_ok(), "without a token the card is followed");
    assert_eq!(elsewhere.last().authorization, None);
}

#[tokio::test]
async fn what_the_agent_refuses_is_told_with_the_way_out() {
    let fake = Fake::answering(|_| {
        (200, json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32001, "message": "Task not found" } }))
    })
    .await;
    let refused = fake.send("hi --task t").await.expect_err("refused");
    assert_eq!(
        refused.to_string(),
        "the agent refused: Task not found (-32001); give the id of a task of yours, or leave out --task"
    );
    assert_eq!(refused.document(), json!({ "code": -32001, "message": "Task not found" }));
}

#[tokio::test]
async fn an_answer_that_is_none_is_shown() {
    let fake = Fake::answering(|_| (200, json!("<html>\u{1b}[2J"))).await;
    let text = error(&fake.url, "hi").await;
    assert_eq!(text, format!("{} did not answer with JSON-RPC:\n<html>\u{fffd}[2J", fake.url));
    let fake = Fake::answering(|_| (401, json!(""))).await;
    let text = error(&fake.url, "hi").await;
    assert_eq!(
        text,
        format!(
            "{} answered with HTTP 401; it wants a token, give its environment variable with --token-env NAME",
            fake.url
        )
    );
    let fake = Fake::answering(|_| (200, json!({ "jsonrpc": "2.0", "id": 1, "result": {} }))).await;
    assert_eq!(error(&fake.url, "hi").await, "the agent's result is neither a message nor a task");
    let fake = Fake::start(|_, _| (200, json!({ "hello": "world" }))).await;
    assert!(error(&fake.url, "hi").await.contains("/.well-known/agent-card.json is no agent card"));
    let fake = Fake::start(|_, _| (404, json!("no"))).await;
    let url = &fake.url;
    let expected = format!(
        "there is no agent card at {url}/.well-known/agent-card.json; is `{url}` the address of an A2A agent?"
    );
    assert_eq!(error(url, "hi").await, expected);
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let text = error(&url, "hi").await;
    assert!(text.starts_with(&format!("cannot reach {url}: ")), "{text}");
    assert!(text.ends_with("; is the agent running there?"), "{text}");
}

#[tokio::test]
async fn a_command_line_that_cannot_be_used_is_the_callers() {
    let usage = |url: &'static str, flags: &'static str| async move {
        match send_to(url, flags).await {
            Err(SendError::Usage(text)) => text,
            other => panic!("not a usage error: {other:?}"),
        }
    };
    assert_eq!(
        usage("localhost:8000", "hi").await,
        "`localhost:8000` is no address that starts with http:// or https://; write it like \"http://127.0.0.1:8000\""
    );
    assert_eq!(
        usage("http://a/?b=c", "hi").await,
        "`http://a/?b=c` has a query; give the agent's address alone"
    );
    assert_eq!(
        usage("http://a", "hi --token-env NOT_SET").await,
        "the environment variable `NOT_SET` of --token-env is not set"
    );
    assert!(usage("http://256.1.1.1", "hi").await.starts_with("`http://256.1.1.1` cannot be called: "));
}
