//! The list of tools: cached, renewed, and bounded.

use serde_json::json;
use talaria_fakes::{FakeToolServer, Reply, free_port};
use talaria_turns::{ToolError, Toolbox as _};

use crate::kit::{Client, config};

#[tokio::test]
async fn tools_are_offered_under_the_name_of_their_server() {
    let server = FakeToolServer::start().await;
    let client = Client::new(&server.url());
    let tools = client.server.tools().await;
    assert_eq!((tools[0].name.as_str(), tools[0].description.as_str()), ("docs__echo", "The tool echo."));
    assert_eq!(tools[0].input_schema["properties"]["x"]["type"], "string");
    assert!(client.server.is_up());
}

#[tokio::test]
async fn a_server_that_is_down_costs_a_sentence_and_comes_back() {
    let address = format!("127.0.0.1:{}", free_port());
    let client = Client::new(&format!("http://{address}/mcp"));
    assert!(client.names().await.is_empty());
    let why = client.unavailable().await;
    assert!(
        why.starts_with("the tools of \"docs\" cannot be used now: ") && why.contains("go on without them"),
        "{why}"
    );
    assert!(!client.server.is_up());
    let server = FakeToolServer::start_at(&address).await;
    client.offers(&["docs__echo", "docs__fail"]).await;
    assert!(client.server.is_up());
    drop(server);
    client.unavailable().await;
    assert_eq!(client.names().await, ["docs__echo", "docs__fail"], "the last list stays");
}

#[tokio::test]
async fn a_list_that_changed_is_read_again() {
    let server = FakeToolServer::start().await;
    let client = Client::new(&server.url());
    client.offers(&["docs__echo", "docs__fail"]).await;
    server.set_tools(&["echo", "new"]);
    assert_eq!(client.names().await, ["docs__echo", "docs__fail"], "it is cached");
    server.stream(&[json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })]);
    client.call("docs__echo", json!({})).await.unwrap();
    client.offers(&["docs__echo", "docs__new"]).await;
}

#[tokio::test]
async fn a_tool_that_is_not_in_the_list_is_looked_up_once_more() {
    let server = FakeToolServer::start().await;
    let client = Client::new(&server.url());
    client.offers(&["docs__echo", "docs__fail"]).await;
    server.set_tools(&["new"]);
    assert_eq!(client.call("docs__new", json!({})).await, Ok("{}".into()));
    let gone = client.call("docs__echo", json!({})).await;
    assert_eq!(gone, Err(ToolError::Unknown("docs__echo".into())));
}

#[tokio::test]
async fn all_pages_are_read_and_a_list_without_end_ends() {
    let server = FakeToolServer::start().await;
    server.answer_with(|method, message| {
        if method != "tools/list" {
            return None;
        }
        let page = message["params"]["cursor"].as_str().map_or(0, |cursor| cursor.parse().unwrap());
        let tool = json!({ "name": format!("t{page}"), "inputSchema": { "type": "object" } });
        let result = json!({ "tools": [tool], "nextCursor": (page + 1).to_string() });
        Some(Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })))
    });
    let client = Client::new(&server.url());
    let names: Vec<_> = (0..32).map(|page| format!("docs__t{page}")).collect();
    client.offers(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(server.received("tools/list").len(), 32);
}

#[tokio::test]
async fn a_check_tells_the_number_of_tools_and_leaves_no_session() {
    let server = FakeToolServer::start().await;
    server.keep_sessions();
    let include = Some(vec!["echo".to_owned(), "gone".to_owned()]);
    let client = Client::of(talaria_mcp::RemoteConfig { include, ..config(&server.url()) });
    client.offers(&["docs__echo"]).await;
    let (tools, warnings) = client.server.check().await.unwrap();
    assert_eq!((tools, warnings.len()), (1, 1), "{warnings:?}");
    assert_eq!(server.ended(), ["session-1"]);
}
