//! What callers read: the operator's choice of rule, for whole texts and for streams.

use std::borrow::Cow;

use crate::redactor::Redactor;
use crate::shapes::rewrite;
use crate::stream::TextStream;

/// What is replaced in the replies that callers read: `redact.replies` in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replies {
    /// The values of secrets that this process holds.
    #[default]
    Values,
    /// These, and what has the shape of a secret. Ordinary code may be damaged.
    Shapes,
    /// Nothing.
    Off,
}

/// Redacts replies. Clones share what they know.
#[derive(Debug, Clone)]
pub struct ReplyRedactor {
    redactor: Redactor,
    replies: Replies,
}

// === impl ReplyRedactor ===

impl ReplyRedactor {
    /// Creates a redactor of replies from the secrets to search for and the operator's choice.
    pub fn new(redactor: Redactor, replies: Replies) -> Self {
        Self { redactor, replies }
    }

    /// The redactor for what operators read.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Redacts a text of a reply. It is copied only if it changes.
    pub fn text(&self, text: String) -> String {
        match self.replies {
            Replies::Values => owned(text, |text| self.redactor.values(text)),
            Replies::Shapes => owned(text, |text| self.redactor.all(text)),
            Replies::Off => text,
        }
    }

    /// Redacts the error text of an upstream: values and shapes, whatever the choice for replies, because such texts repeat
    /// requests and nobody needs them to the letter.
    pub fn error(&self, text: String) -> String {
        owned(text, |text| self.redactor.all(text))
    }

    /// Masks values in the bytes of a file part. The length stays.
    pub fn bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        match self.replies {
            Replies::Values | Replies::Shapes => self.redactor.known().mask(bytes.into()).into(),
            Replies::Off => bytes,
        }
    }

    /// Returns a redactor for a text that arrives in pieces.
    pub fn stream(&self) -> TextStream {
        TextStream::new(self.redactor.clone(), self.replies)
    }
}

fn owned(text: String, redact: impl for<'t> FnOnce(&'t str) -> Cow<'t, str>) -> String {
    rewrite(Cow::Owned(text), redact).into_owned()
}
