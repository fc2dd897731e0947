//! How an answer that comes in pieces is told to those who follow its task.
//!
//! The log has one form; this is applied when an event is read from it, so the same log serves readers of every form, and
//! an event's number means the same in all of them.

use serde::{Deserialize, Serialize};

use crate::task::Event;

/// How the pieces of an answer are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamAs {
    /// Each piece as what the agent says while it works; at the end the answer as one artifact.
    #[default]
    Status,
    /// Each piece as a piece of the artifact.
    Artifact,
    /// No pieces; at the end the answer as one artifact.
    Whole,
}

// === impl StreamAs ===

impl StreamAs {
    /// Whether something is told of the event at all.
    #[must_use]
    pub fn tells(self, event: &Event) -> bool {
        event.is_shown() && !(self == Self::Whole && event.is_chunk())
    }
}
