use serde_json::json;
use talaria_turns::{Principal, TaskId, TaskKey};
use tokio::sync::oneshot;

use super::*;

fn task() -> TaskKey {
    TaskKey { owner: Principal::anyone(), task: TaskId::fresh() }
}

fn announced(message: &str, chat: &str, task: &TaskKey, at: u64) -> Announced {
    Announced {
        message: message.into(),
        chat: (!chat.is_empty()).then(|| chat.into()),
        task: task.clone(),
        executor: "it".into(),
        at: Timestamp::from_millis(at),
        closed: None,
    }
}

fn book() -> Book {
    Book::new(Limits::default(), Vec::new(), Vec::new())
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

impl Book {
    /// Takes a chat and announces a message in it.
    fn open(&mut self, message: &str, chat: &str, task: &TaskKey, second: u64) -> Opened {
        assert!(matches!(self.enter(chat, task).unwrap(), Entered::Now), "{chat} is free");
        self.announce(&announced(message, chat, task, second * 1_000)).unwrap()
    }

    fn end(&mut self, message: &str, chat: &str, second: u64) {
        self.withdraw(message, at(second));
        self.leave(chat);
    }

    fn take(&mut self, chat: &str, reply_to: Option<&str>, content: &str) -> Routed {
        self.post(&json!({ "chat_id": chat, "reply_to": reply_to, "content": content }))
    }

    /// The last word of a turn whose name the gateway has lost.
    fn take_last_word(&mut self, chat: &str, content: &str) -> Routed {
        self.post(&json!({ "chat_id": chat, "content": content, "metadata": { "notify": true } }))
    }

    fn post(&mut self, body: &serde_json::Value) -> Routed {
        let posted = Posted::parse(body.to_string().as_bytes()).unwrap();
        let routed = self.route(&posted, &posted.digest(), posted.content.len());
        if let Routed::For { message, role, late } = &routed {
            self.kept(message, *role, *late);
        }
        routed
    }
}

fn reply(message: &str, late: bool) -> Routed {
    Routed::For { message: message.into(), role: Role::Reply, late }
}

fn notice(message: &str) -> Routed {
    Routed::For { message: message.into(), role: Role::Notice, late: false }
}

const FAILED: &str = "⚠️ Message delivery failed after multiple attempts. Please try again";
const RECOVERED: &str = "♻️ Recovered reply — may be a duplicate:\n\nthe answer";

#[test]
fn a_recovered_answer_goes_to_the_only_message_that_lacks_one() {
    let mut book = book();
    let me = task();
    book.open("m1", "c", &me, 1);
    assert_eq!(book.take("c", None, RECOVERED), reply("m1", false));
    assert!(matches!(book.take("c", None, RECOVERED), Routed::Stale("it came before")));
}

#[test]
fn a_recovered_answer_that_was_delivered_before_is_a_duplicate() {
    let mut book = book();
    book.open("m1", "c", &task(), 1);
    assert_eq!(book.take("c", Some("m1"), "the answer"), reply("m1", false));
    book.end("m1", "c", 2);
    book.open("m2", "c", &task(), 3);
    assert!(matches!(book.take("c", None, RECOVERED), Routed::Stale("it came before")));
}

#[test]
fn a_recovered_answer_that_could_be_anybodys_is_a_notice() {
    let mut book = book();
    book.open("m1", "c", &task(), 1);
    book.end("m1", "c", 2);
    book.open("m2", "c", &task(), 3);
    assert_eq!(book.take("c", None, RECOVERED), notice("m2"), "it may be the answer to m1");
}

#[test]
fn a_recovered_answer_goes_to_the_message_whose_delivery_failed() {
    let mut book = book();
    book.open("m1", "c", &task(), 1);
    let failed = book.take("c", Some("m1"), FAILED);
    assert_eq!(failed, Routed::For { message: "m1".into(), role: Role::DeliveryFailed, late: false });
    book.end("m1", "c", 2);
    book.open("m2", "c", &task(), 3);
    assert_eq!(book.take("c", None, RECOVERED), reply("m1", true), "and not to the one under way");
    assert_eq!(book.counts().late, 1);
}

#[test]
fn the_answer_of_a_resumed_turn_goes_to_the_only_message_that_lacks_one() {
    let mut book = book();
    book.open("m1", "c", &task(), 1);
    assert_eq!(book.take("c", Some("m1"), "done"), reply("m1", false));
    book.end("m1", "c", 2);
    book.open("m2", "c", &task(), 3);
    assert_eq!(book.take("c", None, "done"), notice("m2"), "anybody can say that");
    assert_eq!(
        book.take_last_word("c", "done"),
        reply("m2", false),
        "the same words, and not the same answer"
    );
    book.end("m2", "c", 4);
    assert!(matches!(book.take_last_word("c", "done"), Routed::Stale(_)));
}

#[test]
fn the_answer_of_a_resumed_turn_that_could_be_anybodys_is_a_notice() {
    let mut book = book();
    book.open("m1", "c", &task(), 1);
    book.end("m1", "c", 2);
    book.open("m2", "c", &task(), 3);
    assert_eq!(book.take_last_word("c", "done"), notice("m2"));
}

#[test]
fn a_notice_goes_to_whoever_is_under_way_and_to_nobody_else() {
    let mut book = book();
    assert!(matches!(book.take("c", None, "hello"), Routed::Stale(_)));
    book.open("m1", "c", &task(), 1);
    assert_eq!(book.take("c", None, "hello"), notice("m1"));
    assert_eq!(book.take("c", None, "hello"), notice("m1"), "the same twice is meant twice");
    assert!(matches!(book.take("other", None, "hello"), Routed::Stale(_)));
    assert!(matches!(book.take("", None, "hello"), Routed::Stale(_)));
    book.end("m1", "c", 2);
    assert!(matches!(book.take("c", None, "hello"), Routed::Stale(_)));
}

#[test]
fn replies_and_notices_for_one_announcement_are_bounded_apart() {
    let limits = Limits { notices: 2, replies: 2, ..Limits::default() };
    let mut book = Book::new(limits, Vec::new(), Vec::new());
    book.open("m1", "c", &task(), 1);
    for _ in 0..2 {
        assert_eq!(book.take("c", None, "hello"), notice("m1"));
    }
    assert!(matches!(book.take("c", None, "hello"), Routed::Stale(_)));
    for text in ["one", "two"] {
        assert_eq!(
            book.take("c", Some("m1"), text),
            reply("m1", false),
            "a flood of notices hides no answer"
        );
    }
    assert!(matches!(book.take("c", Some("m1"), "three"), Routed::Stale(_)));
}

#[test]
fn what_the_store_did_not_take_may_come_again() {
    let mut book = book();
    book.open("m1", "c", &task(), 1);
    let posted = Posted::parse(br#"{"reply_to":"m1","content":"hi"}"#).unwrap();
    let digest = posted.digest();
    for _ in 0..2 {
        assert_eq!(book.route(&posted, &digest, 2), reply("m1", false));
        assert!(matches!(book.route(&posted, &digest, 2), Routed::Stale(_)), "while it is on its way");
        book.unkept("m1", Role::Reply, &digest, 2);
        assert_eq!(book.counts().bytes, 0);
    }
}

#[test]
fn bytes_are_bounded_and_what_ended_longest_ago_goes_first() {
    let mut book = Book::new(Limits { bytes: 10, ..Limits::default() }, Vec::new(), Vec::new());
    for (message, second) in [("m1", 1), ("m2", 2)] {
        book.open(message, message, &task(), second);
        assert_eq!(book.take("", Some(message), "12345"), reply(message, false));
        book.end(message, message, second);
    }
    book.open("m3", "c", &task(), 3);
    assert_eq!(book.take("", Some("m3"), "123"), reply("m3", false));
    assert!(matches!(book.take("", Some("m1"), "x"), Routed::Stale(_)), "m1 is forgotten");
    assert_eq!(book.counts().bytes, 8);
    assert_eq!(book.take("", Some("m3"), "12345678901"), Routed::Full, "more than there ever is");
    assert_eq!(book.take_changes().1, ["m1".into(), "m2".into()]);
}

#[test]
fn a_chat_is_had_by_one_task_at_a_time_in_order() {
    let mut book = book();
    let [one, two, three] = [task(), task(), task()];
    assert!(matches!(book.enter("c", &one).unwrap(), Entered::Now));
    let Entered::Later(_, mut second) = book.enter("c", &two).unwrap() else { panic!("two waits") };
    let Entered::Later(ticket, mut third) = book.enter("c", &three).unwrap() else { panic!("three waits") };
    assert!(matches!(book.enter("c", &one).unwrap(), Entered::Now), "who has it has it again");
    assert!(matches!(book.enter("d", &two).unwrap(), Entered::Now), "another chat is another matter");
    book.leave("c");
    assert!(second.try_recv().is_err(), "one has it still, once");
    book.leave("c");
    assert!(second.try_recv().is_ok() && third.try_recv().is_err());
    // Three goes away before its time, two after it.
    book.give_up("c", ticket);
    book.leave("c");
    assert!(matches!(book.enter("c", &one).unwrap(), Entered::Now));
    book.leave("c");
    assert!(!book.chats.contains_key("c"), "nothing is left of a chat that nobody has");
}

#[test]
fn whoever_leaves_the_line_at_the_moment_of_its_turn_passes_it_on() {
    let mut book = book();
    let [one, two, three] = [task(), task(), task()];
    assert!(matches!(book.enter("c", &one).unwrap(), Entered::Now));
    let Entered::Later(ticket, gone) = book.enter("c", &two).unwrap() else { panic!("two waits") };
    let Entered::Later(_, mut next) = book.enter("c", &three).unwrap() else { panic!("three waits") };
    drop(gone);
    book.leave("c");
    assert!(next.try_recv().is_err(), "the chat is two's for a moment");
    book.give_up("c", ticket);
    assert!(next.try_recv().is_ok());
}

#[test]
fn a_line_is_bounded() {
    let mut book = Book::new(Limits { lane: 1, ..Limits::default() }, Vec::new(), Vec::new());
    assert!(matches!(book.enter("c", &task()).unwrap(), Entered::Now));
    let _second = book.enter("c", &task()).unwrap();
    let full = book.enter("c", &task()).err().unwrap();
    assert_eq!(full.to_string(), "1 turns wait for this chat, which is the most");
}

#[test]
fn announcements_are_bounded_and_unique() {
    let mut book = Book::new(Limits { open: 2, ..Limits::default() }, Vec::new(), Vec::new());
    let me = task();
    book.announce(&announced("m1", "", &me, 1)).unwrap();
    for same in [&me, &task()] {
        let twice = book.announce(&announced("m1", "", same, 1)).err().unwrap();
        assert!(matches!(twice, CallbackError::Duplicate(_)), "{twice}");
    }
    book.announce(&announced("m2", "", &me, 1)).unwrap();
    let full = book.announce(&announced("m3", "", &me, 1)).err().unwrap();
    assert!(matches!(full, CallbackError::Full(_)), "{full}");
    book.withdraw("m1", at(1));
    book.announce(&announced("m3", "", &me, 1)).unwrap();
}

#[test]
fn a_message_that_was_left_unanswered_is_to_be_stopped_before_the_next() {
    let mut book = book();
    assert!(!book.open("m1", "c", &task(), 1).overtakes);
    book.end("m1", "c", 2);
    let me = task();
    assert!(book.open("m2", "c", &me, 3).overtakes, "the agent may still be at it");
    // The same task stops it, in the same chat.
    book.open("stop", "c", &me, 4);
    assert_eq!(book.take("c", Some("stop"), "stopped"), reply("stop", false));
    book.end("stop", "c", 5);
    assert_eq!(book.take("c", Some("m2"), "the answer"), reply("m2", false));
    book.end("m2", "c", 6);
    assert!(!book.open("m3", "c", &task(), 7).overtakes, "it answered since");
}

#[test]
fn what_was_open_before_a_restart_keeps_its_chat_for_a_while() {
    let [mine, other] = [task(), task()];
    let kept = vec![announced("m1", "c", &mine, 1), announced("m2", "c", &other, 2)];
    let boot = at(100);
    let mut book = Book::new(Limits::default(), kept, Vec::new());
    assert_eq!(book.counts().orphans, 2);
    let Entered::Later(_, mut waits) = book.enter("c", &other).unwrap() else { panic!("it is m1's") };
    // m1's turn comes back, ends, and the next has the chat.
    assert!(matches!(book.enter("c", &mine).unwrap(), Entered::Now));
    book.announce(&announced("m1", "c", &mine, 101)).unwrap();
    assert!(waits.try_recv().is_err());
    book.end("m1", "c", 102);
    assert!(waits.try_recv().is_ok());

    book.sweep(at(100 + 59), boot);
    assert_eq!(book.counts().orphans, 1);
    book.sweep(at(100 + 61), boot);
    assert_eq!((book.counts().orphans, book.counts().unanswered), (0, 2));
    // Late as it is, its turn may still come back, and gets what came.
    assert_eq!(book.take("", Some("m2"), "the answer"), reply("m2", true));
    book.announce(&announced("m2", "c", &other, 200)).unwrap();
    assert_eq!((book.letters("m2"), book.counts().late), (1, 0));
}

#[test]
fn nothing_is_kept_for_ever() {
    let mut book = book();
    for (message, answered) in [("answered", true), ("unanswered", false), ("late", false)] {
        book.open(message, message, &task(), 1);
        if answered {
            book.take("", Some(message), "x");
        }
        book.end(message, message, 10);
    }
    book.take("", Some("late"), "x");
    let Counts { answered, unanswered, late, .. } = book.counts();
    assert_eq!((answered, unanswered, late), (1, 1, 1));
    book.sweep(at(10 + 3_600), at(0));
    assert_eq!(book.counts().answered, 1, "an hour is not over");
    book.sweep(at(11 + 3_600), at(0));
    assert_eq!(book.counts().answered, 0);
    book.sweep(at(10 + 24 * 3_600), at(0));
    assert_eq!((book.counts().unanswered, book.counts().late), (1, 1), "nor is a day");
    book.sweep(at(11 + 24 * 3_600), at(0));
    assert_eq!(book.counts(), Counts::default());
    assert!(book.chats.is_empty() && book.entries.is_empty());
}

#[test]
fn what_is_remembered_is_bounded_in_number() {
    let limits = Limits { answered: 2, unanswered: 2, ..Limits::default() };
    let mut book = Book::new(limits, Vec::new(), Vec::new());
    for second in 0..5 {
        for kind in ["answered", "unanswered"] {
            let message = format!("{kind}-{second}");
            book.open(&message, "", &task(), second);
            if kind == "answered" {
                book.take("", Some(&message), "x");
            }
            book.end(&message, "", second);
        }
    }
    book.sweep(at(5), at(0));
    let mut left: Vec<&str> = book.entries.keys().map(|message| &**message).collect();
    left.sort_unstable();
    assert_eq!(left, ["answered-3", "answered-4", "unanswered-3", "unanswered-4"]);
    assert_eq!(book.take_changes().1.len(), 6);
}

#[test]
fn everybody_is_told_that_it_closes() {
    let mut book = book();
    assert!(matches!(book.enter("c", &task()).unwrap(), Entered::Now));
    let Entered::Later(ticket, mut waits) = book.enter("c", &task()).unwrap() else { panic!("it waits") };
    book.close();
    assert!(matches!(waits.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
    book.give_up("c", ticket);
    assert!(matches!(book.enter("d", &task()), Err(CallbackError::Closing)));
    assert!(matches!(book.announce(&announced("m", "", &task(), 1)), Err(CallbackError::Closing)));
}
