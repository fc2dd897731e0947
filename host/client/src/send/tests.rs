//! Sending to an agent over a real socket: the card, the choice of version, the reply, and errors.

mod conversations;
mod cuts;
mod fake_agent;
mod fake_terminal;
mod streams;

use tokio::net::TcpListener;

use super::*;
use fake_agent::{FakeAgent, card, hello};
use fake_terminal::{FakeTerminal, env, options};

async fn send_to(url: &str, flags: &str) -> Result<String, SendError> {
    let mut terminal = FakeTerminal::new(Format::Text);
    converse(&options(url, flags, Format::Text), &env, &mut terminal.terminal).await?;
    Ok(terminal.stdout.text())
}

impl FakeAgent {
    /// Sends a message. Returns the text on standard output.
    async fn send(&self, flags: &str) -> Result<String, SendError> {
        send_to(&self.url, flags).await
    }
}

async fn error(url: &str, flags: &str) -> String {
    send_to(url, flags).await.expect_err("a failure").to_string()
}

#[tokio::test]
async fn speaks_the_newest_version() {
    let agent = FakeAgent::answering(hello).await;
    let answer = agent.send("hi --context c1 --task t1").await.expect("a reply");
    assert_eq!(answer, "hello\n");
    let asked = agent.last();
    assert_eq!((asked.version.as_deref(), asked.body["method"].as_str()), (Some("1.0"), Some("SendMessage")));
    let message = &asked.body["params"]["message"];
    assert_eq!((&message["role"], &message["parts"]), (&json!("ROLE_USER"), &json!([{ "text": "hi" }])));
    assert_eq!((&message["contextId"], &message["taskId"]), (&json!("c1"), &json!("t1")));
    assert!(!message["messageId"].as_str().expect("an id").is_empty());
    assert_eq!(asked.authorization, None);
}

#[tokio::test]
async fn speaks_0_3_on_request() {
    let agent = FakeAgent::answering(hello).await;
    assert_eq!(agent.send("hi --protocol 0.3").await.expect("a reply"), "hello\n");
    let asked = agent.last();
    assert_eq!(asked.body["method"], "message/send");
    let message = &asked.body["params"]["message"];
    assert_eq!((&message["kind"], &message["role"]), (&json!("message"), &json!("user")));
    assert_eq!(message["parts"], json!([{ "kind": "text", "text": "hi" }]));
    assert!(message.get("contextId").is_none() && message.get("taskId").is_none());
}

#[tokio::test]
async fn a_dash_reads_the_message_from_standard_input() {
    let agent = FakeAgent::answering(hello).await;
    agent.send("-").await.expect("a reply");
    assert_eq!(agent.last().body["params"]["message"]["parts"][0]["text"], "from a pipe");
    let read = |bytes: Vec<u8>| {
        let mut keyboard = terminal::Keyboard::new(std::io::Cursor::new(bytes), false);
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
async fn finds_a_card_below_a_path_at_the_root_or_at_the_old_path() {
    let at = |place: &'static str| {
        FakeAgent::start(move |url, asked| match asked.method.as_str() {
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
        let agent = at(place).await;
        assert!(send_to(&format!("{}/agents/a/", agent.url), "hi").await.is_ok(), "{place}");
    }
    let agent = at("/.well-known/agent-card.json").await;
    assert!(send_to(&format!("{}/.well-known/agent-card.json", agent.url), "hi").await.is_ok());
}

#[tokio::test]
async fn sends_the_token_only_to_the_callers_agent() {
    let agent = FakeAgent::answering(hello).await;
    agent.send("hi --token-env TOKEN_OF_TEST").await.expect("a reply");
    assert!(
        agent
            .asked
            .lock()
            .expect("no panic")
            .iter()
            .all(|asked| asked.authorization.as_deref() == Some("Bearer hunter2"))
    );

    let elsewhere = FakeAgent::answering(hello).await;
    let target = elsewhere.url.clone();
    let lure = FakeAgent::start(move |_, _| (200, card(&target))).await;
    let text = error(&lure.url, "hi --token-env TOKEN_OF_TEST").await;
    assert!(text.starts_with(&format!("the card names {} as the agent's address", elsewhere.url)), "{text}");
    assert!(elsewhere.asked.lock().expect("no panic").is_empty());
    assert!(lure.send("hi").await.is_ok(), "without a token the client follows the card");
    assert_eq!(elsewhere.last().authorization, None);
}

#[tokio::test]
async fn a_rejection_comes_with_the_way_out() {
    let agent = FakeAgent::answering(|_| {
        (200, json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32001, "message": "Task not found" } }))
    })
    .await;
    let refused = agent.send("hi --task t").await.expect_err("refused");
    assert_eq!(
        refused.to_string(),
        "the agent refused: Task not found (-32001); give the id of a task of yours, or leave out --task"
    );
    assert_eq!(refused.document(), json!({ "code": -32001, "message": "Task not found" }));
}

#[tokio::test]
async fn quotes_an_unexpected_response() {
    let agent = FakeAgent::answering(|_| (200, json!("<html>\u{1b}[2J"))).await;
    let text = error(&agent.url, "hi").await;
    assert_eq!(text, format!("{} did not answer with JSON-RPC:\n<html>\u{fffd}[2J", agent.url));
    let agent = FakeAgent::answering(|_| (401, json!(""))).await;
    let text = error(&agent.url, "hi").await;
    assert_eq!(
        text,
        format!(
            "{} answered with HTTP 401; it wants a token, give its environment variable with --token-env NAME",
            agent.url
        )
    );
    let agent = FakeAgent::answering(|_| (200, json!({ "jsonrpc": "2.0", "id": 1, "result": {} }))).await;
    assert_eq!(error(&agent.url, "hi").await, "the agent's result is neither a message nor a task");
    let agent = FakeAgent::start(|_, _| (200, json!({ "hello": "world" }))).await;
    assert!(error(&agent.url, "hi").await.contains("/.well-known/agent-card.json is no agent card"));
    let agent = FakeAgent::start(|_, _| (404, json!("no"))).await;
    let url = &agent.url;
    let expected = format!(
        "there is no agent card at {url}/.well-known/agent-card.json; is `{url}` the address of an A2A agent?"
    );
    assert_eq!(error(url, "hi").await, expected);
}

#[tokio::test]
async fn names_an_agent_that_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let text = error(&url, "hi").await;
    assert!(text.starts_with(&format!("cannot reach {url}: ")), "{text}");
    assert!(text.ends_with("; is the agent running there?"), "{text}");
}

#[tokio::test]
async fn a_bad_command_line_is_a_usage_error() {
    let usage = |url: &'static str, flags: &'static str| async move {
        match send_to(url, flags).await {
            Err(SendError::Usage(text) | SendError::Client(ClientError::InvalidInput(text))) => text,
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
