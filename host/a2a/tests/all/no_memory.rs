//! Memory: what a caller makes the server hold is bounded, in every version and binding.

use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use talaria_budget::Budget;
use talaria_turns::{CallerLimits, Principal, Shares};
use tokio::io::AsyncWriteExt as _;

use crate::auth::{PEER, PLATFORM, two_callers};
use crate::kit::{Host, message, patiently, read_answer};
use crate::wire::{ALL, Ask};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn a_turn_that_does_not_fit_is_busy_in_every_version_and_binding() {
    let budget = Budget::new(64 * MIB);
    let host = Host::budgeted(&budget).await;
    let _rest = budget.charge(63 * MIB).unwrap();
    let text = "x".repeat(200_000);
    for wire in ALL {
        for asks in [Ask::Send, Ask::Stream] {
            let answer = wire.ask(&host, &asks(wire.params(&text))).await;
            assert_eq!(answer.status, 429, "{wire:?}: {answer:?}");
            assert_eq!(answer.header("retry-after"), Some("1"), "{wire:?}: {answer:?}");
            let (_, _, reason, _) = wire.error(&answer);
            assert_eq!(reason, "BUSY", "{wire:?}");
        }
    }
    assert_eq!((host.made(), budget.used()), (0, 63 * MIB), "nothing is written and nothing stays charged");
}

