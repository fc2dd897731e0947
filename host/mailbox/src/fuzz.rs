//! Doors for the fuzz targets in `tests/fuzz`, which alone are built with `--cfg fuzzing`: a post as the listener reads it,
//! and where it goes among a few turns. Nothing is checked here: what must hold is said by the targets.

use talaria_turns::{Announced, Principal, TaskId, TaskKey, Timestamp};

use crate::Limits;
use crate::book::{Book, Routed};
use crate::letter::{Invalid, Kind, Posted, Role};

/// A post.
#[derive(Debug, Clone)]
pub struct Post(Posted);

/// What became of a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Went {
    /// The message whose turn gets it.
    pub message: String,
    /// Whether it is told that this is the answer.
    pub is_reply: bool,
    /// Whether the turn has ended.
    pub is_late: bool,
    /// What it is given.
    pub body: Vec<u8>,
}

impl Post {
    /// Reads a body.
    ///
    /// # Errors
    /// As the peer is told.
    pub fn read(body: &[u8]) -> Result<Self, &'static str> {
        Posted::parse(body).map(Self).map_err(Invalid::text)
    }

    /// The message that it answers.
    #[must_use]
    pub fn reply_to(&self) -> Option<&str> {
        self.0.reply_to.as_deref()
    }

    /// The chat that it is about.
    #[must_use]
    pub fn chat(&self) -> Option<&str> {
        self.0.chat.as_deref()
    }

    /// What it says, without what the gateway put before it.
    #[must_use]
    pub fn content(&self) -> &str {
        &self.0.content
    }

    /// Whether the gateway only says that it could not deliver.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.0.kind == Kind::DeliveryFailed
    }

    /// Where it goes, twice in a row, where `a` in the chat `c` is waited for, `b` in the same chat has ended without an
    /// answer, and `d` is waited for without a chat.
    #[must_use]
    pub fn route(&self) -> [Option<Went>; 2] {
        let now = Timestamp::from_millis(1);
        let announced = |message: &str, chat: Option<&str>, closed| Announced {
            message: message.into(),
            chat: chat.map(Into::into),
            task: TaskKey { owner: Principal::anyone(), task: TaskId::fresh() },
            executor: "it".into(),
            at: now,
            closed,
        };
        let mut book = Book::new(Limits::default(), Vec::new(), Vec::new());
        for open in
            [announced("b", Some("c"), None), announced("a", Some("c"), None), announced("d", None, None)]
        {
            let _ = book.announce(&open);
        }
        book.withdraw("b", now);
        std::array::from_fn(|_| {
            let Routed::For { message, role, late } =
                book.route(&self.0, &self.0.digest(), self.0.content.len())
            else {
                return None;
            };
            book.kept(&message, role, late);
            let body = self.0.body(&message, role);
            Some(Went { message: message.into(), is_reply: role == Role::Reply, is_late: late, body })
        })
    }
}
