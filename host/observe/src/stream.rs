//! Redaction of text that arrives in pieces.
//!
//! A secret may be split anywhere, so the tail that could still become one is held back. A text may be split after a
//! [delimiter](crate::scrub::is_delimiter), unless something is open there that continues across it: `Bearer ` or `NAME = `
//! before its value, a quoted value before the end of its line (a redaction can remove a closing quote, so the quote alone
//! does not end it), a private key before its end, a known secret that contains white space. Then the split moves in front of
//! what is open.
//!
//! **Promise:** the pieces together are what [`Redactor::redact`] makes of the whole, as long as nothing stays open for more
//! than [`HOLD`] bytes. A longer stretch is released, redacted as far as it is known: memory stays bounded, and a secret
//! across that split may be recognised only in part. Private keys are the exception: they are swallowed to their end, whatever
//! their length.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use crate::redactor::Redactor;
use crate::scrub::{NAME, PEM_BEGIN, PEM_GAP, PEM_HEADERS, PRIVATE_KEY, is_delimiter, scrub_private_keys};

/// The most bytes that are held back: a private key of 4096 bits has 3.2 KiB, tokens have far less.
pub(crate) const HOLD: usize = 4 * 1024;

/// How far before a split something open is searched for: what is open for longer than [`HOLD`] is released anyway.
const WINDOW: usize = 2 * HOLD;

/// Stands for a private key whose beginning has been released already.
const OPEN_KEY: &str = "-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAA";

static OPEN: LazyLock<Option<Open>> = LazyLock::new(|| Open::compile().ok());

/// Redacts a text piece by piece. Created by [`Redactor::stream`].
#[derive(Debug)]
pub struct RedactorStream {
    redactor: Redactor,
    held: String,
    /// Whether `held` starts with [`OPEN_KEY`], whose label has been returned already.
    in_key: bool,
}

struct Open {
    /// An incomplete private key, from its first dash to the end of the text.
    key: Regex,
    /// At the end of the text, a name or a word whose value follows.
    value: Regex,
}

// === impl RedactorStream ===

impl RedactorStream {
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self { redactor, held: String::new(), in_key: false }
    }

    /// Takes the next piece and returns what is certain by now, which may be nothing.
    pub fn push(&mut self, delta: &str) -> String {
        let seen = self.held.len();
        self.held.push_str(delta);
        let mut out = self.release(self.safe_cut(seen));
        if self.held.len() > HOLD {
            self.relieve(&mut out);
        }
        out
    }

    /// Returns the rest. The stream can then be used for another text.
    pub fn finish(&mut self) -> String {
        self.release(self.held.len())
    }

    /// The number of bytes held back, and the most that may be.
    #[cfg(fuzzing)]
    #[doc(hidden)]
    pub fn held(&self) -> (usize, usize) {
        (self.held.len(), HOLD)
    }

    /// Removes what is before the cut, and returns it redacted.
    fn release(&mut self, cut: usize) -> String {
        let Some((before, rest)) = self.held.split_at_checked(cut) else { return String::new() };
        if before.is_empty() {
            return String::new();
        }
        let redacted = self.redactor.redact(before);
        let out = match redacted.strip_prefix(PRIVATE_KEY) {
            Some(rest) if self.in_key => rest.to_owned(),
            _ => redacted.into_owned(),
        };
        self.in_key = false;
        self.held = rest.to_owned();
        out
    }

    /// Releases a stretch that became too long.
    fn relieve(&mut self, out: &mut String) {
        if let Some(start) = open_key(&self.held) {
            if !self.in_key {
                out.push_str(&self.release(start));
                out.push_str(PRIVATE_KEY);
            }
            // The last characters are kept: they may be the beginning of the key's last line.
            let tail = self.held.get(self.held.floor_char_boundary(self.held.len().saturating_sub(100))..);
            self.held = format!("{OPEN_KEY}{}", tail.unwrap_or_default());
            self.in_key = true;
            return;
        }
        // Between tokens if possible, else at the end.
        let soft = |char: char| is_delimiter(char) || ",;|&(){}[]<>\"'".contains(char);
        let cut = self.held.rfind(soft).filter(|at| *at >= HOLD / 2);
        let cut = cut.and_then(|at| Some(at + self.held.get(at..)?.chars().next()?.len_utf8()));
        out.push_str(&self.release(cut.unwrap_or(self.held.len())));
    }

    /// The last position where nothing is open. Only the new part is searched: a position in the old part where something was
    /// open before is still inside it.
    fn safe_cut(&self, seen: usize) -> usize {
        let mut end = self.held.len();
        while let Some(new) = self.held.get(seen..end)
            && let Some((at, delimiter)) = new.char_indices().rfind(|(_, char)| is_delimiter(*char))
        {
            let cut = seen + at + delimiter.len_utf8();
            match self.open_before(cut) {
                None => return cut,
                // Always further left, so that the search ends.
                Some(start) => end = start.min(seen + at),
            }
        }
        0
    }

    /// The start of something that is open at the cut. If the text had to be rewritten to find it, the start is not known, and
    /// the result is just before the cut.
    fn open_before(&self, cut: usize) -> Option<usize> {
        let from = self.held.ceil_char_boundary(cut.saturating_sub(WINDOW));
        let window = self.held.get(from..cut)?;
        if let Some(start) = open_key(window) {
            return Some(from + start);
        }
        let place = |text: &Cow<'_, str>, start: usize| match text {
            Cow::Borrowed(_) => from + start,
            Cow::Owned(_) => cut - 1,
        };
        let text = scrub_private_keys(Cow::Borrowed(window));
        if let Some(start) = self.open_known(&text) {
            return Some(place(&text, start));
        }
        let text = crate::scrub::rewrite(text, |text| self.redactor.remove_known(text));
        match &*OPEN {
            Some(open) => open.value.find(&text).map(|found| place(&text, found.start())),
            None => Some(from),
        }
    }

    /// The start of a known secret of which the text ends with a part. Only secrets that contain a delimiter can be split after
    /// one.
    fn open_known(&self, text: &str) -> Option<usize> {
        let starts = self.redactor.known().iter().flat_map(|value| {
            let cuts = value.char_indices().filter(|(_, char)| is_delimiter(*char));
            cuts.filter_map(|(at, char)| value.get(..at + char.len_utf8()))
        });
        starts.filter(|start| text.ends_with(start)).map(|start| text.len() - start.len()).min()
    }
}

/// The start of the first private key that the text leaves open; a header inside it may look like another.
fn open_key(text: &str) -> Option<usize> {
    let from = text.find("-----BEGIN ")?;
    let found = OPEN.as_ref()?.key.find(text.get(from..)?)?;
    Some(from + found.start())
}

// === impl Open ===

impl Open {
    fn compile() -> Result<Self, regex::Error> {
        let line = "[A-Za-z0-9+/=]";
        let key = format!(
            "(?:-----BEGIN [A-Z0-9 ]*|{PEM_BEGIN}{PEM_HEADERS}(?:{PEM_GAP}{line}{{16,}})*{PEM_GAP}{line}{{0,80}}{PEM_GAP}(?:-{{1,5}}|-----E|-----EN|-----END[A-Z0-9 ]*-{{0,4}})?)$"
        );
        let value = format!(
            r#"(?:(?i-u:bearer)[ \t]+|{NAME}[ \t]*(?:=[ \t]*(?:(?i-u:Bearer|Basic|Token)[ \t]+|\\?["'][^\n]*)?)?)$"#
        );
        Ok(Self { key: Regex::new(&key)?, value: Regex::new(&value)? })
    }
}

#[cfg(test)]
pub(crate) mod tests;
