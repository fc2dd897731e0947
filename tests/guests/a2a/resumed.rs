//! After a restart of this host the agent's task is followed, and its message is not sent again.

use serde_json::{Value, json};
use talaria_fakes::{FakeAgent, Say, Spoken};
use talaria_rig::{Ran, Rig};
use talaria_turns::{Turn, TurnSignal};

use super::{bare, next, piece, rig, streaming, task, update};

/// Runs a turn until it has stored a checkpoint and the agent has as many requests, then drops it as a crash does.
async fn crash(agent: &FakeAgent, rig: &Rig, turn: Turn, requests: usize) -> Vec<u8> {
    let (running, mut said) = rig.begin(turn);
    let mut kept_last = None;
    let read = async {
        while let Some(signal) = said.recv().await {
            if let TurnSignal::Checkpoint { data, kept } = signal {
                kept_last = Some(data);
                kept.send(Ok(())).unwrap();
                agent.gateway().asked(requests).await;
                return;
            }
        }
        panic!("no checkpoint");
    };
    tokio::select! {
        result = running => panic!("it ended: {result:?}"),
        () = read => {}
    }
    kept_last.expect("a checkpoint")
}

async fn resume(rig: &Rig, turn: Turn, checkpoint: Vec<u8>) -> Ran {
    rig.execute(Turn { checkpoint: Some(checkpoint), streaming: true, ..turn }).await
}

#[tokio::test]
async fn the_task_is_followed_and_the_message_not_sent_again() {
    let agent = streaming(Say::stream([task("WORKING", "", ""), piece("one ", false)]).hang()).await;
    let rig = rig(&agent).await;
    let turn = rig.turn("hello");
    let kept = crash(&agent, &rig, turn.clone(), 2).await;
    agent.next("GetTask", Say::result(bare("WORKING", "", "one ")));
    agent.next(
        "SubscribeToTask",
        Say::stream([task("WORKING", "", "one "), piece("two", true), update("COMPLETED", "")]),
    );
    let ran = resume(&rig, turn, kept).await;
    assert_eq!(ran.text(), "one two");
    assert_eq!(agent.messages().len(), 1);
    assert_eq!(agent.asked("card").len(), 1, "the checkpoint has the agent's address");
}

#[tokio::test]
async fn a_task_that_ended_meanwhile_is_read() {
    let agent = streaming(Say::stream([task("WORKING", "", "")]).hang()).await;
    let rig = rig(&agent).await;
    let turn = rig.turn("hello");
    let kept = crash(&agent, &rig, turn.clone(), 2).await;
    agent.task(bare("INPUT_REQUIRED", "when?", ""));
    let outcome = resume(&rig, turn.clone(), kept).await.result.unwrap();
    assert_eq!(outcome.state, talaria_turns::FinalState::InputRequired);
    agent.next("SendStreamingMessage", Say::stream([task("COMPLETED", "", "booked")]));
    assert_eq!(rig.execute(next(&turn, "monday")).await.text(), "booked");
    assert_eq!(agent.messages()[1]["taskId"], "t1");
}

#[tokio::test]
async fn a_turn_without_a_known_task_is_sent_again_only_if_the_operator_says_so() {
    let agent = FakeAgent::start(Spoken::V1, true).await;
    agent.next("SendStreamingMessage", Say::stream([]).hang());
    let rig = rig(&agent).await.setting("on_restart", "retry");
    let turn = rig.turn("hello");
    let kept = crash(&agent, &rig, turn.clone(), 2).await;
    let stored: Value = serde_json::from_slice(&kept).unwrap();
    assert_eq!(stored["task"], Value::Null);
    agent.next("SendStreamingMessage", Say::stream([task("COMPLETED", "", "hi")]));
    assert_eq!(resume(&rig, turn, kept).await.text(), "hi");
    let messages = agent.messages();
    assert_eq!((messages.len(), &messages[0]["messageId"]), (2, &messages[1]["messageId"]));
}

#[tokio::test]
async fn a_message_without_a_known_task_leaves_no_checkpoint_by_default() {
    let agent = streaming(Say::error(-32603, "no")).await;
    let ran = rig(&agent).await.run("hello").await;
    assert!(ran.checkpoints.is_empty());
    assert_eq!(ran.failure().message, "[agent error -32603] no");
}

#[tokio::test]
async fn an_unreadable_checkpoint_is_a_failure() {
    let agent = FakeAgent::start(Spoken::V1, true).await;
    let rig = rig(&agent).await;
    for kept in [b"".to_vec(), json!({ "task": 7 }).to_string().into_bytes()] {
        let ran = resume(&rig, rig.turn("hello"), kept).await;
        assert!(ran.failure().message.contains("checkpoint is unreadable"), "{}", ran.failure());
    }
    assert_eq!(agent.gateway().connections(), 0);
}