#[tokio::test]
async fn a_message_that_was_accepted_is_never_answered_as_busy() {
    let budget = Budget::new(24 * MIB);
    let host = Host::budgeted(&budget).await;
    let (mut busy, mut accepted) = (0, 0);
    // From an empty budget to a full one, so that memory ends at every step of a request.
    for taken in (0..48).map(|half| half * MIB / 2) {
        let _rest = budget.charge(taken).unwrap();
        let before = host.made();
        let mut params = json!({ "message": message(&"x".repeat(MIB)) });
        params["configuration"] = json!({ "returnImmediately": true });
        let answer = host.call_as(&[], "SendMessage", &params).await;
        match answer.status {
            200 => accepted += 1,
            429 => busy += 1,
            _ => panic!("{answer:?}"),
        }
        assert_eq!(host.made() - before, usize::from(answer.status == 200), "{taken} bytes were taken");
        patiently(async {
            while budget.used() > taken {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    assert!(accepted > 5 && busy > 5, "{accepted} accepted, {busy} busy");
}

#[tokio::test]
async fn bodies_that_are_held_back_take_their_share_and_no_more() {
    let budget = Budget::new(8 * MIB);
    let host = Host::budgeted(&budget).await;
    let mut held = Vec::new();
    // Each lacks its last byte.
    let request = |bytes: usize| {
        let head = format!(
            "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\n\r\n"
        );
        [head.into_bytes(), vec![b' '; bytes - 1]].concat()
    };
    for _ in 0..3 {
        let mut stream = host.connect().await;
        stream.write_all(&request(MIB)).await.unwrap();
        held.push(stream);
    }
    patiently(async {
        while budget.used() < 3 * (MIB - 1) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut one_more = host.connect().await;
    let _ = one_more.write_all(&request(2 * MIB)).await;
    let answer = patiently(read_answer(&mut one_more, false)).await;
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (429, Some("1")),
        "half of the memory is taken"
    );
    assert!(budget.used() <= 4 * MIB, "{}", budget.used());
    let sent = host.call("SendMessage", &json!({ "message": message("hello") })).await;
    assert_eq!(
        sent["result"]["message"]["parts"][0]["text"], "echo: hello",
        "others are served meanwhile: {sent}"
    );
    drop((held, one_more));
    patiently(async {
        while budget.used() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_large_response_is_charged_until_it_is_read() {
    let budget = Budget::new(64 * MIB);
    let host = Host::budgeted(&budget).await;
    let mut params = json!({ "message": message(&"x".repeat(2 * MIB)) });
    params["configuration"] = json!({ "returnImmediately": true });
    let sent = host.call("SendMessage", &params).await;
    let id = sent["result"]["task"]["id"].as_str().unwrap().parse().unwrap();
    host.ended(&id).await;
    let quiet = async || {
        patiently(async {
            while budget.used() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    quiet().await;
    let io = TokioIo::new(host.connect().await);
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1_000)
        .handshake(io)
        .await
        .unwrap();
    let clients = tokio_util::task::TaskTracker::new();
    clients.spawn(connection);
    let get = http::Request::get(format!("http://{}/tasks/{id}", host.address)).header("A2A-Version", "1.0");
    let get = get.body(Full::<bytes::Bytes>::default()).unwrap();
    let response = patiently(sender.send_request(get)).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(budget.used() >= 2 * MIB, "it waits to be read: {}", budget.used());
    let read = patiently(response.into_body().collect()).await.unwrap().to_bytes();
    assert!(read.len() >= 2 * MIB);
    quiet().await;
}

#[tokio::test]
async fn what_one_caller_does_not_read_leaves_the_others_their_memory() {
    let budget = Budget::new(64 * MIB);
    // Requests and responses may take 32 MiB, and those of this caller 12.
    let share = CallerLimits { memory: Some(24 * MIB), ..CallerLimits::default() };
    let shares = Shares { callers: [(Principal::named("platform"), share)].into(), ..Shares::default() };
    let host = Host::shared(&budget, shares, two_callers).await;
    let large = json!({ "message": message(&"x".repeat(2 * MIB)) });
    let sent = host.call_as(&[PLATFORM], "SendMessage", &large).await;
    assert_eq!(sent.status, 200);
    let list = host.call_as(&[PLATFORM], "ListTasks", &json!({ "includeArtifacts": false })).await.json();
    let id = list["result"]["tasks"][0]["id"].as_str().unwrap().to_owned();
    let mut unread = Vec::new();
    let clients = tokio_util::task::TaskTracker::new();
    loop {
        let io = TokioIo::new(host.connect().await);
        let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1_000)
            .handshake(io)
            .await
            .unwrap();
        clients.spawn(connection);
        let get = http::Request::get(format!("http://{}/tasks/{id}", host.address));
        let get = get.header("A2A-Version", "1.0").header(PLATFORM.0, PLATFORM.1);
        let get = get.body(Full::<bytes::Bytes>::default()).unwrap();
        let response = patiently(sender.send_request(get)).await.unwrap();
        if response.status() == 429 {
            let said = patiently(response.into_body().collect()).await.unwrap().to_bytes();
            let said = String::from_utf8_lossy(&said).into_owned();
            assert!(said.contains("`limits.caller.memory`"), "{said}");
            break;
        }
        unread.push((sender, response));
        assert!(unread.len() < 6, "more than the share of the caller");
    }
    assert_eq!(host.call_as(&[PEER], "SendMessage", &large).await.status, 200);
    drop(unread);
    patiently(async {
        while host.call_as(&[PLATFORM], "GetTask", &json!({ "id": id })).await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_share_of_the_others_is_not_that_of_a_caller_without_one() {
    let others = CallerLimits { memory: Some(2 * MIB), ..CallerLimits::default() };
    let callers = [(Principal::named("platform"), CallerLimits::default())].into();
    let host = Host::shared(&Budget::new(64 * MIB), Shares { callers, others }, two_callers).await;
    let large = json!({ "message": message(&"x".repeat(2 * MIB)) });
    assert_eq!(host.call_as(&[PLATFORM], "SendMessage", &large).await.status, 200);
    // A body that can never fit is not to be sent again.
    assert_eq!(host.call_as(&[PEER], "SendMessage", &large).await.status, 413);
    let small = json!({ "message": message("hi") });
    assert_eq!(host.call_as(&[PEER], "SendMessage", &small).await.status, 200);
}

#[tokio::test]
async fn a_page_of_large_tasks_ends_early_with_a_token() {
    let host = Host::start().await;
    for _ in 0..6 {
        host.call("SendMessage", &json!({ "message": message(&"x".repeat(MIB)) })).await;
    }
    let (mut token, mut seen, mut pages) = (String::new(), 0, 0);
    loop {
        let params = json!({ "pageToken": token, "includeArtifacts": true });
        let page = host.call("ListTasks", &params).await["result"].clone();
        let tasks = page["tasks"].as_array().unwrap().len();
        assert!((1..=3).contains(&tasks), "{tasks} tasks of two MiB and more");
        assert_eq!(page["totalSize"], 6);
        (seen, pages) = (seen + tasks, pages + 1);
        token = page["nextPageToken"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, 6);
    assert!(pages >= 2, "{pages}");
}
