use talaria_turns::{Principal, TaskId, TaskKey};
use tokio::sync::oneshot;

use super::*;
use crate::callback::{Callback, CallbackKind, DeliveredAs};

fn task() -> TaskKey {
    TaskKey { owner: Principal::anyone(), task: TaskId::fresh() }
}

fn chat(name: &str) -> ChatKey {
    ChatKey { name: name.into(), executor: "it".into() }
}

fn expected(message: &str, chat: &str, task: &TaskKey, at: u64) -> ExpectedReply {
    ExpectedReply {
        message: message.into(),
        chat: (!chat.is_empty()).then(|| chat.into()),
        task: task.clone(),
        executor: "it".into(),
        at: Timestamp::from_millis(at),
        closed: None,
    }
}

fn replies() -> Expectations {
    Expectations::new(Limits::default(), Vec::new(), Vec::new())
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

impl Expectations {
    /// Takes a chat and announces a message in it.
    fn open(&mut self, message: &str, chat: &str, task: &TaskKey, second: u64) -> Opened {
        assert!(
            matches!(self.acquire_chat(&super::tests::chat(chat), task).unwrap(), Acquired::Now),
            "{chat} is free"
        );
        self.expect(&expected(message, chat, task, second * 1_000)).unwrap()
    }

    fn end(&mut self, message: &str, chat: &str, second: u64) {
        self.withdraw(message, at(second));
        self.release_chat(&super::tests::chat(chat));
    }

    fn take(&mut self, chat: &str, reply_to: Option<&str>, content: &str) -> Routed {
        self.post(CallbackKind::Plain, chat, reply_to, content)
    }

    /// An answer that the upstream repeats after a restart, without its message.
    fn take_recovered(&mut self, chat: &str) -> Routed {
        self.post(CallbackKind::Recovered, chat, None, "the answer")
    }

    /// The answer of a turn that the upstream resumed, without its message.
    fn take_resumed(&mut self, chat: &str, content: &str) -> Routed {
        self.post(CallbackKind::Resumed, chat, None, content)
    }

    fn post(&mut self, kind: CallbackKind, chat: &str, reply_to: Option<&str>, content: &str) -> Routed {
        let callback = callback(kind, chat, reply_to, content);
        let routed = self.route(&callback, &callback.digest(), content.len());
        if let Routed::For { message, delivered_as, late } = &routed {
            self.stored(message, *delivered_as, *late);
        }
        routed
    }
}

fn callback(kind: CallbackKind, chat: &str, reply_to: Option<&str>, content: &str) -> Callback {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Callback { reply_to: reply_to.map(str::to_owned), chat: given(chat), kind, content: content.to_owned() }
}

fn reply(message: &str, late: bool) -> Routed {
    Routed::For { message: message.into(), delivered_as: DeliveredAs::Reply, late }
}

fn notice(message: &str) -> Routed {
    Routed::For { message: message.into(), delivered_as: DeliveredAs::Notice, late: false }
}

#[test]
fn a_recovered_answer_goes_to_the_only_message_that_lacks_one() {
    let mut replies = replies();
    let me = task();
    replies.open("m1", "c", &me, 1);
    assert_eq!(replies.take_recovered("c"), reply("m1", false));
    assert!(matches!(replies.take_recovered("c"), Routed::Stale("it came before")));
}

#[test]
fn a_recovered_answer_that_was_delivered_before_is_a_duplicate() {
    let mut replies = replies();
    replies.open("m1", "c", &task(), 1);
    assert_eq!(replies.take("c", Some("m1"), "the answer"), reply("m1", false));
    replies.end("m1", "c", 2);
    replies.open("m2", "c", &task(), 3);
    assert!(matches!(replies.take_recovered("c"), Routed::Stale("it came before")));
}

#[test]
fn an_ambiguous_recovered_answer_is_a_notice() {
    let mut replies = replies();
    replies.open("m1", "c", &task(), 1);
    replies.end("m1", "c", 2);
    replies.open("m2", "c", &task(), 3);
    assert_eq!(replies.take_recovered("c"), notice("m2"), "it may be the answer to m1");
}

#[test]
fn a_recovered_answer_goes_to_the_message_whose_delivery_failed() {
    let mut replies = replies();
    replies.open("m1", "c", &task(), 1);
    let failed = replies.post(CallbackKind::DeliveryFailed, "c", Some("m1"), "not delivered");
    assert_eq!(
        failed,
        Routed::For { message: "m1".into(), delivered_as: DeliveredAs::DeliveryFailed, late: false }
    );
    replies.end("m1", "c", 2);
    replies.open("m2", "c", &task(), 3);
    assert_eq!(replies.take_recovered("c"), reply("m1", true), "and not to the one under way");
    assert_eq!(replies.counts().late, 1);
}

#[test]
fn the_answer_of_a_resumed_turn_goes_to_the_only_message_that_lacks_one() {
    let mut replies = replies();
    replies.open("m1", "c", &task(), 1);
    assert_eq!(replies.take("c", Some("m1"), "done"), reply("m1", false));
    replies.end("m1", "c", 2);
    replies.open("m2", "c", &task(), 3);
    assert_eq!(replies.take("c", None, "done"), notice("m2"), "anybody can say that");
    assert_eq!(
        replies.take_resumed("c", "done"),
        reply("m2", false),
        "the same words, and not the same answer"
    );
    replies.end("m2", "c", 4);
    assert!(matches!(replies.take_resumed("c", "done"), Routed::Stale(_)));
}

#[test]
fn the_ambiguous_answer_of_a_resumed_turn_is_a_notice() {
    let mut replies = replies();
    replies.open("m1", "c", &task(), 1);
    replies.end("m1", "c", 2);
    replies.open("m2", "c", &task(), 3);
    assert_eq!(replies.take_resumed("c", "done"), notice("m2"));
}

#[test]
fn a_notice_goes_only_to_the_turn_that_runs_on_its_chat() {
    let mut replies = replies();
    assert!(matches!(replies.take("c", None, "hello"), Routed::Stale(_)));
    replies.open("m1", "c", &task(), 1);
    assert_eq!(replies.take("c", None, "hello"), notice("m1"));
    assert_eq!(replies.take("c", None, "hello"), notice("m1"), "the same twice is meant twice");
    assert!(matches!(replies.take("other", None, "hello"), Routed::Stale(_)));
    assert!(matches!(replies.take("", None, "hello"), Routed::Stale(_)));
    replies.end("m1", "c", 2);
    assert!(matches!(replies.take("c", None, "hello"), Routed::Stale(_)));
}

#[test]
fn replies_and_notices_of_an_expectation_have_separate_bounds() {
    let limits = Limits { notices: 2, replies: 2, ..Limits::default() };
    let mut replies = Expectations::new(limits, Vec::new(), Vec::new());
    replies.open("m1", "c", &task(), 1);
    for _ in 0..2 {
        assert_eq!(replies.take("c", None, "hello"), notice("m1"));
    }
    assert!(matches!(replies.take("c", None, "hello"), Routed::Stale(_)));
    for text in ["one", "two"] {
        assert_eq!(
            replies.take("c", Some("m1"), text),
            reply("m1", false),
            "a flood of notices hides no answer"
        );
    }
    assert!(matches!(replies.take("c", Some("m1"), "three"), Routed::Stale(_)));
}

#[test]
fn a_callback_that_was_not_stored_may_come_again() {
    let mut replies = replies();
    replies.open("m1", "c", &task(), 1);
    let callback = callback(CallbackKind::Plain, "", Some("m1"), "hi");
    let digest = callback.digest();
    for _ in 0..2 {
        assert_eq!(replies.route(&callback, &digest, 2), reply("m1", false));
        assert!(matches!(replies.route(&callback, &digest, 2), Routed::Stale(_)), "while it is on its way");
        replies.not_stored("m1", DeliveredAs::Reply, &digest, 2);
        assert_eq!(replies.counts().bytes, 0);
    }
}

#[test]
fn bytes_are_bounded_and_the_oldest_ended_entries_are_deleted_first() {
    let mut replies = Expectations::new(Limits { bytes: 10, ..Limits::default() }, Vec::new(), Vec::new());
    for (message, second) in [("m1", 1), ("m2", 2)] {
        replies.open(message, message, &task(), second);
        assert_eq!(replies.take("", Some(message), "12345"), reply(message, false));
        replies.end(message, message, second);
    }
    replies.open("m3", "c", &task(), 3);
    assert_eq!(replies.take("", Some("m3"), "123"), reply("m3", false));
    assert!(matches!(replies.take("", Some("m1"), "x"), Routed::Stale(_)), "m1 is forgotten");
    assert_eq!(replies.counts().bytes, 8);
    assert_eq!(replies.take("", Some("m3"), "12345678901"), Routed::Full, "more than there ever is");
    assert_eq!(replies.take_unsaved().1, ["m1".into(), "m2".into()]);
}

#[test]
fn one_task_at_a_time_holds_a_chat_in_order() {
    let mut replies = replies();
    let [one, two, three] = [task(), task(), task()];
    assert!(matches!(replies.acquire_chat(&chat("c"), &one).unwrap(), Acquired::Now));
    let Acquired::Queued(_, mut second) = replies.acquire_chat(&chat("c"), &two).unwrap() else {
        panic!("two waits")
    };
    let Acquired::Queued(ticket, mut third) = replies.acquire_chat(&chat("c"), &three).unwrap() else {
        panic!("three waits")
    };
    assert!(
        matches!(replies.acquire_chat(&chat("c"), &one).unwrap(), Acquired::Now),
        "its holder acquires it again"
    );
    assert!(matches!(replies.acquire_chat(&chat("d"), &two).unwrap(), Acquired::Now), "another chat is free");
    replies.release_chat(&chat("c"));
    assert!(second.try_recv().is_err(), "one has it still, once");
    replies.release_chat(&chat("c"));
    assert!(second.try_recv().is_ok() && third.try_recv().is_err());
    // Three goes away before its time, two after it.
    replies.leave_queue(&chat("c"), ticket);
    replies.release_chat(&chat("c"));
    assert!(matches!(replies.acquire_chat(&chat("c"), &one).unwrap(), Acquired::Now));
    replies.release_chat(&chat("c"));
    assert!(!replies.chats.contains_key(&chat("c")), "nothing is left of a chat that nobody has");
}

#[test]
fn a_turn_that_leaves_as_it_is_handed_the_chat_passes_it_on() {
    let mut replies = replies();
    let [one, two, three] = [task(), task(), task()];
    assert!(matches!(replies.acquire_chat(&chat("c"), &one).unwrap(), Acquired::Now));
    let Acquired::Queued(ticket, gone) = replies.acquire_chat(&chat("c"), &two).unwrap() else {
        panic!("two waits")
    };
    let Acquired::Queued(_, mut next) = replies.acquire_chat(&chat("c"), &three).unwrap() else {
        panic!("three waits")
    };
    drop(gone);
    replies.release_chat(&chat("c"));
    assert!(next.try_recv().is_err(), "the chat is two's for a moment");
    replies.leave_queue(&chat("c"), ticket);
    assert!(next.try_recv().is_ok());
}

#[test]
fn the_queue_of_a_chat_is_bounded() {
    let mut replies = Expectations::new(Limits { queue: 1, ..Limits::default() }, Vec::new(), Vec::new());
    assert!(matches!(replies.acquire_chat(&chat("c"), &task()).unwrap(), Acquired::Now));
    let _second = replies.acquire_chat(&chat("c"), &task()).unwrap();
    let full = replies.acquire_chat(&chat("c"), &task()).err().unwrap();
    assert_eq!(full.to_string(), "1 turns wait for this chat, which is the most");
}

#[test]
fn expectations_are_bounded_and_unique() {
    let mut replies = Expectations::new(Limits { open: 2, ..Limits::default() }, Vec::new(), Vec::new());
    let me = task();
    replies.expect(&expected("m1", "", &me, 1)).unwrap();
    for same in [&me, &task()] {
        let twice = replies.expect(&expected("m1", "", same, 1)).err().unwrap();
        assert!(matches!(twice, CallbackError::Duplicate(_)), "{twice}");
    }
    replies.expect(&expected("m2", "", &me, 1)).unwrap();
    let full = replies.expect(&expected("m3", "", &me, 1)).err().unwrap();
    assert!(matches!(full, CallbackError::Full(_)), "{full}");
    replies.withdraw("m1", at(1));
    replies.expect(&expected("m3", "", &me, 1)).unwrap();
}

#[test]
fn an_unanswered_message_must_be_stopped_before_the_next() {
    let mut replies = replies();
    assert!(!replies.open("m1", "c", &task(), 1).overtakes);
    replies.end("m1", "c", 2);
    let me = task();
    assert!(replies.open("m2", "c", &me, 3).overtakes, "the agent may still be at it");
    // The same task stops it, in the same chat.
    replies.open("stop", "c", &me, 4);
    assert_eq!(replies.take("c", Some("stop"), "stopped"), reply("stop", false));
    replies.end("stop", "c", 5);
    assert_eq!(replies.take("c", Some("m2"), "the answer"), reply("m2", false));
    replies.end("m2", "c", 6);
    assert!(!replies.open("m3", "c", &task(), 7).overtakes, "it answered since");
}

#[test]
fn an_expectation_from_before_a_restart_keeps_its_chat_for_a_while() {
    let [mine, other] = [task(), task()];
    let kept = vec![expected("m1", "c", &mine, 1), expected("m2", "c", &other, 2)];
    let boot = at(100);
    let mut replies = Expectations::new(Limits::default(), kept, Vec::new());
    assert_eq!(replies.counts().orphans, 2);
    let Acquired::Queued(_, mut waits) = replies.acquire_chat(&chat("c"), &other).unwrap() else {
        panic!("it is m1's")
    };
    // m1's turn comes back, ends, and the next has the chat.
    assert!(matches!(replies.acquire_chat(&chat("c"), &mine).unwrap(), Acquired::Now));
    replies.expect(&expected("m1", "c", &mine, 101)).unwrap();
    assert!(waits.try_recv().is_err());
    replies.end("m1", "c", 102);
    assert!(waits.try_recv().is_ok());

    replies.sweep(at(100 + 59), boot);
    assert_eq!(replies.counts().orphans, 1);
    replies.sweep(at(100 + 61), boot);
    assert_eq!((replies.counts().orphans, replies.counts().unanswered), (0, 2));
    // Late as it is, its turn may still come back, and gets what came.
    assert_eq!(replies.take("", Some("m2"), "the answer"), reply("m2", true));
    replies.expect(&expected("m2", "c", &other, 200)).unwrap();
    assert_eq!((replies.callbacks("m2"), replies.counts().late), (1, 0));
}

#[test]
fn everything_expires() {
    let mut replies = replies();
    for (message, answered) in [("answered", true), ("unanswered", false), ("late", false)] {
        replies.open(message, message, &task(), 1);
        if answered {
            replies.take("", Some(message), "x");
        }
        replies.end(message, message, 10);
    }
    replies.take("", Some("late"), "x");
    let Counts { answered, unanswered, late, .. } = replies.counts();
    assert_eq!((answered, unanswered, late), (1, 1, 1));
    replies.sweep(at(10 + 3_600), at(0));
    assert_eq!(replies.counts().answered, 1, "an hour is not over");
    replies.sweep(at(11 + 3_600), at(0));
    assert_eq!(replies.counts().answered, 0);
    replies.sweep(at(10 + 24 * 3_600), at(0));
    assert_eq!((replies.counts().unanswered, replies.counts().late), (1, 1), "nor is a day");
    replies.sweep(at(11 + 24 * 3_600), at(0));
    assert_eq!(replies.counts(), Counts::default());
    assert!(replies.chats.is_empty() && replies.entries.is_empty());
}

#[test]
fn ended_entries_are_bounded_in_number() {
    let limits = Limits { answered: 2, unanswered: 2, ..Limits::default() };
    let mut replies = Expectations::new(limits, Vec::new(), Vec::new());
    for second in 0..5 {
        for kind in ["answered", "unanswered"] {
            let message = format!("{kind}-{second}");
            replies.open(&message, "", &task(), second);
            if kind == "answered" {
                replies.take("", Some(&message), "x");
            }
            replies.end(&message, "", second);
        }
    }
    replies.sweep(at(5), at(0));
    let mut left: Vec<&str> = replies.entries.keys().map(|message| &**message).collect();
    left.sort_unstable();
    assert_eq!(left, ["answered-3", "answered-4", "unanswered-3", "unanswered-4"]);
    assert_eq!(replies.take_unsaved().1.len(), 6);
}

#[test]
fn closing_ends_every_wait() {
    let mut replies = replies();
    assert!(matches!(replies.acquire_chat(&chat("c"), &task()).unwrap(), Acquired::Now));
    let Acquired::Queued(ticket, mut waits) = replies.acquire_chat(&chat("c"), &task()).unwrap() else {
        panic!("it waits")
    };
    replies.close();
    assert!(matches!(waits.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
    replies.leave_queue(&chat("c"), ticket);
    assert!(matches!(replies.acquire_chat(&chat("d"), &task()), Err(CallbackError::Closing)));
    assert!(matches!(replies.expect(&expected("m", "", &task(), 1)), Err(CallbackError::Closing)));
}

#[test]
fn an_executor_neither_holds_up_nor_hears_the_chat_of_another() {
    let mut replies = replies();
    let (mine, theirs) = (task(), task());
    let their_chat = ChatKey { executor: "other".into(), ..chat("c") };
    replies.open("m1", "c", &mine, 1);
    assert!(matches!(replies.acquire_chat(&their_chat, &theirs).unwrap(), Acquired::Now), "not held up");
    assert_eq!(replies.take("c", None, "first"), notice("m1"), "nobody else has expected anything there");
    let intruder = ExpectedReply { executor: "other".into(), ..expected("m2", "c", &theirs, 2_000) };
    assert!(!replies.expect(&intruder).unwrap().overtakes, "messages of another executor do not count");
    for taken in
        [replies.take("c", None, "second"), replies.take_resumed("c", "third"), replies.take_recovered("c")]
    {
        assert_eq!(taken, Routed::Stale("several executors have a chat of this name"));
    }
    assert_eq!(replies.take("c", Some("m1"), "the answer"), reply("m1", false), "a named message is clear");
    // Once the turn has ended, the other executor still hears nothing of its chat.
    replies.end("m1", "c", 3);
    assert_eq!(replies.take("c", None, "late"), Routed::Stale("several executors have a chat of this name"));
}
