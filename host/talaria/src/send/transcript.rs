//! What has been shown of a task's artifacts, and so what is to be shown next.
//!
//! Text can be added to what is shown, but what is shown cannot be taken back: a text that was replaced is said again on
//! a line of its own. A snapshot after a gap is compared with what is shown, and only what is missing is said. Pure: the
//! cursor is where the last piece ended.

use std::collections::HashMap;

/// What was shown.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// The text of each artifact so far.
    texts: HashMap<String, String>,
    /// The artifact that the cursor stands in.
    current: Option<String>,
}

/// What to show.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Whether it begins a line.
    pub(super) begins_line: bool,
    /// The text.
    pub(super) text: String,
}

// === impl Transcript ===

impl Transcript {
    /// A new turn begins: what is shown now is about that.
    pub(super) fn begin_turn(&mut self) {
        self.current = None;
    }

    /// The text of an artifact begins anew.
    pub(super) fn forget(&mut self, artifact: &str) {
        self.texts.remove(artifact);
    }

    /// More text of an artifact.
    pub(super) fn append(&mut self, artifact: &str, text: &str) -> Option<Piece> {
        self.texts.entry(artifact.to_owned()).or_default().push_str(text);
        self.piece(artifact, text, false)
    }

    /// The whole text of an artifact.
    pub(super) fn replace(&mut self, artifact: &str, text: &str) -> Option<Piece> {
        let before = self.texts.insert(artifact.to_owned(), text.to_owned()).unwrap_or_default();
        match text.strip_prefix(before.as_str()) {
            Some(rest) => self.piece(artifact, rest, false),
            None => self.piece(artifact, text, true),
        }
    }

    /// The whole text of an artifact that the caller has from before.
    pub(super) fn know(&mut self, artifact: &str, text: &str) {
        self.texts.insert(artifact.to_owned(), text.to_owned());
    }

    /// Whether this very text was shown in this turn.
    pub(super) fn has_shown(&self, text: &str) -> bool {
        self.current.is_some() && self.texts.values().any(|shown| shown.trim() == text.trim())
    }

    /// Whether nothing was shown in this turn.
    pub(super) fn is_blank(&self) -> bool {
        self.current.is_none()
    }

    fn piece(&mut self, artifact: &str, text: &str, anew: bool) -> Option<Piece> {
        if text.is_empty() {
            return None;
        }
        let goes_on = self.current.as_deref() == Some(artifact);
        self.current = Some(artifact.to_owned());
        Some(Piece { begins_line: anew || !goes_on, text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(text: &str) -> Option<Piece> {
        Some(Piece { begins_line: false, text: text.into() })
    }

    fn anew(text: &str) -> Option<Piece> {
        Some(Piece { begins_line: true, text: text.into() })
    }

    #[test]
    fn deltas_follow_on_each_other() {
        let mut transcript = Transcript::default();
        assert!(transcript.is_blank());
        assert_eq!(transcript.replace("reply", "Hel"), anew("Hel"));
        assert_eq!(transcript.append("reply", "lo"), on("lo"));
        assert_eq!(transcript.append("reply", ""), None);
        assert_eq!(transcript.replace("reply", "Hello"), None, "the whole text says nothing new");
        assert!(transcript.has_shown("Hello\n") && !transcript.is_blank());
    }

    #[test]
    fn artifacts_do_not_mix() {
        let mut transcript = Transcript::default();
        assert_eq!(transcript.append("a", "1"), anew("1"));
        assert_eq!(transcript.append("b", "2"), anew("2"));
        assert_eq!(transcript.append("a", "3"), anew("3"));
        assert_eq!(transcript.replace("a", "13"), None);
    }

    #[test]
    fn what_was_replaced_is_said_again_and_what_is_missing_is_added() {
        let mut transcript = Transcript::default();
        transcript.append("reply", "a draft");
        assert_eq!(transcript.replace("reply", "the text"), anew("the text"));
        assert_eq!(transcript.replace("reply", "the text and more"), on(" and more"));
    }

    #[test]
    fn what_the_caller_has_is_not_said_again() {
        let mut transcript = Transcript::default();
        transcript.know("reply", "old");
        assert!(transcript.is_blank() && !transcript.has_shown("old"));
        assert_eq!(transcript.replace("reply", "old"), None);
        assert_eq!(transcript.append("reply", "er"), anew("er"));
    }
}
