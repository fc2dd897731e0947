//! A late reply goes to its task: once, whatever comes between, and nothing else does.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use talaria_mailbox::Limits;
use talaria_store::Memory;
use talaria_turns::{CallbackStore, Callbacks as _, Timestamp};

use crate::kit::{Host, accepted, expectation, next, soon, stale, task};

#[tokio::test]
async fn a_late_reply_is_delivered_and_a_repeated_one_is_not() {
    let host = Host::new().await;
    let mine = task();
    drop(host.mailbox.expect(expectation("m1", Some("c"), &mine)).await.unwrap());
    assert_eq!(host.post("c", Some("m1"), "the answer").await, stale());
    let [late] = host.sink.taken(1).await.try_into().unwrap();
    assert_eq!((&late.task, &*late.message, late.place, late.text.as_str()), (&mine, "m1", 0, "the answer"));
    assert_eq!(host.post("c", Some("m1"), "the answer").await, stale());
    // Another one is told from it by its place.
    assert_eq!(host.post("c", Some("m1"), "another answer").await, stale());
    let all = host.sink.taken(3).await;
    let seen: Vec<_> = all.iter().map(|late| (late.place, late.text.as_str())).collect();
    assert_eq!(
        seen,
        [(0, "the answer"), (0, "the answer"), (1, "another answer")],
        "the sink knows the first"
    );
}

#[tokio::test]
async fn a_reply_that_is_not_accepted_is_delivered_again() {
    let host = Host::new().await;
    host.sink.too_early.store(1, SeqCst);
    host.sink.failing.store(1, SeqCst);
    drop(host.expect_in("c", "m1").await);
    assert_eq!(host.post("c", Some("m1"), "the answer").await, stale());
    // Failed, too early, taken.
    soon(async {
        while host.sink.taken.borrow().is_empty() {
            host.mailbox.sweep(Timestamp::now());
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((host.sink.failing.load(SeqCst), host.sink.too_early.load(SeqCst)), (0, 0));
}

#[tokio::test]
async fn a_restart_delivers_it_again() {
    let store: Arc<dyn CallbackStore> = Arc::new(Memory::new(10));
    let before = Host::on(Arc::clone(&store), None, Limits::default()).await;
    before.sink.failing.store(usize::MAX, SeqCst);
    drop(before.expect_in("c", "m1").await);
    assert_eq!(before.post("c", Some("m1"), "the answer").await, stale());
    before.stop().await;
    let after = Host::on(store, None, Limits::default()).await;
    assert_eq!(after.sink.taken(1).await[0].text, "the answer");
}

#[tokio::test]
async fn an_answer_to_a_command_is_not_a_reply_to_its_task() {
    let host = Host::new().await;
    let (mine, other) = (task(), task());
    let answered = host.mailbox.expect(expectation("m1", Some("c"), &mine)).await.unwrap();
    drop(host.mailbox.expect(expectation("stop", Some("c"), &mine)).await.unwrap());
    drop(answered);
    assert_eq!(host.post("c", Some("stop"), "Stopped.").await, stale());
    // In the line behind it, so that nothing is still on its way.
    let mut third = host.mailbox.expect(expectation("m3", Some("d"), &other)).await.unwrap();
    assert_eq!(host.post("d", Some("m3"), "hi").await, accepted());
    assert_eq!(next(&mut third).await.unwrap()["content"], "hi");
    assert_eq!(host.post("c", Some("m1"), "the answer").await, stale());
    let texts: Vec<String> = host.sink.taken(1).await.into_iter().map(|late| late.text).collect();
    assert_eq!(texts, ["the answer"]);
}
