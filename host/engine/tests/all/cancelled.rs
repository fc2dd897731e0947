//! A cancelled turn: its pending call fails, and `cancel` runs in an instance of its own.

use talaria_fakes::{FakeGateway, Reply};
use talaria_rig::Rig;
use talaria_turns::{Executor as _, FailureKind, Turn};
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn a_pending_call_fails_with_cancelled() {
    let gateway = FakeGateway::always(Reply::hang()).await;
    let url = format!("{}/x", gateway.base_url());
    let rig = Rig::new("probe").await.grant([format!("GET {url}").as_str()]);
    for prompt in [format!("fetch {url}"), format!("sse {url}"), "until-cancelled".into()] {
        let cancelled = CancellationToken::new();
        let (ran, ()) = tokio::join!(rig.execute_until(rig.turn(&prompt), cancelled.clone()), async {
            tokio::task::yield_now().await;
            cancelled.cancel();
        });
        match ran.result {
            Ok(outcome) => {
                let text = talaria_turns::message_text(&outcome.parts);
                assert!(text.starts_with("ErrorKind::Cancelled"), "{prompt}: {text}");
            }
            Err(failure) if prompt == "until-cancelled" => {
                assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::Cancelled, "false true"));
            }
            Err(failure) => {
                assert!(failure.message.starts_with("ErrorKind::Cancelled"), "{prompt}: {failure}")
            }
        }
    }
}

#[tokio::test]
async fn cancel_runs_with_the_checkpoint_in_an_instance_of_its_own() {
    let gateway = FakeGateway::always(Reply::status(200, "text/plain", "ok")).await;
    let rig = Rig::new("probe").await.setting("base_url", gateway.base_url());
    let turn = Turn { checkpoint: Some(b"here".to_vec()), ..rig.turn("anything") };
    rig.executor().cancel(turn).await.unwrap();
    assert_eq!(gateway.request().path, "/v1/stop/here");
}
