//! Servers of tools that the operator names: the host reads their lists, and `talaria doctor` finds those that are down.

use std::fs;

use serde_json::Value;
use talaria_fakes::{FakeToolServer, free_port, soon};

use crate::bridge::{Start, admin, run, stderr, stdout, talaria};

/// Two servers; at the second nobody listens.
fn config(server: &FakeToolServer) -> String {
    let (up, down) = (server.url(), format!("http://127.0.0.1:{}/mcp", free_port()));
    format!(
        "[tools.servers.docs]\nurl = \"{up}\"\ntoken = {{ env = \"DOCS_TOKEN\" }}\n[tools.servers.down]\nurl = \"{down}\"\n"
    )
}

// Waiting for the bridge blocks a thread.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_reads_the_tools_of_its_servers_and_starts_without_those_that_are_down() {
    let (folder, server) = (tempfile::tempdir().unwrap(), FakeToolServer::start().await);
    server.keep_sessions();
    let toml = format!("{}[admin]\nlisten = \"127.0.0.1:0\"\n", config(&server));
    let bridge = Start::new(folder.path()).config(&toml).env("DOCS_TOKEN", "token-of-the-docs").up();
    let metrics = async || admin(&bridge, "GET", "/metrics").await.1.as_str().unwrap_or_default().to_owned();
    soon("the list is read", async {
        while !metrics().await.contains("talaria_tool_server_up{server=\"docs\"} 1") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(metrics().await.contains("talaria_tool_server_up{server=\"down\"} 0"));
    for request in server.requests() {
        assert_eq!(request.headers["authorization"], "Bearer token-of-the-docs");
    }
    bridge.terminate();
    let (code, log) = bridge.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("token-of-the-docs"), "{log}");
    assert_eq!(server.ended(), ["session-1"], "the session is ended with the host");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_servers_that_do_not_answer() {
    let (folder, server) = (tempfile::tempdir().unwrap(), FakeToolServer::start().await);
    fs::write(folder.path().join("talaria.toml"), config(&server)).unwrap();
    let mut command = talaria(folder.path());
    command.args(["doctor", "--output", "json"]).env("HOME", folder.path()).env("DOCS_TOKEN", "t");
    let output = run(&mut command);
    let report: Value =
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    let found: Vec<_> =
        report["checks"].as_array().unwrap().iter().filter(|check| check["name"] == "tool server").collect();
    let [docs, down] = found.as_slice() else { panic!("{report:#}") };
    assert_eq!((&docs["verdict"], &docs["finding"]), (&"ok".into(), &"\"docs\" offers 2 tools".into()));
    assert_eq!(down["verdict"], "warning");
    assert!(down["finding"].as_str().unwrap().starts_with("\"down\" cannot be used: "), "{down}");
    assert_eq!(down["fix"], "check that the server runs, and its `url`");
}
