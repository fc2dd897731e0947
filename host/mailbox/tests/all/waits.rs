//! Turns that wait.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use talaria_turns::{CallbackError, Callbacks, Expectation};
use tokio::task::JoinSet;

use crate::kit::{Host, accepted, expectation, next, soon, stale, task};

#[tokio::test]
async fn a_reply_wakes_a_waiting_turn_and_stays_for_a_later_one() {
    let host = Arc::new(Host::new().await);
    let mut one = host.expect("m1").await;
    let waiting = next(&mut one);
    let posting = async {
        assert_eq!(host.post("c", Some("m1"), "answer").await, accepted());
    };
    let (answer, ()) = tokio::join!(waiting, posting);
    assert_eq!(answer.unwrap()["content"], "answer");
    // Waiting again, and giving up on it, loses nothing.
    assert!(one.next().now_or_never().is_none());
    assert_eq!(host.post("c", Some("m1"), "more").await, accepted());
    assert_eq!(next(&mut one).await.unwrap()["content"], "more");
}

#[tokio::test]
async fn dropping_withdraws() {
    let host = Host::new().await;
    drop(host.expect("m1").await);
    assert_eq!(host.post("c", Some("m1"), "late").await, stale());
    let counts = host.mailbox.counts();
    assert_eq!((counts.waiting, counts.late), (0, 1));
}

#[tokio::test]
async fn one_message_of_a_chat_is_under_way_at_a_time() {
    let host = Arc::new(Host::new().await);
    let mut first = Some(host.expect_in("c", "m0").await);
    let mut turns = JoinSet::new();
    for turn in 1..=20 {
        let host_of_turn = Arc::clone(&host);
        let expected = expectation(&format!("m{turn}"), Some("c"), &task());
        turns.spawn(async move { (turn, host_of_turn.mailbox.expect(expected).await.unwrap()) });
        // One after the other, so that the order is known.
        soon(async {
            while host.mailbox.counts().in_line < turn {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    let _elsewhere = host.expect_in("d", "elsewhere").await;
    for expected in 1..=20 {
        assert!(turns.try_join_next().is_none(), "nobody passes the one in front");
        drop(first.take());
        let (turn, awaited) = soon(turns.join_next()).await.unwrap().unwrap();
        assert_eq!(turn, expected, "in the order in which they came");
        first = Some(awaited);
    }
}

#[tokio::test]
async fn a_turn_that_times_out_on_a_chat_leaves_nothing_behind() {
    let host = Host::new().await;
    let first = host.expect_in("c", "m1").await;
    for within in [Duration::ZERO, Duration::from_millis(20)] {
        let expected = Expectation { within: Some(within), ..expectation("m2", Some("c"), &task()) };
        let busy = host.mailbox.expect(expected).await.err().unwrap();
        assert!(matches!(busy, CallbackError::ChatBusy(_)), "{busy}");
        assert_eq!(host.mailbox.counts().in_line, 0);
    }
    drop(first);
    let expected = Expectation { within: Some(Duration::ZERO), ..expectation("m2", Some("c"), &task()) };
    assert!(host.mailbox.expect(expected).await.is_ok());
}

#[tokio::test]
async fn closing_ends_every_wait_with_an_error() {
    let host = Arc::new(Host::new().await);
    let mut waiting = host.expect_in("c", "m1").await;
    let in_line = expectation("m2", Some("c"), &task());
    let of_line = Arc::clone(&host);
    let mut line = JoinSet::new();
    line.spawn(async move { of_line.mailbox.expect(in_line).await.err() });
    let (ended, ()) = tokio::join!(next(&mut waiting), async {
        while host.mailbox.counts().in_line == 0 {
            tokio::task::yield_now().await;
        }
        host.mailbox.close();
    });
    assert_eq!(ended.err().unwrap().to_string(), "executor shutting down");
    let refused = soon(line.join_next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(refused, CallbackError::Closing), "{refused}");
    drop(waiting);
    assert_eq!(host.post("c", Some("m1"), "late").await, stale(), "it is still kept");
}

#[tokio::test]
async fn a_reply_that_came_before_the_end_is_read_even_while_it_closes() {
    let host = Host::new().await;
    let mut one = host.expect("m1").await;
    assert_eq!(host.post("c", Some("m1"), "answer").await, accepted());
    host.mailbox.close();
    assert_eq!(next(&mut one).await.unwrap()["content"], "answer");
    assert!(next(&mut one).await.is_err());
}
