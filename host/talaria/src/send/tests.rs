//! Sending to an agent over a real socket: the card, the choice of version, the reply, and what goes wrong.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::*;
use crate::cli::{Cli, Command};

/// What the agent was asked.
#[derive(Debug, Clone)]
struct Asked {
    method: String,
    path: String,
    version: Option<String>,
    authorization: Option<String>,
    body: Value,
}

type Script = dyn Fn(&Asked) -> (u16, Value) + std::marker::Send + Sync;

/// An agent that answers by a script and remembers what it was asked. It ends with the test's runtime.
struct Fake {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    async fn start(
        script: impl Fn(&str, &Asked) -> (u16, Value) + std::marker::Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let own = url.clone();
        let script: Arc<Script> = Arc::new(move |asked| script(&own, asked));
        let (tracker, remembered) = (TaskTracker::new(), Arc::clone(&asked));
        tracker.clone().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, remembered) = (Arc::clone(&script), Arc::clone(&remembered));
                tracker.spawn(async move {
                    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let (script, remembered) = (Arc::clone(&script), Arc::clone(&remembered));
                        async move {
                            let (head, body) = request.into_parts();
                            let header = |name: &str| Some(head.headers.get(name)?.to_str().ok()?.to_owned());
                            let body = body.collect().await.expect("a body").to_bytes();
                            let asked = Asked {
                                method: head.method.to_string(),
                                path: head.uri.path().into(),
                                version: header("a2a-version"),
                                authorization: header("authorization"),
                                body: serde_json::from_slice(&body).unwrap_or_default(),
                            };
                            let (status, answer) = script(&asked);
                            remembered.lock().expect("no panic").push(asked);
                            let body = match answer {
                                Value::String(text) => text,
                                answer => answer.to_string(),
                            };
                            let mut response = http::Response::new(Full::new(Bytes::from(body)));
                            *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
                            Ok::<_, Infallible>(response)
                        }
                    });
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Self { url, asked }
    }

    /// An agent with a card for both versions, whose answers are these.
    async fn answering(answer: impl Fn(&Asked) -> (u16, Value) + std::marker::Send + Sync + 'static) -> Self {
        Self::start(move |url, asked| match asked.method.as_str() {
            "GET" if asked.path == "/.well-known/agent-card.json" => (200, card(url)),
            "GET" => (404, json!("nothing here")),
            _ => answer(asked),
        })
        .await
    }

    async fn send(&self, flags: &str) -> Result<Answer, SendError> {
        send_to(&self.url, flags).await
    }

    /// The last thing asked.
    fn last(&self) -> Asked {
        self.asked.lock().expect("no panic").last().cloned().expect("something was asked")
    }
}

fn card(url: &str) -> Value {
    let interface =
        |version: &str| json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": version });
    json!({ "name": "fake", "supportedInterfaces": [interface("1.0"), interface("0.3")], "url": url })
}

fn hello(asked: &Asked) -> (u16, Value) {
    let result = match asked.body["method"].as_str() {
        Some("SendMessage") => json!({ "message": { "contextId": "c", "parts": [{ "text": "hello" }] } }),
        _ => json!({ "kind": "message", "contextId": "c", "parts": [{ "kind": "text", "text": "hello" }] }),
    };
    (200, json!({ "jsonrpc": "2.0", "id": 1, "result": result }))
}

fn arguments(url: &str, flags: &str) -> crate::cli::Send {
    let line = ["talaria", "send", url].into_iter().chain(flags.split_whitespace());
    match Cli::try_parse_from(line).expect("valid flags").command {
        Command::Send(send) => send,
        other => panic!("not send: {other:?}"),
    }
}

async fn send_to(url: &str, flags: &str) -> Result<Answer, SendError> {
    let env = |name: &str| (name == "TOKEN_OF_TEST").then(|| "hunter2".to_owned());
    send(&arguments(url, flags), &env, &mut "from a pipe".as_bytes()).await
}

async fn error(url: &str, flags: &str) -> String {
    send_to(url, flags).await.expect_err("a failure").to_string()
}

#[tokio::test]
async fn the_newest_version_is_spoken() {
    let fake = Fake::answering(hello).await;
    let answer = fake.send("hi --context c1 --task t1").await.expect("a reply");
    assert_eq!(answer.to_string(), "hello");
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
    assert_eq!(fake.send("hi --protocol 0.3").await.expect("a reply").to_string(), "hello");
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
    let read = |bytes: Vec<u8>| message("-", &mut bytes.as_slice()).map_err(|error| error.to_string());
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
        usage("http://a", "hi --stream").await,
        "this version has no streaming; leave out --stream, the reply comes in one piece"
    );
    assert_eq!(
        usage("http://a", "hi --token-env NOT_SET").await,
        "the environment variable `NOT_SET` of --token-env is not set"
    );
    assert!(usage("http://256.1.1.1", "hi").await.starts_with("`http://256.1.1.1` cannot be called: "));
}
