//! The probe: the card can be read, leads to the agent, and the token counts.

use serde_json::json;
use talaria_fakes::{FakeAgent, Reply, Spoken};
use talaria_rig::Rig;
use talaria_turns::FailureKind;

use super::{KEY, rig};

#[tokio::test]
async fn an_agent_with_a_card_is_ready() {
    for spoken in [Spoken::V1, Spoken::V03, Spoken::Rest] {
        let agent = FakeAgent::start(spoken, true).await;
        rig(&agent).await.setup().await.unwrap();
        assert_eq!(agent.gateway().requests().len(), 1, "nothing but the card is read");
    }
}

#[tokio::test]
async fn an_agent_that_wants_a_token_is_not_ready_without_it() {
    let agent = FakeAgent::start(Spoken::V1, true).await;
    agent.want_token("a-token-of-16-chars");
    let failure = rig(&agent).await.setup().await.unwrap_err();
    assert!(failure.message.contains("401"), "{failure}");
    let failure = rig(&agent).await.secret(KEY, "another-token-of-16").setup().await.unwrap_err();
    assert!(failure.message.contains("401"), "{failure}");
    rig(&agent).await.secret(KEY, "a-token-of-16-chars").setup().await.unwrap();
    assert!(agent.messages().is_empty());
}

#[tokio::test]
async fn a_card_that_cannot_be_used_says_why() {
    let agent = FakeAgent::start(Spoken::V1, true).await;
    let elsewhere = json!({ "supportedInterfaces": [
        { "url": "http://127.0.0.1:1/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
    ] });
    for (reply, why) in [
        (Reply::status(404, "text/plain", "nothing here"), "[agent error 404] nothing here"),
        (
            Reply::status(200, "text/html", "<html>"),
            "[agent error] it answered text/html that is not JSON: <html>",
        ),
        (Reply::json(&json!([])), "is no JSON object"),
        (
            Reply::status(302, "text/plain", "").header("location", "http://other/"),
            "it redirects to http://other/, and redirects are not followed",
        ),
        (
            Reply::json(&json!({ "url": agent.url(), "protocolVersion": "0.1" })),
            "offers no interface that this executor speaks",
        ),
        (
            Reply::json(&elsewhere),
            "set settings.interface_url = \"http://127.0.0.1:1/rpc\", and grant it with egress = [\"POST http://127.0.0.1:1/*\"]",
        ),
        (Reply::json(&json!({ "x": "y".repeat(2 << 20) })), "[agent unreachable]"),
    ] {
        agent.card(reply);
        let failure = rig(&agent).await.setup().await.unwrap_err();
        assert!(failure.message.contains(why), "{failure}\n{why}");
        assert_ne!(failure.kind, FailureKind::Internal);
        let ran = rig(&agent).await.run("hello").await;
        assert!(ran.failure().message.contains(why), "{}", ran.failure());
    }
    assert!(agent.messages().is_empty());
}

#[tokio::test]
async fn an_interface_elsewhere_is_used_if_the_settings_name_it() {
    let (card, agent) =
        (FakeAgent::start(Spoken::V1, false).await, FakeAgent::start(Spoken::V1, false).await);
    agent.next("SendMessage", talaria_fakes::Say::result(super::task("COMPLETED", "", "here")));
    let there = format!("{}/rpc", agent.url());
    let ran = rig(&card).await.setting("interface_url", there).run("hello").await;
    assert_eq!(ran.text(), "here");
    assert!(card.messages().is_empty());
}

#[tokio::test]
async fn settings_without_a_url_are_invalid() {
    let failure = Rig::new("a2a").await.setup().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvalidSettings);
    assert!(failure.message.contains("url"), "{failure}");
}
