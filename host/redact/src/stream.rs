//! Redaction of a text that arrives in pieces.
//!
//! **Promise:** the redacted pieces together are what the redacted whole is. What is held back meanwhile:
//!
//! - With [`Replies::Values`], the current word (`values` says why, and when it is more).
//! - With [`Replies::Shapes`], the current line, and a private key until its end, because no other shape goes beyond a
//!   line. A line or a key of more than [`HOLD`] bytes is released before its end: of the line, what has the shape of a
//!   secret across the cut may be recognised only in part; of the key, nothing is released, whatever its length.

use std::borrow::Cow;

use crate::redactor::Redactor;
use crate::reply::Replies;
use crate::shapes::{PRIVATE_KEY, open_key, rewrite, visible};

/// The most bytes of a line or a private key that are held back: a private key of 4096 bits has 3.2 KiB.
pub(crate) const HOLD: usize = 4 * 1024;

/// Stands for a private key whose beginning was dropped.
const OPEN_KEY: &str = "-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAA";

/// The bytes that are kept of a private key that is dropped, to find its end: more than its last line has.
const KEY_TAIL: usize = 100;

/// Redacts a text piece by piece. Created by [`ReplyRedactor::stream`](crate::ReplyRedactor::stream).
#[derive(Debug)]
pub struct TextStream {
    redactor: Redactor,
    replies: Replies,
    held: String,
    /// Whether `held` starts with [`OPEN_KEY`], whose label was returned already.
    in_key: bool,
}

// === impl TextStream ===

impl TextStream {
    pub(crate) fn new(redactor: Redactor, replies: Replies) -> Self {
        Self { redactor, replies, held: String::new(), in_key: false }
    }

    /// Takes the next piece and returns what is certain by now, which may be nothing.
    pub fn push(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        match self.replies {
            Replies::Off => std::mem::take(&mut self.held),
            Replies::Values => {
                let values = self.redactor.known();
                let cut = self.held.floor_char_boundary(values.cut(self.held.as_bytes()));
                let before = self.take(cut);
                rewrite(Cow::Owned(before), |before| values.replace(before)).into_owned()
            }
            Replies::Shapes => self.push_lines(),
        }
    }

    /// Returns the rest. The stream can then be used for another text.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.held);
        match self.replies {
            Replies::Off => rest,
            Replies::Values => self.redactor.values(&rest).into_owned(),
            Replies::Shapes => self.redact_all(&rest),
        }
    }

    /// The number of bytes held back, and the most that may be.
    #[cfg(fuzzing)]
    #[doc(hidden)]
    pub fn held(&self) -> (usize, usize) {
        (self.held.len(), HOLD)
    }

    /// Releases whole lines, up to a private key that is not over yet.
    fn push_lines(&mut self) -> String {
        if let Cow::Owned(visible) = visible(&self.held) {
            self.held = visible;
        }
        let cut = self.redactor.known().cut(self.held.as_bytes());
        let line = self.held.get(..cut).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
        let mut out = self.release(line);
        if self.held.len() > HOLD {
            self.relieve(&mut out);
        }
        out
    }

    /// Releases what is before the cut, or before the line with the private key that is open there; that line may begin in
    /// another key.
    fn release(&mut self, cut: usize) -> String {
        let mut cut = self.held.floor_char_boundary(cut);
        while let Some(key) = self.held.get(..cut).and_then(open_key) {
            cut = self.held.get(..key).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
        }
        let before = self.take(cut);
        self.redact_all(&before)
    }

    /// Redacts a text, without the label of a key that was returned before.
    fn redact_all(&mut self, text: &str) -> String {
        let redacted = self.redactor.all(text);
        match redacted.strip_prefix(PRIVATE_KEY) {
            Some(rest) if std::mem::take(&mut self.in_key) => rest.to_owned(),
            _ => redacted.into_owned(),
        }
    }

    /// Releases a line that became too long, and drops a private key that did.
    fn relieve(&mut self, out: &mut String) {
        if let Some(key) = open_key(&self.held) {
            if !self.in_key {
                let before = self.take(key);
                out.push_str(&self.redact_all(&before));
                out.push_str(PRIVATE_KEY);
            }
            let kept = self.held.floor_char_boundary(self.held.len().saturating_sub(KEY_TAIL));
            self.held.replace_range(..kept, OPEN_KEY);
            self.in_key = true;
            return;
        }
        // Between words if possible, else at the end.
        let soft = |char: char| char.is_whitespace() || !char.is_ascii() || ",;|&(){}[]<>\"'".contains(char);
        let cut = self.held.rfind(soft).filter(|at| *at >= HOLD / 2);
        let cut = cut.filter(|cut| self.held.get(..*cut).and_then(open_key).is_none());
        let before = self.take(cut.unwrap_or(self.held.len()));
        out.push_str(&self.redact_all(&before));
    }

    /// Removes and returns the text before the cut.
    fn take(&mut self, cut: usize) -> String {
        let rest = self.held.split_off(cut);
        std::mem::replace(&mut self.held, rest)
    }
}

#[cfg(test)]
pub(crate) mod tests;
