//! SIGTERM: a turn under way is finished, its caller gets the answer, streams get what they can resume from, then the
//! process ends.
//!
//! Several threads, since starting a bridge blocks one while the gateway answers its probe.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_egress::{Access, Config, Egress, Exchange, Request};
use talaria_fakes::{FakeGateway, Reply, soon};
use tokio::sync::Notify;

use crate::bridge::{Start, call, message};

/// Follows a task, from the event `after` on.
async fn follow(url: &str, task: &Value, after: Option<&str>) -> Exchange {
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

/// The text of a stream until its end, or until it holds `enough`.
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
async fn a_turn_under_way_is_answered_before_the_end() {
    let release = Arc::new(Notify::new());
    let held = Arc::clone(&release);
    // Only the turn under test waits.
    let gateway = FakeGateway::start(move |request| {
        let reply = Reply::completion("late but whole");
        if request.json()["messages"][0]["content"] == "wait" { reply.slow(&held) } else { reply }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).env("HERMES_API_BASE", &gateway.base_url()).up();
    let url = bridge.url().to_owned();
    let (answer, code) =
        tokio::join!(call(&url, "SendMessage", message("wait"), &[("a2a-version", "1.0")]), async {
            gateway.asked(1).await;
            bridge.terminate();
            // It refuses new turns from now on; that is how the test knows that the signal has arrived.
            talaria_fakes::soon("it refuses new turns", async {
                loop {
                    let refused = call(&url, "SendMessage", message("hi"), &[("a2a-version", "1.0")]).await;
                    if refused["error"]["code"] == -32000 {
                        return;
                    }
                }
            })
            .await;
            release.notify_waiters();
            release.notify_one();
            tokio::task::spawn_blocking(|| bridge.end().0).await.unwrap()
        });
    assert_eq!(answer["result"]["message"]["parts"][0]["text"], "late but whole");
    assert_eq!(code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_closed_with_what_it_can_resume_from() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let config = "[executors]\ndefault = \"conformance\"\n[a2a]\nreply = \"task\"";
        Start::new(folder.path()).config(config).up()
    };
    let bridge = start();
    let answer = bridge.call("SendMessage", message("tck-input-required")).await;
    let task = &answer["result"]["task"]["id"];
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
    let mut more = message("that one");
    more["message"]["taskId"] = task.clone();
    let answer = bridge.call("SendMessage", more).await;
    assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{answer}");
    let rest = read(&mut stream, "never").await;
    let numbers: Vec<u64> =
        rest.lines().filter_map(|line| line.strip_prefix("id: ")).map(|id| id.parse().unwrap()).collect();
    assert!(numbers[0] > number.parse().unwrap() && numbers.is_sorted(), "{rest}");
    assert!(!rest.contains("\"task\""), "it goes on where it was, and does not begin again: {rest}");
    assert!(rest.contains("TASK_STATE_COMPLETED"), "{rest}");
}
