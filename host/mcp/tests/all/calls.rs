//! Calls of tools: answers in both forms, sessions, and calls that nobody waits for.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_fakes::{FakeToolServer, Reply, soon};
use talaria_mcp::{CallEnd, RemoteConfig};
use talaria_turns::{ToolError, Toolbox as _};

use crate::kit::{Client, config, turn};

#[tokio::test]
async fn tools_are_called_with_documents_and_with_streams() {
    let server = FakeToolServer::start().await;
    let client = Client::new(&server.url());
    assert_eq!(client.call("docs__echo", json!({ "x": "1" })).await, Ok(r#"{"x":"1"}"#.into()));
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {} });
    let question = json!({ "jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage" });
    server.stream(&[progress, question]);
    assert_eq!(client.call("docs__echo", Value::Null).await, Ok("{}".into()));
    let answered = server.responses();
    let to = |id: Value| answered.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(to(json!(7))["error"]["code"], -32_601, "nothing is offered to a server");
    assert_eq!(to(json!("p-1"))["result"], json!({}));
    let version = |request: &talaria_fakes::Recorded| request.headers.get("mcp-protocol-version").cloned();
    let versions: Vec<_> = server.requests().iter().map(version).collect();
    assert_eq!(versions[0], None, "it is agreed on first");
    assert!(versions[1..].iter().all(|version| version.as_ref().unwrap() == "2025-11-25"), "{versions:?}");
    assert_eq!(*client.ends.lock().unwrap(), [CallEnd::Done, CallEnd::Done]);
}

#[tokio::test]
async fn an_error_of_a_tool_is_a_result_that_says_so() {
    let server = FakeToolServer::start().await;
    let client = Client::new(&server.url());
    assert_eq!(client.call("docs__fail", json!({})).await, Ok("The tool failed:\nit went wrong".into()));
    let refused = client.call("docs__echo", json!("text")).await.unwrap();
    assert!(refused.starts_with("The tool failed:\nthe arguments must be a JSON object"), "{refused}");
    server.answer_with(|method, message| {
        let error = json!({ "code": -32_000, "message": "no\u{1b}[2J" });
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
        (method == "tools/call").then(|| Reply::json(&answer))
    });
    let refused = client.call("docs__echo", json!({})).await;
    assert_eq!(refused, Ok("The tool failed:\nno\\u{1b}[2J".into()), "control characters are written out");
    assert_eq!(*client.ends.lock().unwrap(), [CallEnd::Refused; 3]);
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_opened_again() {
    let server = FakeToolServer::start().await;
    server.keep_sessions();
    let client = Client::new(&server.url());
    assert_eq!(client.call("docs__echo", json!({})).await, Ok("{}".into()));
    for opened in 2..4 {
        server.forget_session();
        let calls = (0..5).map(|_| client.call("docs__echo", json!({})));
        let called = futures_util::future::join_all(calls).await;
        assert!(called.iter().all(Result::is_ok), "{called:?}");
        assert_eq!(server.received("initialize").len(), opened, "one call opens it for all");
    }
    client.stop().await;
    assert_eq!(server.ended(), ["session-3"], "the last one is ended");
}

#[tokio::test]
async fn a_server_that_never_knows_its_session_is_not_asked_for_ever() {
    let server = FakeToolServer::start().await;
    server.keep_sessions();
    let client = Client::new(&server.url());
    client.offers(&["docs__echo", "docs__fail"]).await;
    server.answer_with(|method, _| (method == "tools/call").then(|| Reply::status(404, "text/plain", "")));
    assert!(client.unavailable().await.contains("404"));
    assert_eq!(server.received("tools/call").len(), 2);
}

#[tokio::test]
async fn a_server_that_never_answers_is_left_at_the_deadline_and_told() {
    let server = FakeToolServer::start().await;
    let timeout = Duration::from_millis(500);
    let client = Client::of(RemoteConfig { timeout, ..config(&server.url()) });
    client.offers(&["docs__echo", "docs__fail"]).await;
    server.answer_with(|method, _| (method == "tools/call").then(Reply::hang));
    let why = client.unavailable().await;
    assert!(why.contains("did not answer within 0.5 s"), "{why}");
    cancelled(&server).await;
    assert_eq!(*client.ends.lock().unwrap(), [CallEnd::Failed]);
}

#[tokio::test]
async fn a_turn_that_ends_ends_its_call() {
    let server = FakeToolServer::start().await;
    let client = Client::new(&server.url());
    client.offers(&["docs__echo", "docs__fail"]).await;
    server.answer_with(|method, _| (method == "tools/call").then(Reply::hang));
    let remote = Arc::clone(&client.server);
    let call = tokio::spawn(async move { remote.call(&turn(), "docs__echo", json!({})).await });
    received(&server, "tools/call", 1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    cancelled(&server).await;
    assert_eq!(*client.ends.lock().unwrap(), [CallEnd::Abandoned]);
}

#[tokio::test]
async fn few_calls_run_at_once_and_the_others_wait() {
    let server = FakeToolServer::start().await;
    let client = Client::new(&server.url());
    client.offers(&["docs__echo", "docs__fail"]).await;
    server.answer_with(|method, _| (method == "tools/call").then(Reply::hang));
    let calls = futures_util::future::join_all((0..20).map(|_| client.call("docs__echo", json!({}))));
    let watch = async {
        received(&server, "tools/call", 8).await;
        // Calls that did not wait would arrive before this, which is several requests.
        client.server.check().await.unwrap();
        server.received("tools/call").len()
    };
    tokio::select! {
        called = calls => panic!("{called:?}"),
        arrived = watch => assert_eq!(arrived, 8),
    }
}

/// Waits for so many messages.
async fn received(server: &FakeToolServer, method: &str, count: usize) {
    soon(&format!("{count} of {method}"), async {
        while server.received(method).len() < count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Waits until the server knows that nobody waits for its call.
async fn cancelled(server: &FakeToolServer) {
    received(server, "notifications/cancelled", 1).await;
    let (call, told) = (server.received("tools/call"), server.received("notifications/cancelled"));
    assert_eq!(told[0]["params"]["requestId"], call[0]["id"]);
}

#[tokio::test]
async fn tools_of_other_servers_are_unknown() {
    let client = Client::new("http://127.0.0.1:1/mcp");
    for name in ["other__echo", "docs", "docs_echo", ""] {
        assert_eq!(client.call(name, json!({})).await, Err(ToolError::Unknown(name.into())));
    }
}
