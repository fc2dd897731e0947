//! The forms in which a streamed answer is sent to readers.
//!
//! The log has one form. A [`StreamAs`] is applied when an event is read from the log, so one log serves readers of every
//! form, and the number of an event means the same to all of them.

use serde::{Deserialize, Serialize};

use crate::task::Event;

/// The form in which the pieces of an answer are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamAs {
    /// Each piece is a status message; the whole answer is an artifact at the end.
    #[default]
    Status,
    /// Each piece is a piece of the artifact.
    Artifact,
    /// No pieces; the whole answer is an artifact at the end.
    Whole,
}

// === impl StreamAs ===

impl StreamAs {
    /// Whether readers of this form are sent the event.
    #[must_use]
    pub fn tells(self, event: &Event) -> bool {
        event.is_shown() && !(self == Self::Whole && event.is_chunk())
    }
}
