//! What a workspace reports beside its answers: failures that look like answers, the use of tools, and changes that wait for a
//! restart.

use std::fs;
use std::time::Duration;

use serde_json::json;
use talaria_client::Message;
use talaria_fakes::{FakeGateway, FakePlatform, FakePlugin, Reply, Step, Stream, free_port, soon};

use crate::bridge::{Start, admin};
use crate::workspace::Folders;

async fn until(what: &str, is_so: impl Fn() -> bool) {
    soon(what, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

// Waiting for the bridge blocks a thread.
#[tokio::test(flavor = "multi_thread")]
async fn a_providers_error_that_the_plugin_sends_as_its_reply_counts_as_a_failure() {
    let said = "⚠️ Provider authentication failed. Check the configured credentials; raw provider details are in the gateway logs.";
    let plugin = FakePlugin::start(move |_| vec![Step::Answer(said.into())]).await;
    let gateway = FakeGateway::always(Reply::completion("from the gateway")).await;
    let (folders, platform) = (Folders::new("name: Researcher\n"), FakePlatform::start().await);
    let at = folders.bridge();
    let bridge = Start::new(&at)
        .env("WORKSPACE_ID", "ws-1")
        .env("WORKSPACE_CONFIG_PATH", &folders.configs().to_string_lossy())
        .env("PLATFORM_URL", &platform.url())
        .env("MOLECULE_A2A_PLATFORM_ENABLED", "true")
        .env("MOLECULE_A2A_PLATFORM_PORT", &plugin.port().to_string())
        .env("MOLECULE_A2A_CALLBACK_PORT", &free_port().to_string())
        .env("HERMES_API_BASE", &gateway.base_url())
        .up();
    assert_eq!(bridge.say("hello").await, said, "the caller reads the same words");
    let (beat, _) = platform.heartbeat(0, "the failed turn", |beat| beat["error_rate"] == 1.0).await;
    assert!(beat["sample_error"].as_str().unwrap().contains("Provider authentication failed"), "{beat}");
    let (_, metrics) = admin(&bridge, "GET", "/metrics").await;
    let line = "talaria_turns_ended_total{executor=\"plugin-callback\",state=\"failed\"} 1";
    assert!(metrics.as_str().unwrap().lines().any(|said| said == line), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_use_of_a_tool_touches_the_file_that_the_platform_watches() {
    let answer = Stream::new().tool_running("terminal", "c1", "ls").tool_completed("terminal", "c1");
    let answer = answer.delta("two files").finish("stop");
    let gateway = FakeGateway::always(Reply::from(answer)).await;
    let (folders, platform) = (Folders::new("name: Researcher\n"), FakePlatform::start().await);
    let (at, log) = (folders.bridge(), folders.bridge().join("log"));
    let watched = at.join("activity");
    let bridge = Start::new(&at)
        .log(&log)
        .env("WORKSPACE_ID", "ws-1")
        .env("WORKSPACE_CONFIG_PATH", &folders.configs().to_string_lossy())
        .env("PLATFORM_URL", &platform.url())
        .env("HERMES_API_BASE", &gateway.base_url())
        .env("MOLECULE_TOOL_ACTIVITY_FILE", &watched.to_string_lossy())
        .up();
    assert!(!watched.exists());
    let (client, message) = (bridge.client(), Message::new("how many files"));
    let mut stream = client.stream(&message);
    while stream.next().await.unwrap().is_some() {}
    until("the file", || watched.exists()).await;

    // The port is bound, so a new one waits for a restart, and the log says so.
    folders.write("config.yaml", "name: Researcher\na2a: {port: 9999}\n");
    let says = |part: &str| fs::read_to_string(&log).unwrap_or_default().contains(part);
    until("the warning", || says("a change in config.yaml needs a restart of this host")).await;
    assert!(says("a2a.port"));
    let (_, ready) = admin(&bridge, "GET", "/readyz").await;
    assert_eq!(ready["ready"], json!(true), "{ready}");
}
