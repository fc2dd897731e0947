//! `talaria check`: 0 if all is well, 1 if an executor is not, with what to do about it.

use serde_json::Value;
use talaria_testkit::{FakeGateway, Reply};

use crate::bridge::{run, stderr, stdout, talaria};

#[tokio::test]
async fn all_is_well() {
    let gateway = FakeGateway::always(Reply::completion("hi")).await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = talaria(folder.path());
    command.arg("check").env("HERMES_API_BASE", gateway.base_url());
    let checked = tokio::task::spawn_blocking(move || run(&mut command)).await.unwrap();
    assert_eq!(checked.status.code(), Some(0), "{}{}", stdout(&checked), stderr(&checked));
    assert!(stdout(&checked).contains("executor chat-completions (default): ready"), "{}", stdout(&checked));
}

#[test]
fn an_upstream_that_is_down_is_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let checked = run(talaria(folder.path())
        .arg("check")
        .env("HERMES_API_BASE", format!("http://127.0.0.1:{port}/v1")));
    assert_eq!(checked.status.code(), Some(1));
    assert!(stdout(&checked).contains("connection refused"), "{}", stdout(&checked));
}

#[test]
fn what_is_needed_and_not_granted_comes_with_the_line_to_add() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("talaria.toml"),
        "[executor.chat-completions.grant]\negress = [\"GET http://127.0.0.1:8642/v1/health\"]\nsecrets = []\n",
    )
    .unwrap();
    let checked = run(talaria(folder.path()).args(["check", "--output", "json"]));
    let report: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let needs = report["executors"][0]["needs"].as_array().unwrap();
    let adds: Vec<&str> = needs.iter().filter_map(|need| need["add"].as_str()).collect();
    assert_eq!(
        adds,
        [r#"egress = ["POST http://127.0.0.1:8642/v1/chat/completions"]"#, r#"secrets = ["API_SERVER_KEY"]"#]
    );
}

/// The configuration knows what a built-in component needs, so that the seeds' environment is enough to boot.
#[test]
fn the_grant_of_a_built_in_executor_covers_what_its_component_needs() {
    let folder = tempfile::tempdir().unwrap();
    let checked =
        run(talaria(folder.path()).args(["check", "--output", "json"]).env("API_SERVER_KEY", "k".repeat(16)));
    let report: Value = serde_json::from_slice(&checked.stdout).unwrap();
    for executor in report["executors"].as_array().unwrap() {
        for need in executor["needs"].as_array().unwrap() {
            assert_eq!(need["granted"], true, "{}: {need}", executor["name"]);
        }
    }
}
