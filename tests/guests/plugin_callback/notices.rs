//! Notices of the gateway, which are not answers.

use talaria_fakes::{FakePlugin, Step};
use talaria_rig::MailHost;

use super::{Running, rig};

#[tokio::test]
async fn a_notice_is_a_status_and_never_the_answer() {
    let home = "📬 No home channel is set for Molecule-A2A.";
    let retry = "⚠️ Empty response from model — retrying (1/3)";
    let plugin = FakePlugin::start(move |_| {
        vec![
            Step::Notice(home.into()),
            Step::Notice(retry.into()),
            Step::Notice("the key is sk-abcdefghijklmnopqrstuvwx".into()),
            Step::Answer("the answer".into()),
        ]
    })
    .await;
    let mail = MailHost::start().await;
    let rig = rig(&plugin, &mail).await;
    let mut running = Running::begin(&rig, rig.turn("hi"));
    assert_eq!(running.status().await, home);
    assert_eq!(running.status().await, retry);
    assert_eq!(running.status().await, "the key is [REDACTED:sk_token]");
    assert_eq!(running.end().await.unwrap(), "the answer");
    assert!(plugin.receipts().iter().all(|(status, _)| *status == 200), "{:?}", plugin.receipts());
}

#[tokio::test]
async fn a_repeated_answer_counts_once() {
    let plugin = FakePlugin::start(|_| vec![Step::AnswerTwice("the answer".into())]).await;
    let mail = MailHost::start().await;
    assert_eq!(rig(&plugin, &mail).await.run("hi").await.text(), "the answer");
    let receipts = plugin.posted(2).await;
    assert_eq!(receipts[1].1, serde_json::json!({ "ok": true, "stale": true }));
}

#[tokio::test]
async fn a_failure_to_deliver_is_not_the_answer_and_the_recovered_copy_is() {
    let plugin = FakePlugin::start(|_| vec![Step::Wait]).await;
    let mail = MailHost::start().await;
    let rig = rig(&plugin, &mail).await;
    let mut running = Running::begin(&rig, rig.turn("hi"));
    // Checkpoints are stored while the turn emits nothing else.
    let (message, status) = tokio::join!(
        async {
            let message = plugin.received(1).await.remove(0);
            let failed = "⚠️ Message delivery failed after multiple attempts. Please try again";
            plugin.callback(&mail.url, message.chat(), Some(message.id()), failed).await;
            message
        },
        running.status()
    );
    assert!(status.starts_with("⚠️ Message delivery failed"), "{status}");
    let recovered =
        "♻️ Recovered reply — the gateway restarted during delivery, so this may be a duplicate:\n\nanswer";
    plugin.callback(&mail.url, message.chat(), None, recovered).await;
    assert_eq!(running.end().await.unwrap(), "answer");
}

#[tokio::test]
async fn the_prefix_of_a_repeated_answer_is_removed() {
    let plugin = FakePlugin::start(|message| {
        let plain = "(Response formatting failed, plain text:)\n\n";
        vec![Step::Answer(format!("{plain}{}", message.content()))]
    })
    .await;
    let mail = MailHost::start().await;
    assert_eq!(rig(&plugin, &mail).await.run("hi").await.text(), "hi");
}
