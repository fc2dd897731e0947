//! Which turns are asked again after a restart of this host, and which are not.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Recorded, Reply};
use talaria_rig::{Ran, Rig};
use talaria_turns::{Message, Part, Role, Turn, TurnSignal};

use super::{KEY, rig};

const LONG_AGO: &str = "2020-01-01T00:00:00.123456+00:00";

/// A gateway that never answers its first completion, answers `hi` to the others, and has been up since that time.
async fn gateway(since: &'static str, state: &'static str) -> FakeGateway {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    FakeGateway::start(move |request| match request.path.as_str() {
        "/health/detailed" => Reply::json(&json!({
            "platform": "hermes-agent",
            "gateway_state": state,
            "platforms": { "api_server": { "state": "connected", "updated_at": since } },
        })),
        _ if asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 => Reply::hang(),
        _ if request.json()["stream"] == true => Reply::stream(["hi"]),
        _ => Reply::completion("hi"),
    })
    .await
}

/// Runs a turn until the gateway has it, then drops it as a crash does; returns its checkpoint.
async fn crash(gateway: &FakeGateway, rig: &Rig, turn: &Turn) -> Option<Vec<u8>> {
    let (running, mut said) = rig.begin(turn.clone());
    let mut kept_last = None;
    let listen = async {
        while let Some(piece) = said.recv().await {
            if let TurnSignal::Checkpoint { data, kept } = piece {
                kept_last = Some(data);
                kept.send(Ok(())).unwrap();
            }
        }
    };
    tokio::select! {
        result = running => panic!("it ended: {result:?}"),
        () = async { tokio::join!(listen, std::future::pending::<()>()); } => {}
        () = gateway.asked(1) => {}
    }
    kept_last
}

/// Executes the turn again, as a host does that was down for that long.
async fn resume(rig: &Rig, turn: &Turn, checkpoint: Option<Vec<u8>>, begun_ms_ago: Value) -> Ran {
    let metadata = json!({ "talaria/begun-ms-ago": begun_ms_ago }).as_object().cloned().map(Arc::new);
    rig.execute(Turn { checkpoint, metadata, streaming: true, ..turn.clone() }).await
}

fn completions(gateway: &FakeGateway) -> Vec<Recorded> {
    gateway.requests().into_iter().filter(|request| request.path == "/v1/chat/completions").collect()
}

#[tokio::test]
async fn an_interrupted_turn_is_asked_again_with_the_same_key() {
    let gateway = gateway(LONG_AGO, "running").await;
    let rig = rig(&gateway).await.secret(KEY, "k-0123456789abcdef");
    let mut turn = rig.turn("hello");
    let earlier = Message { role: Role::User, ..Message::agent(vec![Part::text("before")]) };
    turn.history = [earlier, Message::agent(vec![Part::text("yes?")])].map(Arc::new).into();
    let kept = crash(&gateway, &rig, &turn).await;
    assert!(kept.is_some(), "it is kept before it is sent");
    let ran = resume(&rig, &turn, kept, json!(60_000)).await;
    assert_eq!(ran.text(), "hi");
    let completions = completions(&gateway);
    let [first, second] = completions.as_slice() else { panic!("{completions:?}") };
    assert_eq!(first.header("idempotency-key"), Some(format!("{}-2", turn.task).as_str()));
    assert_eq!(second.header("idempotency-key"), first.header("idempotency-key"));
    assert_eq!(second.body, first.body);
    assert_eq!(second.header("x-hermes-session-id"), first.header("x-hermes-session-id"));
}

#[tokio::test]
async fn nothing_is_asked_again_that_could_run_twice() {
    let restarted = "the gateway was restarted too";
    let unsaid = "the gateway does not say since when it is up";
    for (since, state, begun, why) in [
        (LONG_AGO, "running", json!(300_000), "it began more than 300 seconds ago"),
        (LONG_AGO, "running", json!(null), "nobody knows how long ago it began"),
        ("2999-01-01T00:00:00Z", "running", json!(1_000), restarted),
        // It still shows the times of the process before it.
        (LONG_AGO, "starting", json!(1_000), unsaid),
        ("yesterday", "running", json!(1_000), unsaid),
    ] {
        let gateway = gateway(since, state).await;
        let rig = rig(&gateway).await.secret(KEY, "k-0123456789abcdef");
        let turn = rig.turn("hello");
        let kept = crash(&gateway, &rig, &turn).await;
        let ran = resume(&rig, &turn, kept, begun).await;
        assert_eq!(ran.failure().message, format!("interrupted by a restart, and not asked again: {why}"));
        assert_eq!(completions(&gateway).len(), 1, "{why}");
    }
}

#[tokio::test]
async fn a_turn_whose_body_changed_is_not_asked_again() {
    let gateway = gateway(LONG_AGO, "running").await;
    let first = rig(&gateway).await.secret(KEY, "k-0123456789abcdef");
    let turn = first.turn("hello");
    let kept = crash(&gateway, &first, &turn).await;
    let ran = resume(&first.setting("system_prompt", "Be brief."), &turn, kept, json!(1_000)).await;
    assert!(ran.failure().message.ends_with("is not the same any more"), "{}", ran.failure().message);
    assert_eq!(completions(&gateway).len(), 1);
}

#[tokio::test]
async fn a_turn_is_not_asked_again_if_the_grant_hides_the_gateways_uptime() {
    let gateway = gateway(LONG_AGO, "running").await;
    let rig = rig(&gateway).await.secret(KEY, "k-0123456789abcdef");
    let turn = rig.turn("hello");
    let kept = crash(&gateway, &rig, &turn).await;
    let rig = rig.grant([format!("POST {}/chat/completions", gateway.base_url()).as_str()]);
    let ran = resume(&rig, &turn, kept, json!(1_000)).await;
    assert!(ran.failure().message.contains("the grant does not allow"), "{}", ran.failure().message);
    assert_eq!(completions(&gateway).len(), 1);
}

#[tokio::test]
async fn streams_and_turns_without_a_key_are_checkpointed_only_for_a_retry() {
    for (key, streaming) in [(true, true), (false, false), (false, true)] {
        for retry in [false, true] {
            let gateway = gateway(LONG_AGO, "running").await;
            let mut rig = rig(&gateway).await;
            if key {
                rig = rig.secret(KEY, "k-0123456789abcdef");
            }
            if retry {
                rig = rig.setting("on_restart", "retry");
            }
            let turn = Turn { streaming, ..rig.turn("hello") };
            let kept = crash(&gateway, &rig, &turn).await;
            // Without a checkpoint the host fails the turn.
            assert_eq!(kept.is_some(), retry, "key {key}, streaming {streaming}");
            if retry {
                let ran = resume(&rig, &turn, kept, json!(3_600_000)).await;
                assert_eq!(ran.text(), "hi", "key {key}, streaming {streaming}");
            }
            for request in completions(&gateway) {
                assert_eq!(request.header("idempotency-key"), None, "it would mean nothing");
                assert_eq!(request.json()["stream"], streaming, "it is asked again as it was asked");
            }
        }
    }
}

#[tokio::test]
async fn a_turn_with_an_unreadable_checkpoint_is_not_asked_again() {
    let gateway = gateway(LONG_AGO, "running").await;
    let rig = rig(&gateway).await.secret(KEY, "k-0123456789abcdef");
    let ran = resume(&rig, &rig.turn("hello"), Some(b"}".to_vec()), json!(1)).await;
    assert!(ran.failure().message.ends_with("what was kept of the turn cannot be read"));
    assert_eq!(gateway.requests().len(), 0);
}
