//! hermes-agent as the coordinator of two members, whose agents are scripted: one answers, one fails.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use talaria_fakes::{FakeGateway, FakePlatform, PROVIDER_KEY, Provider, Reply, free_port};
use tokio::sync::Notify;

use crate::bridge::{Start, message};
use crate::cases::answer;
use crate::gateway::hermes;
use crate::supervised::Leftover;

const LEAD: &str = "00000000-0000-4000-8000-000000000001";
const ANN: &str = "00000000-0000-4000-8000-000000000002";
const BEN: &str = "00000000-0000-4000-8000-000000000003";

/// Makes the folders of a workspace, and starts its bridge in one of them.
fn start<'a>(at: &'a Path, id: &str, name: &str, platform: &FakePlatform) -> Start<'a> {
    let configs = at.join("configs");
    std::fs::create_dir_all(&configs).unwrap();
    std::fs::write(configs.join("config.yaml"), format!("name: {name}\n")).unwrap();
    Start::new(at)
        .log(&at.join("log"))
        .env("WORKSPACE_ID", id)
        .env("WORKSPACE_CONFIG_PATH", &configs.to_string_lossy())
        .env("PLATFORM_URL", &platform.url())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_delegates_to_two_members_and_its_caller_gets_what_it_makes_of_their_answers() {
    let (model, platform) = (Provider::start().await, FakePlatform::start().await);
    platform.host(LEAD, "Lead", None);
    platform.host(ANN, "Ann", Some(LEAD));
    platform.host(BEN, "Ben", Some(LEAD));
    // The model obeys the last command that it reads, which is in Ann's answer.
    let (found, synthesis) = Provider::turn("say the synthesis");
    let released = Arc::new(Notify::new());
    let ann = FakeGateway::always(Reply::completion(&found).slow(&released)).await;
    let ben = FakeGateway::always(Reply::status(
        400,
        "application/json",
        r#"{"error":{"message":"no such model"}}"#,
    ))
    .await;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (ann_at, ben_at, lead_at) = (at("ann"), at("ben"), at("lead"));
    let _ann = start(&ann_at, ANN, "Ann", &platform).env("HERMES_API_BASE", &ann.base_url()).up();
    let _ben = start(&ben_at, BEN, "Ben", &platform).env("HERMES_API_BASE", &ben.base_url()).up();
    platform.hosts(&[ANN, BEN]).await;

    let home = lead_at.join("home");
    std::fs::create_dir_all(&home).unwrap();
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
    let lead = start(&lead_at, LEAD, "Lead", &platform).config(&toml).up();

    let delegate = |name: &str, task: &str| {
        let arguments = json!({ "workspace_id": name, "task": task, "wait_seconds": 0 });
        format!("mcp__molecule__delegate_task {arguments}")
    };
    let (ann_task, ben_task) = (delegate("Ann", "papers on fish"), delegate("Ben", "books on fish"));
    let (text, turn) = Provider::turn(&format!("call {ann_task} && {ben_task}"));
    let release = async {
        platform.told_delegation(2).await;
        // One answer is not enough.
        platform.ended_delegations(1).await;
        released.notify_one();
    };
    let (said, ()) = tokio::join!(answer(&lead, message(&text)), release);
    assert_eq!(said, "the synthesis");
    assert_eq!(
        (model.times(&turn), model.times(&synthesis)),
        (3, 1),
        "two calls and a promise; one synthesis"
    );
    assert_eq!((ann.requests().len(), ben.requests().len()), (1, 1));
    assert_eq!(platform.delegated().len(), 2);
}
