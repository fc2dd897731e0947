//! Our client against our own server.

use async_trait::async_trait;
use serde_json::{Value, json};
use talaria_mcp::{Output, PATH, RemoteConfig, Server, Tool, Tools};
use talaria_turns::Toolbox as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::kit::{Client, config};

struct Scales;

#[async_trait]
impl Tools for Scales {
    async fn list(&self) -> Vec<Tool> {
        let input_schema = json!({ "type": "object", "required": ["what"] });
        vec![Tool { name: "weigh", description: "Weighs it.".into(), input_schema }]
    }

    async fn call(&self, name: &str, arguments: Value) -> Option<Output> {
        (name == "weigh").then(|| Output::text(arguments.to_string().len().to_string()))
    }
}

#[tokio::test]
async fn our_client_uses_our_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}{PATH}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let server = Server::new("it", "token-of-the-agent".into(), std::sync::Arc::new(Scales));
    let serving = tokio::spawn(server.serve(listener, stop.clone()));
    let refused = Client::new(&url).server.check().await.unwrap_err();
    assert!(refused.what.contains("401") && refused.fix.contains("`token`"), "{refused:?}");
    let client = Client::of(RemoteConfig { token: Some("token-of-the-agent".into()), ..config(&url) });
    client.offers(&["docs__weigh"]).await;
    let tools = client.server.tools().await;
    assert_eq!(tools[0].input_schema, json!({ "type": "object", "required": ["what"] }));
    assert_eq!(client.call("docs__weigh", json!({ "what": "it" })).await, Ok("13".into()));
    client.stop().await;
    stop.cancel();
    serving.await.unwrap();
}
