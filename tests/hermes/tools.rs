//! hermes-agent finds the tools that talaria serves, and its model calls them.

use serde_json::json;
use talaria_fakes::{FakePlatform, PROVIDER_KEY, Provider, free_port};

use crate::bridge::{Start, message};
use crate::cases::answer;
use crate::gateway::hermes;
use crate::supervised::Leftover;

#[tokio::test(flavor = "multi_thread")]
async fn the_model_calls_the_tools_of_its_workspace() {
    let model = Provider::start().await;
    let platform = FakePlatform::start().await;
    let card = json!({ "name": "Ann", "skills": [] });
    platform.set_surroundings(
        json!([{ "id": "peer-1", "name": "Ann", "status": "online", "agent_card": card }]),
        "",
    );
    let folder = tempfile::tempdir().unwrap();
    let (home, configs) = (folder.path().join("home"), folder.path().join("configs"));
    for folder in [&home, &configs] {
        std::fs::create_dir(folder).unwrap();
    }
    std::fs::write(configs.join("config.yaml"), "name: Lead\n").unwrap();
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
    let _leftover = Leftover(&home);
    let toml = format!(
        "[gateway]\ncommand = \"{} gateway run\"\nhome = \"home\"\nport = {}\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        hermes().display(),
        free_port(),
    );
    let bridge = Start::new(folder.path())
        .config(&toml)
        .env("WORKSPACE_ID", "ws-1")
        .env("WORKSPACE_CONFIG_PATH", &configs.to_string_lossy())
        .env("PLATFORM_URL", &platform.url())
        .up();
    let (text, _) = Provider::turn("call mcp__molecule__list_peers {}");
    let said = answer(&bridge, message(&text)).await;
    assert!(said.contains("the tool said") && said.contains("peer-1"), "{said}");

    // Refusals do not open the gateway's circuit breaker, so the tools go on working after several.
    for _ in 0..4 {
        let (text, _) =
            Provider::turn(r#"call mcp__molecule__delegate_task {"workspace_id":"nobody","task":"x"}"#);
        let said = answer(&bridge, message(&text)).await;
        assert!(said.contains("is not a peer"), "{said}");
    }
    let (text, _) =
        Provider::turn(r#"call mcp__molecule__delegate_task {"workspace_id":"Ann","task":"look it up"}"#);
    let answered = async {
        platform.told_delegation(1).await;
        platform.answer_delegation(1, "found");
    };
    let (said, ()) = tokio::join!(answer(&bridge, message(&text)), answered);
    assert!(said.contains("completed") && said.contains("found"), "{said}");
}
