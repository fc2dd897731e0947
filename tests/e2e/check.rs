//! `talaria check` exits with 0 if every executor is ready, otherwise with 1 and says what to do.

use serde_json::Value;
use talaria_fakes::{FakeGateway, Reply, guest};

use crate::bridge::{run, stderr, stdout, talaria};

#[tokio::test]
async fn exits_with_0_if_every_executor_is_ready() {
    let gateway = FakeGateway::always(Reply::completion("hi")).await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = talaria(folder.path());
    command.arg("check").env("HERMES_API_BASE", gateway.base_url());
    let checked = tokio::task::spawn_blocking(move || run(&mut command)).await.unwrap();
    assert_eq!(checked.status.code(), Some(0), "{}{}", stdout(&checked), stderr(&checked));
    assert!(stdout(&checked).contains("executor chat-completions (default): ready"), "{}", stdout(&checked));
}

#[test]
fn reports_an_upstream_that_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let port = talaria_fakes::free_port();
    let checked = run(talaria(folder.path())
        .arg("check")
        .env("HERMES_API_BASE", format!("http://127.0.0.1:{port}/v1")));
    assert_eq!(checked.status.code(), Some(1));
    assert!(stdout(&checked).contains("connection refused"), "{}", stdout(&checked));
}

#[test]
fn reports_a_missing_grant_with_the_line_to_add() {
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
        [
            r#"egress = ["POST http://127.0.0.1:8642/v1/chat/completions"]"#,
            r#"egress = ["GET http://127.0.0.1:8642/v1/models"]"#,
            r#"egress = ["GET http://127.0.0.1:8642/api/sessions*"]"#,
            r#"egress = ["GET http://127.0.0.1:8642/health/detailed"]"#,
            r#"egress = ["GET http://127.0.0.1:8642/v1/capabilities"]"#,
            r#"egress = ["POST http://127.0.0.1:8642/v1/runs"]"#,
            r#"egress = ["GET http://127.0.0.1:8642/v1/runs/*"]"#,
            r#"egress = ["POST http://127.0.0.1:8642/v1/runs/*"]"#,
            r#"secrets = ["API_SERVER_KEY"]"#
        ]
    );
}

/// A built-in executor gets what its component declares, so the environment of the Python bridge is enough to start.
#[test]
fn a_built_in_executor_is_granted_what_its_component_needs() {
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

/// Covers a component that is not an executor yet: its needs, and the grant that satisfies them.
#[test]
fn inspect_lists_the_needs_of_a_component_and_the_grant_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.wasm");
    std::fs::write(&file, guest("hostile")).unwrap();
    let shown = run(talaria(folder.path()).args(["executor", "inspect", "mine.wasm"]));
    assert_eq!(shown.status.code(), Some(0), "{}{}", stdout(&shown), stderr(&shown));
    let text = stdout(&shown);
    assert!(text.contains("denied; add egress = [\"* http://127.0.0.1:9/*\"]"), "{text}");
    let lines = "[executor.mine.grant]\negress = [\"* http://127.0.0.1:9/*\"]\nsecrets = [\"PROBE_KEY\"]\ncallbacks = true";
    assert!(text.contains(lines), "{text}");

    // With these lines, nothing is missing.
    std::fs::create_dir(folder.path().join("executors")).unwrap();
    std::fs::rename(&file, folder.path().join("executors/mine.wasm")).unwrap();
    std::fs::write(folder.path().join("executors/mine.toml"), lines.replace("executor.mine.", "")).unwrap();
    let shown = run(talaria(folder.path()).args(["executor", "inspect", "mine", "--output", "json"]));
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&shown["executor"], &shown["add"]), (&"mine".into(), &serde_json::json!([])), "{shown}");
    let denied = shown["needs"].as_array().unwrap().iter().filter(|need| need.get("add").is_some()).count();
    assert_eq!(denied, 0, "{shown}");

    let listed = run(talaria(folder.path()).args(["executor", "list", "--output", "json"]));
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let names: Vec<&str> = listed["executors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|listed| listed["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"mine") && names.contains(&"chat-completions"), "{listed}");
}
