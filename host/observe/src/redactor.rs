//! Redaction by rules and by value.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::scrub::{KINDS, SHORTEST, label, rewrite, scrub_looks, scrub_private_keys};
use crate::stream::RedactorStream;

/// Removes known secrets, wherever they are, and everything that [`scrub`](crate::scrub()) removes. Cheap to clone. The
/// default knows no secrets.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Longest first, so that of two secrets of which one starts with the other, the whole longer one is removed.
    known: Arc<[Box<str>]>,
}

// === impl Redactor ===

impl Redactor {
    /// Creates a redactor that knows these values. White space around a value is not part of it. Values of less than 8
    /// characters are ignored, because removing them would destroy ordinary text; so are values that are part of a label.
    pub fn new(values: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut known: Vec<Box<str>> = Vec::new();
        for value in values {
            let value = value.as_ref().trim();
            let in_label = KINDS.iter().any(|kind| label(kind).contains(value));
            if value.chars().count() >= SHORTEST && !in_label && !known.iter().any(|known| **known == *value)
            {
                known.push(value.into());
            }
        }
        known.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self { known: known.into() }
    }

    /// Returns the text without secrets; borrowed if there were none.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let text = scrub_private_keys(Cow::Borrowed(text));
        let text = rewrite(text, |text| self.remove_known(text));
        scrub_looks(text)
    }

    /// Returns a redactor for text that arrives in pieces.
    pub fn stream(&self) -> RedactorStream {
        RedactorStream::new(self.clone())
    }

    pub(crate) fn known(&self) -> &[Box<str>] {
        &self.known
    }

    /// Replaces known values from left to right; where several start, the longest.
    pub(crate) fn remove_known<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut changed = String::new();
        let mut rest = text;
        let first = |text: &str| {
            let found = self.known.iter().filter_map(|value| Some((text.find(&**value)?, value.len())));
            // `min_by_key` keeps the first of equals, which is the longest.
            found.min_by_key(|(at, _)| *at)
        };
        while let Some((at, length)) = first(rest) {
            changed.push_str(rest.get(..at).unwrap_or_default());
            changed.push_str(&label("secret"));
            rest = rest.get(at + length..).unwrap_or_default();
        }
        if rest.len() == text.len() {
            return Cow::Borrowed(text);
        }
        changed.push_str(rest);
        Cow::Owned(changed)
    }
}

/// Shows only the number of known values.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} known)", self.known.len())
    }
}

#[cfg(test)]
mod tests;
