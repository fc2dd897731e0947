//! What is offered and returned is bounded, and safe to read.

use serde_json::{Value, json};
use talaria_fakes::{FakeToolServer, Reply};
use talaria_turns::Toolbox as _;

use crate::kit::Client;

/// A server that answers one method with this result.
async fn server_with(method: &'static str, result: Value) -> FakeToolServer {
    let server = FakeToolServer::start().await;
    server.answer_with(move |asked, message| {
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        (asked == method).then(|| Reply::json(&answer))
    });
    server
}

#[tokio::test]
async fn many_and_large_tools_are_cut_to_what_a_model_can_hold() {
    let mut tools: Vec<_> = (0..200).map(|n| json!({ "name": format!("t{n}") })).collect();
    tools
        .insert(0, json!({ "name": "large", "inputSchema": { "type": "object", "x": "x".repeat(1 << 20) } }));
    tools.insert(0, json!({ "name": "wordy\u{1b}", "description": "\u{202e}d".repeat(1 << 18) }));
    let server = server_with("tools/list", json!({ "tools": tools })).await;
    let offered = Client::new(&server.url()).server.tools().await;
    assert_eq!(offered.len(), 128);
    assert_eq!(offered[0].name, "docs__wordy_");
    assert!(offered[0].description.starts_with(r"\u{202e}d"), "{}", &offered[0].description[..20]);
    let bytes = |tool: &talaria_turns::ToolSpec| tool.description.len() + tool.input_schema.to_string().len();
    assert!(offered.iter().all(|tool| bytes(tool) < 36 << 10 && tool.name.len() <= 64));
}

#[tokio::test]
async fn a_long_result_is_cut_and_says_so() {
    let content = json!([{ "type": "text", "text": "x".repeat(1 << 20) }]);
    let server = server_with("tools/call", json!({ "content": content })).await;
    let text = Client::new(&server.url()).call("docs__echo", json!({})).await.unwrap();
    assert!(text.len() < (256 << 10) + 100 && text.ends_with("is cut here]"), "{}", text.len());
}

#[tokio::test]
async fn arguments_are_bounded() {
    let server = FakeToolServer::start().await;
    let client = Client::new(&server.url());
    client.offers(&["docs__echo", "docs__fail"]).await;
    let said = client.call("docs__echo", json!({ "x": "x".repeat(2 << 20) })).await.unwrap();
    assert!(said.contains("at most 1048576 bytes"), "{said}");
    assert!(server.received("tools/call").is_empty());
}
