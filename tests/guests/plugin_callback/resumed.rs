//! A turn that is executed again after a restart.

use talaria_fakes::{FakePlugin, Step};
use talaria_rig::MailHost;
use talaria_turns::{Turn, TurnSignal};

use super::{Running, rig};

/// Runs a turn until the plugin has its message, then drops it; returns its checkpoint.
async fn cut_off(running: &mut Running, plugin: &FakePlugin) -> Vec<u8> {
    let mut checkpoint = Vec::new();
    let keep = async {
        while let Some(said) = running.said.recv().await {
            if let TurnSignal::Checkpoint { data, kept } = said {
                checkpoint = data;
                let _ = kept.send(Ok(()));
            }
        }
    };
    tokio::select! {
        () = keep => panic!("the turn ended"),
        _ = plugin.received(1) => {}
    }
    running.end.abort();
    checkpoint
}

#[tokio::test]
async fn a_resumed_turn_waits_again_and_sends_nothing_twice() {
    let plugin = FakePlugin::start(|_| vec![Step::Wait, Step::Answer("the answer".into())]).await;
    let mail = MailHost::start().await;
    let rig = rig(&plugin, &mail).await;
    let turn = rig.turn("hi");
    let checkpoint = cut_off(&mut Running::begin(&rig, turn.clone()), &plugin).await;
    let again = Running::begin(&rig, Turn { checkpoint: Some(checkpoint), ..turn });
    plugin.release(plugin.messages()[0].chat());
    assert_eq!(again.end().await.unwrap(), "the answer");
    assert_eq!(plugin.messages().len(), 1);
}

#[tokio::test]
async fn a_resumed_turn_finds_the_answer_that_came_meanwhile() {
    let plugin = FakePlugin::start(|_| vec![Step::Wait, Step::Answer("the answer".into())]).await;
    let mail = MailHost::start().await;
    let rig = rig(&plugin, &mail).await;
    let turn = rig.turn("hi");
    let checkpoint = cut_off(&mut Running::begin(&rig, turn.clone()), &plugin).await;
    plugin.release(plugin.messages()[0].chat());
    plugin.posted(1).await;
    let again = Running::begin(&rig, Turn { checkpoint: Some(checkpoint), ..turn });
    assert_eq!(again.end().await.unwrap(), "the answer");
    assert_eq!(plugin.messages().len(), 1);
    assert_eq!(mail.mailbox.counts().late, 0, "it was not late after all");
}

#[tokio::test]
async fn a_turn_that_only_waited_for_its_chat_starts_over() {
    let (plugin, mail) = (FakePlugin::echo().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await;
    let turn = rig.turn("hi");
    let id = "0123456789abcdef0123456789abcdef";
    let queued = serde_json::json!({ "chat": turn.task.as_str(), "message": id, "sent": false, "acted": 0 })
        .to_string();
    let ran = rig.execute(Turn { checkpoint: Some(queued.into_bytes()), ..turn }).await;
    assert_eq!(ran.text(), "echo: hi");
    assert_eq!(plugin.messages()[0].id(), id);
}
