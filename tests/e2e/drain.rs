//! SIGTERM: running turns finish and their callers get the answers, streams get the id to resume from, then the process
//! ends.
//!
//! The tests need several threads, because starting a bridge blocks one while the gateway answers its probe. The stream is
//! read raw, because its closing bytes are pinned.

use std::sync::Arc;

use serde_json::json;
use talaria_client::{ClientError, Delivery, Message};
use talaria_egress::{Access, Config, Egress, Exchange, Request};
use talaria_fakes::{FakeGateway, Reply, soon};
use tokio::sync::Notify;

use crate::bridge::Start;

/// Subscribes to a task, after the event `after`.
async fn follow(url: &str, task: &str, after: Option<&str>) -> Exchange {
    let access = Access { patterns: vec![format!("POST {url}/*").parse().unwrap()], ..Access::default() };
    let mut headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("a2a-version".to_owned(), "1.0".to_owned()),
    ];
    headers.extend(after.map(|id| ("last-event-id".to_owned(), id.to_owned())));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": { "id": task } });
    let request = Request {
        method: "POST".into(),
        url: format!("{url}/"),
        headers,
        body: body.to_string().into(),
        ..Request::default()
    };
    soon("the stream opens", Egress::new(Config::default()).open(&access, request)).await.unwrap()
}

/// Reads a stream to its end, or until it contains `enough`.
async fn read(stream: &mut Exchange, enough: &str) -> String {
    soon("the stream says it", async {
        let mut text = String::new();
        while !text.contains(enough)
            && let Some(piece) = stream.read(64 * 1024).await.unwrap()
        {
            text.push_str(std::str::from_utf8(&piece).unwrap());
        }
        text
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_turn_is_answered_before_the_end() {
    let release = Arc::new(Notify::new());
    let held = Arc::clone(&release);
    // Only the turn under test waits for its answer.
    let gateway = FakeGateway::start(move |request| {
        let reply = Reply::completion("late but whole");
        if request.json()["messages"][0]["content"] == "wait" { reply.slow(&held) } else { reply }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).env("HERMES_API_BASE", &gateway.base_url()).up();
    let (client, wait, more) = (bridge.client(), Message::new("wait"), Message::new("hi"));
    let (answer, code) = tokio::join!(client.send(&wait, Delivery::Whole), async {
        gateway.asked(1).await;
        bridge.terminate();
        // Once the signal has arrived, the bridge rejects new turns.
        soon("it rejects new turns", async {
            loop {
                let sent = client.send(&more, Delivery::Whole).await;
                if matches!(sent, Err(ClientError::Rejected { code: -32000, .. })) {
                    return;
                }
            }
        })
        .await;
        release.notify_waiters();
        release.notify_one();
        tokio::task::spawn_blocking(|| bridge.end().0).await.unwrap()
    });
    assert_eq!(answer.unwrap().text(), "late but whole");
    assert_eq!(code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_closes_with_the_id_to_resume_from() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let config = "[executors]\ndefault = \"conformance\"\n[a2a]\nreply = \"task\"";
        Start::new(folder.path()).config(config).up()
    };
    let bridge = start();
    let answer = bridge.send(Message::new("tck-input-required"), Delivery::Whole).await;
    let task = &answer.status.task.unwrap();
    let mut stream = follow(bridge.url(), task, None).await;
    let first = read(&mut stream, "\n\n").await;
    assert!(first.contains("TASK_STATE_INPUT_REQUIRED"), "{first}");
    bridge.terminate();
    let closing = read(&mut stream, "never").await;
    let number = first.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    assert_eq!(closing, format!(": closing\nid: {number}\nretry: 1000\n"));
    let (code, _) = tokio::task::spawn_blocking(|| bridge.end()).await.unwrap();
    assert_eq!(code, Some(0));

    let bridge = start();
    let mut stream = follow(bridge.url(), task, Some(number)).await;
    let answer = bridge.send(Message::new("that one").to_task(task), Delivery::Whole).await;
    assert_eq!(answer.status.state.as_deref(), Some("completed"), "{}", answer.raw());
    let rest = read(&mut stream, "never").await;
    let numbers: Vec<u64> =
        rest.lines().filter_map(|line| line.strip_prefix("id: ")).map(|id| id.parse().unwrap()).collect();
    assert!(numbers[0] > number.parse().unwrap() && numbers.is_sorted(), "{rest}");
    assert!(!rest.contains("\"task\""), "it continues and does not begin with a snapshot: {rest}");
    assert!(rest.contains("TASK_STATE_COMPLETED"), "{rest}");
}

/// The grace period is far longer than the test waits for anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_process_at_once() {
    let gateway = FakeGateway::always(Reply::hang()).await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let start = || Start::new(folder.path()).env("HERMES_API_BASE", &gateway.base_url()).log(&log);
    let bridge = start().config("[limits]\ngrace = \"1h\"\n").up();
    let task = bridge.start_turn("wait").await;
    gateway.asked(1).await;
    bridge.terminate();
    let said = |what: &'static str| {
        let log = log.clone();
        soon(what, async move {
            while !std::fs::read_to_string(&log).unwrap().contains(what) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
    };
    said("shutting down").await;
    bridge.terminate();
    said("told to stop again").await;
    let (code, _) = bridge.end();
    assert_eq!(code, Some(1), "a turn was interrupted");
    let bridge = start().up();
    assert_eq!(bridge.settled(&task).await["status"]["state"], "TASK_STATE_FAILED");
}
