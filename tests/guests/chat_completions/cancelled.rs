//! A dropped turn closes its connection, whatever it was waiting for.

use std::sync::Arc;

use talaria_fakes::{FakeGateway, Reply, Stream, soon};
use talaria_turns::{Emitted, Turn, TurnSignal};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::rig;

#[tokio::test]
async fn closes_the_connection_while_the_gateway_thinks() {
    for streaming in [false, true] {
        let gateway = FakeGateway::always(Reply::hang()).await;
        let rig = rig(&gateway).await;
        tokio::select! {
            ran = rig.execute(Turn { streaming, ..rig.turn("hello") }) => panic!("nobody answers: {ran:?}"),
            () = gateway.asked(1) => {}
        }
        gateway.let_go().await;
    }
}

#[tokio::test]
async fn closes_the_connection_in_the_middle_of_a_stream() {
    let gateway = FakeGateway::always(Stream::new().delta(&"word ".repeat(1_000)).hang()).await;
    let rig = rig(&gateway).await;
    let (running, mut said) = rig.begin(Turn { streaming: true, ..rig.turn("hello") });
    tokio::select! {
        result = running => panic!("the stream never ends: {result:?}"),
        first = soon("a first delta", said.recv()) => {
            let Some(TurnSignal::Emitted(first)) = first else { panic!("{first:?}") };
            assert!(matches!(*first, Emitted::TextDelta(_)), "{first:?}");
        }
    }
    gateway.let_go().await;
    assert!(said.recv().await.is_none(), "nothing is said after the end");
}

#[tokio::test]
async fn closes_the_connection_while_nobody_reads_its_events() {
    // More events than the queue holds, while nobody reads them.
    let stream = (0..1_000).fold(Stream::new(), |stream, _| stream.delta(&"word ".repeat(100)));
    let gateway = FakeGateway::always(stream.finish("stop")).await;
    let rig = rig(&gateway).await;
    let (running, said) = rig.begin(Turn { streaming: true, ..rig.turn("hello") });
    let full = async {
        while said.len() < said.max_capacity() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        result = running => panic!("it did not wait: {result:?}"),
        () = soon("the turn says a lot", full) => {}
    }
    gateway.let_go().await;
}

#[tokio::test]
async fn a_thousand_dropped_turns_leave_no_connection() {
    let gateway = FakeGateway::always(Reply::hang()).await;
    let rig = rig(&gateway).await;
    // More turns than the engine has slots, so each slot must be released.
    for round in 1..=10 {
        let mut turns = JoinSet::new();
        for _ in 0..100 {
            let (running, said) = rig.begin(rig.turn("hello"));
            turns.spawn(async move { (running.await, said) });
        }
        gateway.asked(round * 100).await;
        turns.shutdown().await;
        gateway.let_go().await;
    }
}

#[tokio::test]
async fn a_turn_waits_for_a_slow_gateway() {
    let released = Arc::new(Notify::new());
    let gateway = FakeGateway::always(Reply::completion("at last").slow(&released)).await;
    let rig = rig(&gateway).await;
    let (ran, ()) = tokio::join!(rig.run("hello"), async {
        gateway.asked(1).await;
        released.notify_one();
    });
    assert_eq!(ran.text(), "at last");
}
