//! A cancelled turn: the gateway is stopped by a command and never answers the stopped message.

use std::sync::Arc;

use serde_json::json;
use talaria_fakes::{FakePlugin, Step, soon};
use talaria_rig::{MailHost, Rig};
use talaria_turns::{Executor as _, FailureKind, Turn, TurnSignal};
use tokio_util::sync::CancellationToken;

use super::{Running, rig};

async fn slow() -> FakePlugin {
    FakePlugin::start(|message| match message.content() {
        "slow" => vec![Step::Wait, Step::Answer("never".into())],
        other => vec![Step::Answer(format!("answer to {other}"))],
    })
    .await
}

/// Runs a turn until the plugin has it, then cancels it as the host does: the pending call fails, and `cancel` runs.
async fn cancelled(rig: &Rig, plugin: &FakePlugin, turn: Turn) {
    let token = CancellationToken::new();
    let (running, mut said) = rig.begin_until(turn.clone(), token.clone());
    let mut checkpoint = None;
    let (ended, ()) = tokio::join!(running, async {
        let expected = plugin.messages().len() + 1;
        let keep = async {
            while let Some(piece) = said.recv().await {
                if let TurnSignal::Checkpoint { data, kept } = piece {
                    checkpoint = Some(data);
                    let _ = kept.send(Ok(()));
                }
            }
        };
        tokio::select! {
            () = keep => {}
            _ = plugin.received(expected) => {}
        }
        token.cancel();
        let executor = rig.executor();
        executor.cancel(Turn { checkpoint: checkpoint.clone(), ..turn.clone() }).await.unwrap();
        drop(said);
    });
    assert_eq!(ended.unwrap_err().kind, FailureKind::Cancelled);
}

#[tokio::test]
async fn a_cancel_stops_the_agent() {
    let (plugin, mail) = (slow().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await.setting("chat_id", json!(["context"]));
    cancelled(&rig, &plugin, rig.turn("slow")).await;
    assert_eq!(plugin.commands(), ["/stop"]);
    assert_eq!(mail.mailbox.counts().waiting, 0);
    // The next message of the chat is not stopped, and has nothing to stop.
    assert_eq!(rig.run("next").await.text(), "answer to next");
    assert_eq!(plugin.commands(), ["/stop"]);
}

#[tokio::test]
async fn a_cancel_does_not_stop_the_next_message_of_the_chat() {
    let (plugin, mail) = (slow().await, MailHost::start().await);
    let rig = Arc::new(
        rig(&plugin, &mail).await.setting("chat_id", json!(["workspace"])).setting("workspace_id", "w"),
    );
    for round in 0..10 {
        let text = format!("next {round}");
        let first = cancelled(&rig, &plugin, rig.turn("slow"));
        let second = async {
            // Queued behind the first.
            plugin.received(2 * round + 1).await;
            let running = Running::begin(&rig, rig.turn(&text));
            running.end().await.unwrap()
        };
        let ((), answer) = soon("both end", async { tokio::join!(first, second) }).await;
        assert_eq!(answer, format!("answer to {text}"));
    }
}

#[tokio::test]
async fn a_cancel_of_a_turn_that_sent_nothing_stops_nothing() {
    let (plugin, mail) = (slow().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await;
    rig.executor().cancel(rig.turn("slow")).await.unwrap();
    let queued = json!({ "chat": "c", "message": "m", "sent": false, "acted": 0 }).to_string();
    rig.executor().cancel(Turn { checkpoint: Some(queued.into_bytes()), ..rig.turn("slow") }).await.unwrap();
    assert!(plugin.commands().is_empty());
}
