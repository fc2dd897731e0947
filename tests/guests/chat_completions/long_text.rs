//! hermes-agent cuts a text of more than 65,536 characters on its chat route; such a text goes out as a run.

use std::sync::Arc;

use serde_json::json;
use talaria_fakes::{FakeGateway, FakeRuns, Script};
use talaria_rig::Rig;
use talaria_turns::{Content, Executor as _, FailureKind, Message, Part, Role, Turn};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{KEY, polite};

const REJECTED: &str = "[hermes-agent error] the message has 65537 characters, and hermes-agent cuts it at 65536 on its chat \
    route; send less, or send it by the executor hermes-runs";

/// One character more than the chat route takes.
fn long() -> String {
    "ä".repeat(65_537)
}

async fn rig(runs: &FakeRuns) -> Rig {
    super::rig(runs.gateway()).await.secret(KEY, "k-0123456789abcdef")
}

fn completions(gateway: &FakeGateway) -> usize {
    gateway.requests().iter().filter(|request| request.path == "/v1/chat/completions").count()
}

#[tokio::test]
async fn a_text_that_just_fits_stays_on_the_chat_route() {
    let runs = FakeRuns::start([]).await;
    assert_eq!(rig(&runs).await.run(&"ä".repeat(65_536)).await.text(), "hi");
    assert_eq!((completions(runs.gateway()), runs.submitted().len()), (1, 0));
}

#[tokio::test]
async fn a_longer_text_arrives_whole_by_a_run() {
    for streaming in [false, true] {
        let script = Script::new().tool_started("terminal", "ls").delta("the ").delta("answer");
        let runs = FakeRuns::start([script.completed("the answer")]).await;
        let rig = rig(&runs).await.setting("system_prompt", "Be brief.").setting("model", "large");
        let turn = Turn { streaming, ..rig.turn(&long()) };
        let (task, context) = (turn.task.to_string(), turn.context.to_string());
        let ran = rig.execute(turn).await;
        assert_eq!(ran.text(), "the answer");
        assert_eq!(ran.deltas().concat(), if streaming { "the answer" } else { "" });
        assert_eq!(
            runs.submitted(),
            [json!({
                "input": long(), "instructions": "Be brief.", "model": "large",
                "session_id": format!("talaria-{task}"),
            })]
        );
        let submitted = &runs.requests("POST", "/v1/runs")[0];
        assert_eq!(submitted.header("authorization"), Some("Bearer k-0123456789abcdef"));
        assert_eq!(
            submitted.header("x-hermes-session-key"),
            Some(format!("talaria::context:{context}").as_str())
        );
        assert_eq!(completions(runs.gateway()), 0);
    }
}

#[tokio::test]
async fn the_turns_of_a_context_share_one_session_on_both_routes() {
    let runs = FakeRuns::start([Script::new().completed("long, indeed")]).await;
    let rig = rig(&runs).await;
    let _ = rig.run("one").await;
    assert_eq!(rig.run(&long()).await.text(), "long, indeed");
    let _ = rig.stream("three").await;
    let chats = runs.requests("POST", "/chat/completions");
    let session = chats[0].header("x-hermes-session-id").unwrap();
    assert_eq!(runs.submitted()[0]["session_id"], session);
    assert_eq!(chats[1].header("x-hermes-session-id"), Some(session));
    let earlier = json!([{ "content": "one", "role": "user" }, { "content": "hi", "role": "assistant" }]);
    assert_eq!(
        runs.submitted()[0]["conversation_history"],
        earlier,
        "a run is not given the session's messages"
    );
}

#[tokio::test]
async fn a_session_that_moved_is_followed_from_one_route_to_the_other() {
    let runs = FakeRuns::start([Script::new().completed("done")]).await;
    let rig = rig(&runs).await;
    let _ = rig.run("one").await;
    let session = runs.requests("POST", "/completions")[0].header("x-hermes-session-id").unwrap().to_owned();
    runs.moves(&session, "compressed-2");
    let _ = rig.run(&long()).await;
    let _ = rig.run("three").await;
    assert_eq!(runs.submitted()[0]["session_id"], "compressed-2");
    assert_eq!(runs.requests("POST", "/completions")[1].header("x-hermes-session-id"), Some("compressed-2"));
}

