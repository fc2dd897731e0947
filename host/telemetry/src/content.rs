//! The content of messages, for operators who switched it on: the text of the message and of the answer, scrubbed and cut.
//!
//! It is in memory from the end of a turn's execution until its spans are made, which is when its end is in the store. Turns of
//! one task run one after the other, so a task has one entry, and there are as many as the host has turns at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::json;
use talaria_redact::Redactor;
use talaria_turns::{Outcome, TaskId, Turn, message_text};

/// The bytes of each text.
const TEXT: usize = 4 << 10;
/// The size of the largest secret that is recognised where a text is cut.
const SECRET: usize = 4 << 10;

/// The content of the turns under way.
#[derive(Default)]
pub(crate) struct Contents(Mutex<HashMap<TaskId, Content>>);

/// The texts of a turn, as the conventions write messages.
pub(crate) struct Content {
    pub(crate) input: String,
    /// `None` if the turn failed.
    pub(crate) output: Option<String>,
}

// === impl Contents ===

impl Contents {
    pub(crate) fn note(&self, turn: &Turn, outcome: Option<&Outcome>) {
        let message = |role: &str, text: &str| {
            json!([{ "role": role, "parts": [{ "type": "text", "content": scrubbed(text) }] }]).to_string()
        };
        let input = message("user", &message_text(&turn.message.parts));
        let output = outcome.map(|outcome| message("assistant", &message_text(&outcome.parts)));
        self.lock().insert(turn.task.clone(), Content { input, output });
    }

    pub(crate) fn take(&self, task: &TaskId) -> Option<Content> {
        self.lock().remove(task)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, Content>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beginning of a text without secrets. It is scrubbed before it is cut, so that the cut leaves no half of one.
fn scrubbed(text: &str) -> String {
    let window = text.get(..text.floor_char_boundary(TEXT + SECRET)).unwrap_or(text);
    let scrubbed = Redactor::process().all(window);
    let sure =
        if window.len() == text.len() { TEXT } else { scrubbed.len().saturating_sub(SECRET).min(TEXT) };
    scrubbed.get(..scrubbed.floor_char_boundary(sure)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_scrubbed_and_then_cut() {
        assert_eq!(scrubbed("hello"), "hello");
        assert_eq!(scrubbed(&"ä".repeat(TEXT)).len(), TEXT);
        let key = format!("sk-{}", "k".repeat(40));
        for before in (TEXT - 100..TEXT + 100).chain(TEXT + SECRET - 100..TEXT + SECRET + 100) {
            let text = format!("{}{} {key} end", "y ".repeat(before / 2), format!("{key} ").repeat(20));
            assert!(!scrubbed(&text).contains("kk"), "{before}");
        }
    }
}
