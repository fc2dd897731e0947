//! What has been printed of a task's artifacts, and so what to print next.
//!
//! Printed text can be extended but not taken back: when the agent replaces a text, the new text is printed again on a
//! line of its own. A snapshot after a gap is compared with the printed text, and only the missing part is printed. The
//! transcript does no I/O; it assumes that the cursor is where the last piece ended.

use std::collections::HashMap;

/// The text printed so far.
#[derive(Debug, Default)]
#[allow(unreachable_pub, reason = "public to the fuzz targets only")]
pub struct Transcript {
    /// The text of each artifact.
    texts: HashMap<String, String>,
    /// The artifact that was printed last.
    current: Option<String>,
}

/// Text to print.
#[derive(Debug, PartialEq, Eq)]
#[allow(unreachable_pub, reason = "public to the fuzz targets only")]
pub struct Piece {
    /// Whether the text begins a new line.
    pub begins_line: bool,
    /// The text.
    pub text: String,
}

// === impl Transcript ===

#[allow(unreachable_pub, reason = "public to the fuzz targets only")]
impl Transcript {
    /// Starts a turn in which nothing has been printed yet. The artifacts' texts stay known.
    pub(crate) fn begin_turn(&mut self) {
        self.current = None;
    }

    /// Drops the text of an artifact, which is about to be sent anew.
    pub(crate) fn reset(&mut self, artifact: &str) {
        self.texts.remove(artifact);
    }

    /// Adds text to an artifact.
    pub fn append(&mut self, artifact: &str, text: &str) -> Option<Piece> {
        self.texts.entry(artifact.to_owned()).or_default().push_str(text);
        self.piece(artifact, text, false)
    }

    /// Sets the whole text of an artifact.
    pub fn replace(&mut self, artifact: &str, text: &str) -> Option<Piece> {
        let before = self.texts.insert(artifact.to_owned(), text.to_owned()).unwrap_or_default();
        match text.strip_prefix(before.as_str()) {
            Some(rest) => self.piece(artifact, rest, false),
            None => self.piece(artifact, text, true),
        }
    }

    /// Records the text of an artifact that the caller knows from an earlier turn.
    pub(crate) fn record_known(&mut self, artifact: &str, text: &str) {
        self.texts.insert(artifact.to_owned(), text.to_owned());
    }

    /// Whether exactly this text was printed in this turn.
    pub(crate) fn has_shown(&self, text: &str) -> bool {
        self.current.is_some() && self.texts.values().any(|shown| shown.trim() == text.trim())
    }

    /// Whether nothing was printed in this turn.
    pub(crate) fn is_blank(&self) -> bool {
        self.current.is_none()
    }

    fn piece(&mut self, artifact: &str, text: &str, anew: bool) -> Option<Piece> {
        if text.is_empty() {
            return None;
        }
        let continues = self.current.as_deref() == Some(artifact);
        self.current = Some(artifact.to_owned());
        Some(Piece { begins_line: anew || !continues, text: text.to_owned() })
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
    fn pieces_of_an_artifact_join() {
        let mut transcript = Transcript::default();
        assert!(transcript.is_blank());
        assert_eq!(transcript.replace("reply", "Hel"), anew("Hel"));
        assert_eq!(transcript.append("reply", "lo"), on("lo"));
        assert_eq!(transcript.append("reply", ""), None);
        assert_eq!(transcript.replace("reply", "Hello"), None, "the whole text says nothing new");
        assert!(transcript.has_shown("Hello\n") && !transcript.is_blank());
    }

    #[test]
    fn each_artifact_begins_a_line() {
        let mut transcript = Transcript::default();
        assert_eq!(transcript.append("a", "1"), anew("1"));
        assert_eq!(transcript.append("b", "2"), anew("2"));
        assert_eq!(transcript.append("a", "3"), anew("3"));
        assert_eq!(transcript.replace("a", "13"), None);
    }

    #[test]
    fn prints_a_replaced_text_again_and_adds_a_missing_part() {
        let mut transcript = Transcript::default();
        transcript.append("reply", "a draft");
        assert_eq!(transcript.replace("reply", "the text"), anew("the text"));
        assert_eq!(transcript.replace("reply", "the text and more"), on(" and more"));
    }

    #[test]
    fn does_not_repeat_text_of_an_earlier_turn() {
        let mut transcript = Transcript::default();
        transcript.record_known("reply", "old");
        assert!(transcript.is_blank() && !transcript.has_shown("old"));
        assert_eq!(transcript.replace("reply", "old"), None);
        assert_eq!(transcript.append("reply", "er"), anew("er"));
    }
}