#[tokio::test]
async fn a_run_gets_the_messages_where_the_host_remembers_them() {
    for (history, expected) in [
        (
            "messages",
            json!([{ "content": "I am Ada", "role": "user" }, { "content": "Hello, Ada", "role": "assistant" }]),
        ),
        ("none", json!(null)),
    ] {
        let runs = FakeRuns::start([Script::new().completed("done")]).await;
        let rig = rig(&runs).await.setting("history", history);
        rig.said("I am Ada", "Hello, Ada").await;
        let turn = rig.turn_of_record(&long()).await;
        assert_eq!(rig.execute(turn).await.text(), "done");
        let submitted = &runs.submitted()[0];
        assert_eq!(submitted["conversation_history"], expected, "{history}");
        assert_eq!(submitted.get("session_id"), None, "{history}");
    }
}

#[tokio::test]
async fn a_new_session_gets_what_other_executors_were_told() {
    let runs = FakeRuns::start([Script::new().completed("done")]).await;
    let rig = rig(&runs).await;
    rig.said("I am Ada", "Hello, Ada").await;
    let turn = rig.turn_of_record(&long()).await;
    assert_eq!(rig.execute(turn).await.text(), "done");
    assert_eq!(runs.submitted()[0]["conversation_history"][1]["content"], "Hello, Ada");
}

#[tokio::test]
async fn without_the_gateways_key_a_run_stands_alone() {
    let runs = FakeRuns::start([Script::new().completed("done")]).await;
    let rig = super::rig(runs.gateway()).await;
    assert_eq!(rig.run(&long()).await.text(), "done");
    assert_eq!(runs.submitted(), [json!({ "input": long() })]);
    assert_eq!(runs.requests("POST", "/v1/runs")[0].header("x-hermes-session-key"), None);
}

#[tokio::test]
async fn images_go_along() {
    let runs = FakeRuns::start([Script::new().completed("a cat")]).await;
    let rig = rig(&runs).await;
    let image = Part { media_type: Some("image/png".into()), ..Part::new(Content::Bytes(b"png".to_vec())) };
    assert_eq!(rig.execute(rig.turn_of(vec![Part::text(long()), image])).await.text(), "a cat");
    let input = &runs.submitted()[0]["input"][0];
    assert_eq!(input["content"][0]["text"].as_str().map(|text| text.chars().count()), Some(65_537));
    assert_eq!(input["content"][1]["image_url"]["url"], "data:image/png;base64,cG5n");
}

#[tokio::test]
async fn a_gateway_without_runs_rejects_it_in_words() {
    let old = FakeRuns::start([]).await;
    old.grow_old();
    let lacking = FakeRuns::start([]).await;
    lacking.lacks("run_submission");
    for runs in [old, lacking] {
        for ran in [rig(&runs).await.run(&long()).await, rig(&runs).await.stream(&long()).await] {
            assert_eq!(ran.failure().kind, FailureKind::InvalidTurn);
            assert_eq!(ran.failure().message, REJECTED);
        }
        assert_eq!((completions(runs.gateway()), runs.submitted().len()), (0, 0));
    }
    let gateway = polite().await;
    assert_eq!(super::rig(&gateway).await.run(&long()).await.failure().message, REJECTED);
    assert_eq!(completions(&gateway), 0);
}

#[tokio::test]
async fn a_grant_without_runs_rejects_it_in_words() {
    let runs = FakeRuns::start([]).await;
    let base = runs.base_url();
    let grant = [format!("POST {base}/chat/completions"), format!("GET {base}/health")];
    let rig = rig(&runs).await.grant(grant.iter().map(String::as_str));
    assert_eq!(rig.run(&long()).await.failure().message, REJECTED);
    assert_eq!(runs.gateway().requests().len(), 0);
}

#[tokio::test]
async fn a_gateway_that_cannot_say_what_it_has_is_not_taken_for_one_without_runs() {
    let runs = FakeRuns::start([]).await;
    runs.want_key("another-key");
    let failure = rig(&runs).await.run(&long()).await;
    assert!(failure.failure().message.starts_with("[hermes-agent error 401]"), "{}", failure.failure());
}

