//! The gateway's session: one for each context, and never the caller's choice.

use talaria_fakes::{FakeGateway, Reply};
use talaria_rig::Rig;
use talaria_turns::{ContextId, Principal, Turn};

use super::{KEY, polite, rig};

const HEADER: &str = "x-hermes-session-id";

async fn with_key(gateway: &FakeGateway) -> Rig {
    rig(gateway).await.secret(KEY, "k-0123456789abcdef")
}

fn sessions(gateway: &FakeGateway) -> Vec<Option<String>> {
    gateway.requests().iter().map(|request| request.header(HEADER).map(str::to_owned)).collect()
}

#[tokio::test]
async fn the_turns_of_a_context_share_one_session() {
    let gateway = polite().await;
    let rig = with_key(&gateway).await;
    let first = rig.turn("one");
    let task = first.task.clone();
    let _ = rig.execute(first).await;
    let _ = rig.stream("two").await;
    let _ = rig.run("three").await;
    let expected = Some(format!("talaria-{}", task.as_str()));
    assert_eq!(sessions(&gateway), [expected.clone(), expected.clone(), expected]);
}

#[tokio::test]
async fn another_context_and_another_caller_have_sessions_of_their_own() {
    let gateway = polite().await;
    let rig = with_key(&gateway).await;
    let _ = rig.run("one").await;
    let _ = rig.execute(Turn { context: ContextId::fresh(), ..rig.turn("two") }).await;
    let _ = rig.execute(Turn { principal: Principal::named("somebody"), ..rig.turn("three") }).await;
    let mut sessions = sessions(&gateway);
    sessions.sort();
    sessions.dedup();
    assert_eq!(sessions.len(), 3, "{sessions:?}");
    assert!(sessions.iter().all(Option::is_some), "{sessions:?}");
}

#[tokio::test]
async fn a_turn_follows_the_gateway_into_another_session() {
    for reply in [Reply::completion("hi"), Reply::stream(["hi"])] {
        let gateway = FakeGateway::always(reply.header(HEADER, "compressed-2")).await;
        let rig = with_key(&gateway).await;
        let _ = rig.stream("one").await;
        let _ = rig.stream("two").await;
        assert_eq!(sessions(&gateway)[1].as_deref(), Some("compressed-2"));
    }
}

#[tokio::test]
async fn a_session_id_that_no_gateway_takes_is_ignored() {
    for named in ["".to_owned(), "x".repeat(257)] {
        let gateway = FakeGateway::always(Reply::completion("hi").header(HEADER, &named)).await;
        let rig = with_key(&gateway).await;
        let _ = rig.run("one").await;
        let _ = rig.run("two").await;
        let sessions = sessions(&gateway);
        assert_eq!(sessions[0], sessions[1]);
    }
}

#[tokio::test]
async fn a_first_turn_that_fails_keeps_its_session() {
    let gateway =
        FakeGateway::script([Reply::status(500, "text/plain", "no"), Reply::completion("hi")]).await;
    let rig = with_key(&gateway).await;
    let _ = rig.run("one").await.failure();
    assert_eq!(rig.run("two").await.text(), "hi");
    let sessions = sessions(&gateway);
    assert_eq!(sessions[0], sessions[1]);
}

#[tokio::test]
async fn without_the_key_no_session_is_named() {
    let gateway = polite().await;
    let rig = rig(&gateway).await;
    let _ = rig.run("one").await;
    assert_eq!(sessions(&gateway), [None], "the gateway refuses it with 403");
}
