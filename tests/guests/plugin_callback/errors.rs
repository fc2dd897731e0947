//! The exact texts that a caller reads when something is wrong.

use std::time::Duration;

use talaria_engine::Limits;
use talaria_fakes::{FakePlugin, Step};
use talaria_rig::MailHost;
use talaria_turns::{FailureKind, Turn};

use super::{Running, SECRET, rig};

async fn silent() -> FakePlugin {
    FakePlugin::start(|_| vec![Step::Wait, Step::Answer("late".into())]).await
}

#[tokio::test]
async fn a_plugin_that_is_down_is_reported() {
    let (plugin, mail) = (silent().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await;
    let port = plugin.port();
    drop(plugin);
    let ran = rig.run("hi").await;
    assert_eq!(
        ran.failure().message,
        format!("[hermes plugin POST error] connection refused (127.0.0.1:{port})")
    );
    assert_eq!((ran.failure().kind, ran.failure().retryable), (FailureKind::Upstream, true));
    assert_eq!(mail.mailbox.counts().waiting, 0, "nothing is expected any more");
}

#[tokio::test]
async fn a_plugin_that_rejects_the_message_is_reported() {
    let (plugin, mail) = (silent().await, MailHost::start().await);
    plugin.refuse(Some(500));
    let ran = rig(&plugin, &mail).await.run("hi").await;
    assert_eq!(
        ran.failure().message,
        r#"[hermes plugin POST error] the plugin answered 500: {"ok":false,"error":"refused"}"#
    );
}

#[tokio::test]
async fn a_wrong_secret_does_not_appear_in_the_failure() {
    let plugin = FakePlugin::with_secret(Some("right-right-right"), |_| vec![]).await;
    let mail = MailHost::start().await;
    let ran = rig(&plugin, &mail).await.secret(SECRET, "wrong-wrong-wrong").run("hi").await;
    let message = &ran.failure().message;
    assert!(message.starts_with("[hermes plugin POST error] the plugin answered 401: "), "{message}");
    assert!(!message.contains("wrong-wrong") && !message.contains("right-right"), "{message}");
}

#[tokio::test]
async fn a_call_without_a_grant_is_denied() {
    let (plugin, mail) = (silent().await, MailHost::start().await);
    let ran = rig(&plugin, &mail).await.grant(["GET http://127.0.0.1:1/x"]).run("hi").await;
    assert_eq!(ran.failure().message, "[hermes plugin POST error] the operator's policy does not allow it");
}

#[tokio::test]
async fn callbacks_without_a_grant_are_denied() {
    let plugin = silent().await;
    let rig = talaria_rig::Rig::new("plugin-callback")
        .await
        .setting("inbound_url", plugin.inbound_url())
        .setting("health_url", plugin.health_url());
    assert_eq!(
        rig.run("hi").await.failure().message,
        "[hermes plugin error] executor plugin-callback may not expect replies out of band; grant it with \
         callbacks = true"
    );
    assert!(plugin.messages().is_empty(), "it asks before it sends");
}

#[tokio::test]
async fn a_missing_answer_is_a_timeout() {
    let (plugin, mail) = (silent().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await;
    assert_eq!(
        rig.executor().settings()["reply_timeout_seconds"],
        600,
        "as long as the Python bridge waited"
    );
    let ran = rig.setting("reply_timeout_seconds", 1).run("hi").await;
    assert_eq!(ran.failure().message, "[hermes plugin reply timeout after 1s]");
    assert_eq!((ran.failure().kind, ran.failure().retryable), (FailureKind::TimedOut, true));
}

#[tokio::test]
async fn a_caller_that_can_be_reached_later_waits_for_the_whole_turn() {
    let (plugin, mail) = (silent().await, MailHost::start().await);
    let limits = Limits { deadline: Duration::from_secs(4), ..Limits::default() };
    let rig = rig(&plugin, &mail).await.setting("reply_timeout_seconds", 1).limits(limits);
    let ran = rig.execute(Turn { async_delivery: true, ..rig.turn("hi") }).await;
    assert_eq!(
        ran.failure().message,
        "[hermes plugin reply timeout after 2s]",
        "its own words, before the host's"
    );
}

#[tokio::test]
async fn a_shutdown_fails_the_turn_at_once() {
    let (plugin, mail) = (silent().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await;
    let running = Running::begin(&rig, rig.turn("hi"));
    let (ended, ()) = tokio::join!(running.end(), async {
        plugin.received(1).await;
        mail.mailbox.close();
    });
    assert_eq!(ended.unwrap_err().message, "[hermes plugin error] executor shutting down");
}

#[tokio::test]
async fn a_providers_error_that_comes_as_the_reply_is_a_failure() {
    let said = "⚠️ Provider authentication failed. Check the configured credentials; raw provider details are in the gateway logs.";
    // The gateway sends it twice: as a notice and as the answer.
    let plugin = FakePlugin::start(|_| vec![Step::Notice(said.into()), Step::Answer(said.into())]).await;
    let mail = MailHost::start().await;
    let ran = rig(&plugin, &mail).await.run("hi").await;
    assert_eq!((ran.failure().kind, ran.failure().message.as_str()), (FailureKind::Upstream, said));
    assert!(!ran.failure().retryable);

    let plugin = FakePlugin::start(|_| vec![Step::Answer("⚠️ Careful with that.".into())]).await;
    assert_eq!(rig(&plugin, &mail).await.run("hi").await.text(), "⚠️ Careful with that.");
}
