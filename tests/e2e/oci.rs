//! Executors whose components come from a registry.

use talaria_fakes::{FakeRegistry, Reply, guest};

use crate::bridge::Start;

fn config(reference: &str, more: &str) -> String {
    format!("[executors]\ndefault = \"pulled\"\n[executor.pulled]\ncomponent = \"{reference}\"\n{more}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pulled_component_is_cached_for_when_the_registry_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let registry = FakeRegistry::start().await;
    registry.lock("robot", "registry-password");
    let reference = registry.push(guest("probe"));
    let cache = "[engine]\ncache_dir = \"cache\"\n";
    let known = format!(
        "[oci.registry.\"{}\"]\nusername = \"robot\"\ntoken = {{ env = \"REGISTRY_TOKEN\" }}\n{cache}",
        registry.host()
    );
    let start = || {
        Start::new(folder.path())
            .config(&config(&reference, &known))
            .env("REGISTRY_TOKEN", "registry-password")
            .up()
    };
    let bridge = start();
    assert_eq!(bridge.say("echo from afar").await, "from afar");
    bridge.terminate();
    let (_, log) = bridge.end();
    assert!(log.contains("pulling pulled: 0 of "), "{log}");
    assert!(!log.contains("registry-password"), "{log}");

    let asked = registry.requests().len();
    registry.spoil(|_| Some(Reply::hang()));
    let bridge = start();
    assert_eq!(bridge.say("echo again").await, "again");
    assert_eq!(registry.requests().len(), asked, "a cached component is not requested again");
    drop(bridge);
    drop(registry);
    let offline = config(&reference, &format!("[oci]\noffline = true\n{cache}"));
    let bridge = Start::new(folder.path()).config(&offline).up();
    assert_eq!(bridge.say("echo offline").await, "offline");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_cannot_be_pulled_is_refused_alone() {
    let folder = tempfile::tempdir().unwrap();
    let registry = FakeRegistry::start().await;
    let reference = registry.push(guest("probe"));
    let file = format!("[executor.pulled]\ncomponent = \"{reference}\"\n[engine]\ncache_dir = \"cache\"\n");
    let bridge = Start::new(folder.path()).config(&file).env("TALARIA_OCI_OFFLINE", "yes").arg("--demo").up();
    let refused = &bridge.banner["refused"][0];
    assert_eq!(refused["name"], "pulled", "{}", bridge.banner);
    let reason = refused["reason"].as_str().unwrap();
    assert!(reason.contains(&reference) && reason.contains("oci.offline"), "{reason}");
    assert_eq!(registry.requests().len(), 0);
    assert!(bridge.say("hello").await.starts_with("You said"));
}
