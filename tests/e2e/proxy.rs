//! A proxy of the environment, and a start that only prepares files.

use std::fs;

use talaria_fakes::{FakeGateway, FakeProxy, Reply};

use crate::bridge::{Start, run, stderr, talaria};

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_an_executor_go_through_the_proxy_of_the_environment() {
    let endpoint = FakeGateway::always(Reply::completion("by proxy")).await;
    let proxy = FakeProxy::to(endpoint.address()).await;
    let folder = tempfile::tempdir().unwrap();
    let config = "[egress]\nproxy_resolves = true\n[executors]\ndefault = \"hermes\"\n\
                  [executor.hermes.settings]\nmodel = \"m\"\nbase_url = \"http://model.example/v1\"\n";
    let bridge = Start::new(folder.path())
        .config(config)
        .arg("--log=trace")
        .env("HTTP_PROXY", &proxy.url().replace("http://", "http://user:pass-of-the-proxy@"))
        .up();
    assert_eq!(bridge.say("hi").await, "by proxy");
    assert!(proxy.destinations().iter().all(|destination| destination == "model.example:80"));
    assert!(proxy.heads().iter().all(|head| head.contains("proxy-authorization: Basic ")));
    assert!(endpoint.requests().iter().all(|request| request.header("proxy-authorization").is_none()));
    bridge.terminate();
    let (_, log) = bridge.end();
    assert!(!log.contains("pass-of-the-proxy"), "the log holds the proxy's password");
}

#[test]
fn a_start_that_only_prepares_writes_the_gateways_files_and_serves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("talaria.toml"), "[gateway]\ncommand = \"false\"\nhome = \"home\"\n")
        .unwrap();
    let ended = run(talaria(folder.path())
        .arg("serve")
        .env("MOLECULE_RUNTIME_PREPARE_ONLY", "1")
        .env("HERMES_CUSTOM_BASE_URL", "https://api.example.com/v1"));
    assert_eq!(ended.status.code(), Some(0), "{}", stderr(&ended));
    let config = fs::read_to_string(folder.path().join("home/config.yaml")).unwrap();
    assert!(config.contains("https://api.example.com/v1"), "{config}");
    assert!(fs::read_to_string(folder.path().join("home/.env")).unwrap().contains("API_SERVER_KEY="));
    assert!(!folder.path().join("talaria.db").exists());
}
