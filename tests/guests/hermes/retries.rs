//! A call that failed is made again, as OpenAI's library did for the Python executor.

use std::time::Duration;

use talaria_engine::Limits;
use talaria_fakes::{FakeGateway, PROVIDER_KEY, Reply, Stream};
use talaria_rig::{Ran, Rig};
use talaria_turns::{Emitted, FailureKind, Turn};
use tokio_util::sync::CancellationToken;

use super::MODEL;

/// The executor as it ships.
async fn rig(endpoint: &FakeGateway) -> Rig {
    Rig::new("hermes").await.setting("base_url", endpoint.base_url()).setting("model", MODEL)
}

/// A failure that asks for another attempt at once.
fn failed(status: u16) -> Reply {
    Reply::status(status, "text/plain", format!("busy, key {PROVIDER_KEY}")).header("retry-after-ms", "1")
}

fn statuses(ran: &Ran) -> Vec<&str> {
    let statuses = ran.events.iter().filter_map(|event| match event {
        Emitted::Status(text) => Some(text.as_str()),
        _ => None,
    });
    statuses.collect()
}

#[tokio::test]
async fn a_failed_call_is_made_again_and_the_caller_is_told() {
    for first in [408, 409, 429, 500, 503] {
        for streaming in [false, true] {
            let endpoint = FakeGateway::script([failed(first), failed(502), Reply::completion("hi")]).await;
            let rig = rig(&endpoint).await;
            let ran = rig.execute(Turn { streaming, ..rig.turn("hello") }).await;
            assert_eq!(ran.text(), "hi", "after {first}");
            let requests = endpoint.requests();
            assert_eq!(requests.len(), 3, "after {first}");
            assert!(requests.iter().all(|request| request.body == requests[0].body));
            let [one, two] = statuses(&ran)[..] else { panic!("{:?}", ran.events) };
            assert!(one.ends_with("trying again in 0.0 s (attempt 2 of 3)."), "{one}");
            assert_eq!(
                two,
                "The model's endpoint failed (InternalServerError); trying again in 0.0 s (attempt 3 of 3)."
            );
        }
    }
}

#[tokio::test]
async fn a_lost_connection_is_tried_again() {
    // It pauses as OpenAI's library does, because nobody named a pause.
    let endpoint = FakeGateway::script([Reply::raw(&b""[..]), Reply::completion("hi")]).await;
    let ran = rig(&endpoint).await.run("hello").await;
    assert_eq!(ran.text(), "hi");
    let [status] = statuses(&ran)[..] else { panic!("{:?}", ran.events) };
    let pause = |tenths: u32| format!("(APIConnectionError); trying again in 0.{tenths} s (attempt 2 of 3).");
    assert!([4, 5].iter().any(|tenths| status.ends_with(&pause(*tenths))), "{status}");
}

#[tokio::test]
async fn the_third_failure_is_final() {
    let endpoint = FakeGateway::always(failed(429)).await;
    let ran = rig(&endpoint).await.run("hello").await;
    assert_eq!(ran.failure().message, "Agent error: RateLimitError");
    assert_eq!(endpoint.requests().len(), 3);
}

#[tokio::test]
async fn a_call_is_not_repeated_once_the_answer_has_begun() {
    let error = "data: {\"error\":{\"message\":\"no\",\"code\":502}}\n\n";
    let endpoint = FakeGateway::always(Stream::new().delta("Well, ").bytes(error)).await;
    let ran = rig(&endpoint).await.stream("hello").await;
    assert_eq!(ran.failure().message, "Agent error: InternalServerError");
    assert_eq!((endpoint.requests().len(), ran.deltas()), (1, vec!["Well,"]));

    let cut = Stream::new().delta("Well, ").cut();
    let endpoint = FakeGateway::always(cut).await;
    let ran = rig(&endpoint).await.stream("hello").await;
    assert_eq!(ran.failure().message, "Agent error: APIConnectionError");
    assert_eq!(endpoint.requests().len(), 1);
}

#[tokio::test]
async fn a_failure_that_would_repeat_itself_is_not_tried_again() {
    for reply in [
        Reply::status(400, "text/plain", "no"),
        Reply::status(401, "text/plain", "no"),
        Reply::status(404, "text/plain", "no"),
        Reply::status(200, "text/html", "<html>"),
        failed(500).header("x-should-retry", "false"),
    ] {
        let endpoint = FakeGateway::always(reply).await;
        let ran = rig(&endpoint).await.run("hello").await;
        assert_eq!((endpoint.requests().len(), statuses(&ran)), (1, vec![]), "{ran:?}");
    }
    // The endpoint may also ask for an attempt that its status does not suggest.
    let odd = failed(400).header("x-should-retry", "true");
    let endpoint = FakeGateway::script([odd, Reply::completion("hi")]).await;
    assert_eq!(rig(&endpoint).await.run("hello").await.text(), "hi");
}

#[tokio::test]
async fn a_pause_that_the_turn_has_no_time_for_is_not_begun() {
    let slow = Reply::status(429, "text/plain", "no").header("retry-after", "50");
    let endpoint = FakeGateway::always(slow).await;
    let limits = Limits { deadline: Duration::from_secs(30), ..Limits::default() };
    let ran = rig(&endpoint).await.limits(limits).run("hello").await;
    assert_eq!(ran.failure().message, "Agent error: RateLimitError");
    assert_eq!(endpoint.requests().len(), 1);
}

#[tokio::test]
async fn a_cancel_ends_the_pause() {
    let slow = Reply::status(429, "text/plain", "no").header("retry-after", "50");
    let endpoint = FakeGateway::always(slow).await;
    let rig = rig(&endpoint).await;
    let cancelled = CancellationToken::new();
    let (ran, ()) = tokio::join!(rig.execute_until(rig.turn("hello"), cancelled.clone()), async {
        endpoint.asked(1).await;
        cancelled.cancel();
    });
    assert_eq!(ran.failure().kind, FailureKind::Cancelled);
    assert_eq!(endpoint.requests().len(), 1);
}
