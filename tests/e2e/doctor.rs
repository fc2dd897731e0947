//! `talaria doctor`: each thing that can be wrong is found, and told with a fix.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use talaria_testkit::{FakeGateway, Recorded, Reply};

use crate::bridge::{run, stderr, stdout, talaria};

const KEY: &str = "a-key-of-the-tests-0123";

/// A gateway that asks for its key, and says this of itself.
async fn gateway(state: Value) -> FakeGateway {
    FakeGateway::start(move |request: &Recorded| {
        if request.header("authorization") != Some(&format!("Bearer {KEY}")) {
            return Reply::status(401, "application/json", "{}");
        }
        match request.path.as_str() {
            "/v1/models" => Reply::json(&json!({ "data": [] })),
            "/health/detailed" => Reply::json(&json!({ "readiness": { "checks": state } })),
            _ => Reply::status(404, "text/plain", "no"),
        }
    })
    .await
}

/// The report, its exit code, and a finding by the name of its check.
fn doctor(folder: &Path, variables: &[(&str, &str)]) -> (Value, Option<i32>) {
    let config = "[a2a]\nlisten = \"127.0.0.1:0\"\n[callback]\nlisten = \"127.0.0.1:0\"\n";
    fs::write(folder.join("talaria.toml"), config).unwrap();
    let mut command = talaria(folder);
    command.args(["doctor", "--output", "json"]).env("HOME", folder).envs(variables.iter().copied());
    let output = run(&mut command);
    let report = serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    (report, output.status.code())
}

fn finding<'r>(report: &'r Value, name: &str) -> (&'r str, &'r str, &'r str) {
    let checks = report["checks"].as_array().unwrap();
    let worst = checks
        .iter()
        .filter(|check| check["name"] == name)
        .max_by_key(|check| ["ok", "warning", "failure"].iter().position(|known| check["verdict"] == *known));
    let check = worst.unwrap_or_else(|| panic!("no {name} in {report:#}"));
    (
        check["verdict"].as_str().unwrap(),
        check["finding"].as_str().unwrap(),
        check["fix"].as_str().unwrap_or_default(),
    )
}

// The bridge is waited for in a way that blocks its thread.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_where_all_is_well_is_said_to_be() {
    let (folder, gateway) =
        (tempfile::tempdir().unwrap(), gateway(json!({ "model": { "status": "ok" } })).await);
    let base = gateway.base_url();
    let (report, code) = doctor(folder.path(), &[("HERMES_API_BASE", &base), ("API_SERVER_KEY", KEY)]);
    for name in ["A2A port", "store", "gateway", "gateway key", "gateway state"] {
        assert_eq!(finding(&report, name).0, "ok", "{name}: {report:#}");
    }
    assert_ne!(code, Some(1), "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_gateway_is_found() {
    let (folder, gateway) = (
        tempfile::tempdir().unwrap(),
        gateway(json!({ "model": { "status": "error" }, "disk": { "status": "ok" } })).await,
    );
    let base = gateway.base_url();
    let (report, code) = doctor(folder.path(), &[("HERMES_API_BASE", "http://127.0.0.1:1/v1")]);
    assert_eq!((finding(&report, "gateway").0, code), ("failure", Some(1)));
    assert!(finding(&report, "gateway").2.contains("hermes gateway run"));

    let of = |variables: &[(&str, &str)]| {
        let all: Vec<_> = variables.iter().copied().chain([("HERMES_API_BASE", base.as_str())]).collect();
        doctor(folder.path(), &all).0
    };
    assert!(finding(&of(&[]), "gateway key").1.contains("not set"));
    assert!(finding(&of(&[("API_SERVER_KEY", "short")]), "gateway key").1.contains("less than 16"));
    fs::create_dir(folder.path().join(".hermes")).unwrap();
    fs::write(folder.path().join(".hermes/.env"), format!("API_SERVER_KEY={KEY}\n")).unwrap();
    let report = of(&[("API_SERVER_KEY", "another-key-of-the-tests")]);
    let (verdict, said, fix) = finding(&report, "gateway key");
    assert!(
        verdict == "failure" && said.contains("another than in") && fix.contains("same API_SERVER_KEY"),
        "{said} {fix}"
    );
    assert!(!report.to_string().contains(KEY), "no key is printed");
    let report = of(&[("API_SERVER_KEY", KEY)]);
    assert!(finding(&report, "gateway state").1.contains("model"), "{report:#}");
    let report = of(&[("API_SERVER_KEY", KEY), ("OPENAI_API_KEY", "sk-x")]);
    assert!(finding(&report, "provider").2.contains("HERMES_INFERENCE_PROVIDER"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugins_traps_are_found() {
    let (folder, gateway) = (tempfile::tempdir().unwrap(), gateway(json!({})).await);
    let base = gateway.base_url();
    fs::create_dir(folder.path().join(".hermes")).unwrap();
    let of = |yaml: &str, host: &str| {
        fs::write(folder.path().join(".hermes/config.yaml"), yaml).unwrap();
        let variables = [
            ("HERMES_API_BASE", base.as_str()),
            ("API_SERVER_KEY", KEY),
            ("MOLECULE_A2A_PLATFORM_ENABLED", "true"),
            ("MOLECULE_A2A_PLATFORM_HOST", host),
            ("MOLECULE_A2A_PLATFORM_PORT", "1"),
        ];
        doctor(folder.path(), &variables).0
    };
    let report = of("plugins: {enabled: [molecule-a2a]}", "127.0.0.1");
    let (verdict, said, fix) = finding(&report, "plugin");
    assert!(
        verdict == "failure" && said.contains("with a hyphen") && fix.contains("underscore"),
        "{said} {fix}"
    );
    assert!(finding(&of("", "127.0.0.1"), "plugin").1.contains("does not name"));
    assert_eq!(finding(&report, "callback").0, "ok");
    assert!(finding(&of("", "192.0.2.1"), "callback").1.contains("cannot reach"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_machine_is_found() {
    let (folder, gateway) = (tempfile::tempdir().unwrap(), gateway(json!({})).await);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let config = format!("[a2a]\nlisten = \"{at}\"\n[store]\nurl = \"sqlite:/proc/none/talaria.db\"\n");
    let path = folder.path().join("other.toml");
    fs::write(&path, config).unwrap();
    // Nobody accepts on that port, so it is no bridge.
    drop(gateway);
    let mut command = talaria(folder.path());
    command
        .args(["doctor", "--config", "other.toml"])
        .env("HERMES_API_BASE", "http://127.0.0.1:1/v1")
        .env("HOME", folder.path());
    command
        .env("WORKSPACE_ID", "ws-1")
        .env("WORKSPACE_CONFIG_PATH", "/no/such/folder")
        .env("PLATFORM_URL", "http://127.0.0.1:1");
    let output = run(&mut command);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    for part in [
        &format!("FAILURE  A2A port: cannot listen on {at}") as &str,
        "FAILURE  store:",
        "FAILURE  platform:",
        "FAILURE  workspace folder:",
        "fix: ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
