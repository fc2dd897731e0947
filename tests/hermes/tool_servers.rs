//! Executors get the tools of a server that the official Python SDK serves; hermes-agent brings it along.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use talaria_egress::{Config, Egress};
use talaria_fakes::free_port;
use talaria_mcp::{RemoteConfig, RemoteServer};
use talaria_turns::{CallingTurn, ContextId, Principal, TaskId, Toolbox as _};

use crate::gateway::hermes;

/// The longest wait for the server's start.
const START: Duration = Duration::from_secs(120);

/// Its arguments are the port and whether it works without sessions and streams.
const SERVER: &str = r#"
import sys
from mcp.server.fastmcp import Context, FastMCP

plain = sys.argv[2] == "plain"
server = FastMCP("docs", host="127.0.0.1", port=int(sys.argv[1]), stateless_http=plain, json_response=plain)

@server.tool(description="Adds two numbers.")
async def add(a: int, b: int, context: Context) -> str:
    await context.report_progress(1, 2)
    await context.info("adding")
    return str(a + b)

@server.tool(name="no.way")
def no_way() -> str:
    raise ValueError("no way")

server.run(transport="streamable-http")
"#;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn tools_of_the_official_python_sdk_are_listed_and_called() {
    for form in ["plain", "sessions"] {
        let port = free_port();
        let python = hermes().parent().expect("a folder of programs").join("python");
        let mut command = Command::new(python);
        command.args(["-c", SERVER, &port.to_string(), form]).stdin(Stdio::null()).stderr(Stdio::null());
        let _server = Server(command.spawn().expect("Python starts"));
        let config = RemoteConfig {
            name: "docs".into(),
            url: format!("http://127.0.0.1:{port}/mcp"),
            token: None,
            headers: Vec::new(),
            timeout: Duration::from_secs(60),
            include: None,
            private: false,
        };
        let egress = Egress::new(Config::default());
        let server = || RemoteServer::new(config.clone(), &egress, Arc::new(|_, _| ())).unwrap();
        let start = Instant::now();
        while let Err(fault) = server().check().await {
            assert!(start.elapsed() < START, "{form}: the server is not up after {START:?}: {fault}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let server = server();
        let turn = CallingTurn {
            owner: Principal::anyone(),
            task: TaskId::fresh(),
            context: ContextId::fresh(),
            traceparent: None,
        };
        let tools = server.tools().await;
        let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["docs__add", "docs__no_way"], "{form}");
        assert_eq!(tools[0].description, "Adds two numbers.");
        assert_eq!(tools[0].input_schema["properties"]["a"]["type"], "integer");
        let call = async |name: &str, arguments| server.call(&turn, name, arguments).await.unwrap();
        assert_eq!(call("docs__add", json!({ "a": 2, "b": 3 })).await, "5", "{form}");
        let refused = call("docs__no_way", json!({})).await;
        assert!(refused.starts_with("The tool failed:\n") && refused.contains("no way"), "{form}: {refused}");
        let wrong = call("docs__add", json!({ "a": "x" })).await;
        assert!(wrong.starts_with("The tool failed:\n"), "{form}: {wrong}");
    }
}
