//! talaria starts, restarts and stops hermes-agent itself, with a home that has only a model configured.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use talaria_fakes::{PROVIDER_KEY, Provider, free_port};

use crate::bridge::{Start, message};
use crate::cases::answer;
use crate::gateway::{SECRET, hermes};
use crate::partner::readiness;

/// Ends the gateway even if the test fails and the bridge is killed.
pub(crate) struct Leftover<'a>(pub(crate) &'a Path);

impl Leftover<'_> {
    fn id(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.0.join(".talaria-gateway")).ok()?;
        text.split(' ').next().map(str::to_owned)
    }

    fn signal(&self, signal: &str) -> bool {
        self.id().is_some_and(|id| {
            Command::new("kill").args([signal, &id]).status().is_ok_and(|status| status.success())
        })
    }
}

impl Drop for Leftover<'_> {
    fn drop(&mut self) {
        self.signal("-KILL");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn talaria_starts_the_gateway_with_its_plugin_and_restarts_it() {
    let model = Provider::start().await;
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    // The operator has configured a model, and nothing about A2A.
    let config = json!({
        "model": {
            "default": "fake-model", "provider": "custom", "base_url": model.base_url(), "api_key": PROVIDER_KEY,
            "api_mode": "chat_completions", "context_length": 131_072,
        },
        "security": { "allow_lazy_installs": false },
        "compression": { "enabled": false },
        "auxiliary": { "title_generation": { "enabled": false } },
    });
    std::fs::write(home.join("config.yaml"), config.to_string()).unwrap();
    let leftover = Leftover(&home);
    let (command, port) = (hermes().display(), free_port());
    let toml = format!(
        "[gateway]\ncommand = \"{command} gateway run\"\nhome = \"home\"\nport = {port}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [executor.plugin-callback]\nfallback = \"none\"\n[executor.plugin-callback.settings]\nchat_id = [\"context\"]\n"
    );
    let bridge = Start::new(folder.path())
        .config(&toml)
        .env("MOLECULE_A2A_PLATFORM_ENABLED", "true")
        .env("MOLECULE_A2A_PLATFORM_PORT", &free_port().to_string())
        .env("MOLECULE_A2A_CALLBACK_PORT", &free_port().to_string())
        .env("MOLECULE_A2A_PLATFORM_SHARED_SECRET", SECRET)
        .up();
    assert_eq!(readiness(&bridge, "plugin-callback"), "ready", "{}", bridge.banner);
    assert_eq!(answer(&bridge, message(&Provider::turn("say hello").0)).await, "hello");

    // The gateway is killed from outside, and talaria restarts it.
    let first = leftover.id().unwrap();
    assert!(leftover.signal("-KILL"));
    let again = async {
        while leftover.id().is_none_or(|id| id == first)
            || answer(&bridge, message(&Provider::turn("say again").0)).await != "again"
        {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(120), again).await.expect("the gateway comes back");

    let second = leftover.id().unwrap();
    bridge.terminate();
    let (code, said) = bridge.end();
    assert_eq!(code, Some(0), "{said}");
    let gone =
        Command::new("kill").args(["-0", &second]).stderr(std::process::Stdio::null()).status().unwrap();
    assert!(!gone.success(), "it ends with the bridge");
    assert!(!said.contains(SECRET), "{said}");
}
