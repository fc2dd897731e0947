//! Access for the fuzz targets in `tests/fuzz`, which alone are built with `--cfg fuzzing`: a body as a wire parses it, and
//! where it goes among a few turns. Nothing is checked here; the targets say what must hold.

use talaria_turns::{ExpectedReply, Principal, TaskId, TaskKey, Timestamp};

use crate::expectations::{Expectations, Routed};
use crate::{Callback, CallbackWire, DeliveredAs, Limits};

/// Where a callback went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Went {
    /// The message whose turn gets it.
    pub message: String,
    /// Whether the turn gets it as the answer.
    pub is_reply: bool,
    /// Whether the turn has ended.
    pub is_late: bool,
    /// The body that the turn gets.
    pub body: Vec<u8>,
}

/// Where a callback goes, twice in a row, while a turn waits for `a` in the chat `c`, the turn of `b` in the same chat has
/// ended without an answer, and a turn waits for `d` without a chat.
#[must_use]
pub fn route(wire: &dyn CallbackWire, callback: &Callback) -> [Option<Went>; 2] {
    let now = Timestamp::from_millis(1);
    let expected = |message: &str, chat: Option<&str>| ExpectedReply {
        message: message.into(),
        chat: chat.map(Into::into),
        task: TaskKey { owner: Principal::anyone(), task: TaskId::fresh() },
        executor: "it".into(),
        at: now,
        closed: None,
    };
    let mut expectations = Expectations::new(Limits::default(), Vec::new(), Vec::new());
    for open in [expected("b", Some("c")), expected("a", Some("c")), expected("d", None)] {
        let _ = expectations.expect(&open);
    }
    expectations.withdraw("b", now);
    std::array::from_fn(|_| {
        let routed = expectations.route(callback, &callback.digest(), callback.content.len());
        let Routed::For { message, delivered_as, late } = routed else { return None };
        expectations.stored(&message, delivered_as, late);
        let body = wire.turn_body(callback, &message, delivered_as).to_string().into_bytes();
        let is_reply = delivered_as == DeliveredAs::Reply;
        Some(Went { message: message.into(), is_reply, is_late: late, body })
    })
}
