//! A dropped or cancelled turn closes its exchange.

use talaria_fakes::{FakeGateway, Reply, Stream, soon};
use talaria_turns::{Emitted, FailureKind, Turn, TurnSignal};
use tokio_util::sync::CancellationToken;

use super::rig;

#[tokio::test]
async fn closes_the_connection_while_the_model_thinks() {
    for streaming in [false, true] {
        let endpoint = FakeGateway::always(Reply::hang()).await;
        let rig = rig(&endpoint).await;
        let cancelled = CancellationToken::new();
        let turn = Turn { streaming, ..rig.turn("hello") };
        let (ran, ()) = tokio::join!(rig.execute_until(turn, cancelled.clone()), async {
            endpoint.asked(1).await;
            cancelled.cancel();
        });
        assert_eq!(ran.failure().kind, FailureKind::Cancelled);
        endpoint.let_go().await;
    }
}

#[tokio::test]
async fn closes_the_connection_in_the_middle_of_a_stream() {
    let endpoint = FakeGateway::always(Stream::new().delta(&"word ".repeat(1_000)).hang()).await;
    let rig = rig(&endpoint).await;
    let (running, mut said) = rig.begin(Turn { streaming: true, ..rig.turn("hello") });
    tokio::select! {
        result = running => panic!("the stream never ends: {result:?}"),
        first = soon("a first delta", said.recv()) => {
            assert!(matches!(&first, Some(TurnSignal::Emitted(said)) if matches!(**said, Emitted::TextDelta(_))), "{first:?}");
        }
    }
    endpoint.let_go().await;
    assert!(said.recv().await.is_none(), "nothing is said after the end");
}
