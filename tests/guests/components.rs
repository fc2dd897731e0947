//! What the components declare, and what they must not carry.

use talaria_engine::Component;
use talaria_fakes::guest;
use talaria_rig::Rig;

#[tokio::test]
async fn chat_completions_describes_itself() {
    let component = Component::load(Rig::engine().await, guest("chat-completions"), |_| ()).await.unwrap();
    let description = component.description();
    assert_eq!(description.name, "chat-completions");
    assert!(description.streaming && description.capabilities.session && !description.capabilities.heartbeat);
    assert_eq!(description.idle_timeout_seconds, Some(900));
    assert_eq!(description.needs.secrets, ["API_SERVER_KEY"]);
}

#[tokio::test]
async fn chat_completions_rejects_settings_that_do_not_fit_its_schema() {
    let component = Component::load(Rig::engine().await, guest("chat-completions"), |_| ()).await.unwrap();
    let settings = |json: serde_json::Value| component.settings(json.as_object().unwrap());
    let accepted = settings(serde_json::json!({ "model": "m" })).unwrap();
    assert_eq!(accepted["base_url"], "http://127.0.0.1:8642/v1", "defaults are filled in");
    let rejected = settings(serde_json::json!({ "model": 7, "modell": "m" })).unwrap_err().to_string();
    assert!(rejected.contains(r#"settings.model: value is not of type "string""#), "{rejected}");
    assert!(rejected.contains("modell"), "{rejected}");
}

/// With the adapter, every turn would instantiate one more module; see guests/sdk/src/wasi.rs.
#[test]
fn components_that_need_no_wasi_carry_no_adapter() {
    for name in ["chat-completions", "hermes", "hermes-runs", "conformance"] {
        let component = guest(name);
        let imports = component.windows(b"wasi:cli/".len()).any(|window| window == b"wasi:cli/");
        assert!(!imports, "{name} imports wasi:cli");
    }
}