#[tokio::test]
async fn other_upstreams_take_what_they_take() {
    let gateway = polite().await;
    gateway.keep_no_sessions();
    assert_eq!(super::rig(&gateway).await.run(&long()).await.text(), "hi");
    assert_eq!(gateway.request().path, "/v1/chat/completions");
}

#[tokio::test]
async fn an_approval_is_asked_for() {
    let runs = FakeRuns::start([Script::new().approval("rm -rf /a").completed("done")]).await;
    let rig = rig(&runs).await;
    let ran = rig.converse(rig.turn(&long()), CancellationToken::new(), |_| vec![Part::text("yes")]).await;
    assert!(ran.questions[0].contains("rm -rf /a"), "{:?}", ran.questions);
    assert_eq!((ran.text(), runs.choices()), ("done", vec!["once".to_owned()]));
}

#[tokio::test]
async fn a_cancel_stops_the_run() {
    let runs = FakeRuns::start([Script::new().delta("one ").hang()]).await;
    let rig = rig(&runs).await;
    let cancelled = CancellationToken::new();
    let (ran, ()) = tokio::join!(rig.execute_until(rig.turn(&long()), cancelled.clone()), async {
        // Capabilities, the run, its events.
        runs.gateway().asked(3).await;
        cancelled.cancel();
    });
    assert_eq!(ran.failure().kind, FailureKind::Cancelled);
    let turn = Turn { checkpoint: ran.checkpoints.last().cloned(), ..rig.turn(&long()) };
    rig.executor().cancel(turn).await.unwrap();
    assert_eq!(runs.requests("POST", "/stop")[0].path, format!("/v1/runs/run_{:032x}/stop", 1));
}

#[tokio::test]
async fn a_cancel_of_a_turn_without_a_run_calls_nothing() {
    let runs = FakeRuns::start([]).await;
    let rig = rig(&runs).await;
    let sent = json!({ "key": "task-1", "stream": false, "body": "00" }).to_string();
    for checkpoint in [None, Some(sent.into_bytes()), Some(b"}".to_vec())] {
        rig.executor().cancel(Turn { checkpoint, ..rig.turn("hello") }).await.unwrap();
    }
    assert_eq!(runs.gateway().connections(), 0);
}

#[tokio::test]
async fn after_a_restart_the_run_is_followed_and_not_started_again() {
    let released = Arc::new(Notify::new());
    let runs = FakeRuns::start([Script::new().wait(&released).completed("the answer")]).await;
    let rig = rig(&runs).await;
    let cancelled = CancellationToken::new();
    let (ran, ()) = tokio::join!(rig.execute_until(rig.turn(&long()), cancelled.clone()), async {
        runs.gateway().asked(3).await;
        cancelled.cancel();
    });
    released.notify_one();
    let turn = Turn { checkpoint: ran.checkpoints.last().cloned(), streaming: true, ..rig.turn(&long()) };
    assert_eq!(rig.execute(turn.clone()).await.text(), "the answer");
    assert_eq!(runs.submitted().len(), 1);
    runs.restart();
    let failure = rig.execute(turn).await;
    assert!(failure.failure().message.contains("gateway restarted"), "{}", failure.failure());
}

#[tokio::test]
async fn a_turn_that_went_out_on_the_chat_route_does_not_become_a_run_after_a_restart() {
    let runs = FakeRuns::start([]).await;
    let rig = rig(&runs).await.setting("on_restart", "retry");
    let sent = json!({ "key": null, "stream": true, "body": "00" }).to_string();
    let ran = rig.execute(Turn { checkpoint: Some(sent.into_bytes()), ..rig.turn(&long()) }).await;
    assert_eq!(ran.text(), "hi");
    assert_eq!((completions(runs.gateway()), runs.submitted().len()), (1, 0));
}

#[tokio::test]
async fn the_tasks_own_history_goes_along_where_the_gateway_has_none() {
    let runs = FakeRuns::start([Script::new().completed("done")]).await;
    let rig = rig(&runs).await.setting("history", "session");
    let before = Message { role: Role::User, ..Message::agent(vec![Part::text("look here")]) };
    let _ = rig.execute(Turn { history: [Arc::new(before)].into(), ..rig.turn(&long()) }).await;
    assert_eq!(runs.submitted()[0]["conversation_history"][0]["content"], "look here");
}
