//! Turns through hermes-agent's plugin: there by a post, back by a callback.
//!
//! Several threads, since starting a bridge blocks one while the plugin answers its probe.

use std::path::Path;

use serde_json::{Value, json};
use talaria_testkit::{FakeGateway, FakePlugin, Reply, Step, soon};

use crate::bridge::{Bridge, Start, message};

/// A bridge whose turns go to the plugin, with a callback listener on a port that the system picks.
fn bridge(folder: &Path, plugin: &FakePlugin, more: &str) -> Bridge {
    start(folder, plugin, more).up()
}

fn start<'a>(folder: &'a Path, plugin: &FakePlugin, more: &str) -> Start<'a> {
    let toml = format!(
        "[executors]\ndefault = \"plugin-callback\"\nprobe_every = \"50ms\"\n[callback]\nlisten = \"127.0.0.1:0\"\n\
         [executor.plugin-callback.settings]\ninbound_url = \"{}\"\n{more}",
        plugin.inbound_url()
    );
    Start::new(folder).config(&toml)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_goes_there_by_a_post_and_comes_back_by_a_callback() {
    let plugin = FakePlugin::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path(), &plugin, "");
    assert_eq!(bridge.say("hi").await, "echo: hi");
    let [sent] = plugin.messages().try_into().unwrap();
    let fields: Vec<_> = sent.body.as_object().unwrap().keys().cloned().collect();
    assert_eq!(fields, ["callback_url", "chat_id", "content", "message_id", "peer_id", "peer_name"]);
    assert_eq!(sent.callback_url(), bridge.banner["callback"].as_str().unwrap());
    assert!(sent.id().len() == 32 && sent.id().bytes().all(|byte| byte.is_ascii_hexdigit()), "{}", sent.id());
    assert_eq!(
        (&sent.body["peer_id"], &sent.body["peer_name"]),
        (&sent.body["chat_id"], &sent.body["chat_id"])
    );
    assert_eq!(plugin.receipts(), [(200, json!({ "ok": true }))]);
}
