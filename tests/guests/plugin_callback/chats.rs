//! Several messages of one chat, whose answers the gateway mixes up.

use std::sync::Arc;

use serde_json::json;
use talaria_fakes::{FakePlugin, Step};
use talaria_rig::{MailHost, Rig};
use talaria_turns::{Principal, Turn};
use tokio::task::JoinSet;

use super::{Running, rig, with_metadata};

#[tokio::test]
async fn every_message_of_a_busy_chat_gets_its_own_answer() {
    // If they were sent at once, the plugin would answer the first without an id and the others as one.
    let (plugin, mail) = (FakePlugin::echo().await, MailHost::start().await);
    let rig = Arc::new(
        rig(&plugin, &mail).await.setting("chat_id", json!(["workspace"])).setting("workspace_id", "w"),
    );
    let mut turns = JoinSet::new();
    for turn in 0..20 {
        let rig = Arc::clone(&rig);
        turns.spawn(async move {
            let text = format!("message {turn}");
            assert_eq!(rig.run(&text).await.text(), format!("echo: {text}"));
        });
    }
    turns.join_all().await;
    assert_eq!(plugin.messages().len(), 20);
    assert!(plugin.messages().iter().all(|message| message.chat() == "workspace:w"));
}

/// A plugin whose agent is slow with some messages.
async fn slow() -> FakePlugin {
    FakePlugin::start(|message| match message.content() {
        "slow" => vec![Step::Wait, Step::Answer("much later".into())],
        other => vec![Step::Answer(format!("answer to {other}"))],
    })
    .await
}

/// An executor with one chat for all turns and a short timeout.
async fn impatient(plugin: &FakePlugin, mail: &MailHost) -> Rig {
    rig(plugin, mail).await.setting("chat_id", json!(["context"])).setting("reply_timeout_seconds", 0.2)
}

#[tokio::test]
async fn a_message_whose_turn_was_given_up_is_stopped_before_the_next() {
    let (plugin, mail) = (slow().await, MailHost::start().await);
    let rig = impatient(&plugin, &mail).await;
    assert_eq!(rig.run("slow").await.failure().message, "[hermes plugin reply timeout after 0s]");
    let mut running = Running::begin(&rig, rig.turn("next"));
    assert_eq!(running.status().await, "stopping what the agent was left with by an earlier message");
    assert_eq!(running.end().await.unwrap(), "answer to next");
    assert_eq!(plugin.commands(), ["/stop"]);
    // Now the chat has nothing left to stop.
    assert_eq!(rig.run("third").await.text(), "answer to third");
    assert_eq!(plugin.commands(), ["/stop"]);
}

#[tokio::test]
async fn an_answer_that_came_late_leaves_nothing_to_stop() {
    let (plugin, mail) = (slow().await, MailHost::start().await);
    let rig = impatient(&plugin, &mail).await;
    let _ = rig.run("slow").await.failure();
    plugin.release(plugin.messages()[0].chat());
    plugin.posted(1).await;
    assert_eq!(mail.mailbox.counts().late, 1);
    let [late] = mail.mailbox.late(10).await.unwrap().try_into().unwrap();
    assert_eq!(late.text, "much later");
    assert_eq!(rig.run("next").await.text(), "answer to next");
    assert!(plugin.commands().is_empty(), "{:?}", plugin.commands());
}

#[tokio::test]
async fn a_context_is_one_chat_unless_the_caller_names_another() {
    let (plugin, mail) = (FakePlugin::echo().await, MailHost::start().await);
    // With the default order.
    let rig = Rig::new("plugin-callback")
        .await
        .setting("inbound_url", plugin.inbound_url())
        .setting("health_url", plugin.health_url())
        .callbacks(mail.callbacks());
    let session = |id: &str| json!({ "session": { "session_id": id } });
    let turns = [rig.turn("one"), rig.turn("two"), with_metadata(rig.turn("three"), session("s"))];
    let context = turns[0].context.to_string();
    for turn in turns {
        let _ = rig.execute(turn).await.text();
    }
    let named = Turn { principal: Principal::named("alice"), ..rig.turn("four") };
    let _ = rig.execute(named).await.text();
    let chats: Vec<String> = plugin.messages().iter().map(|message| message.chat().to_owned()).collect();
    assert_eq!(chats, [context.clone(), context.clone(), "s".into(), format!("alice:{context}")]);
}
