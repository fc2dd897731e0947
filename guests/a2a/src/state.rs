//! The states of a task, in the words of both versions.

/// The state of the agent's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Submitted,
    Working,
    InputRequired,
    AuthRequired,
    Completed,
    Failed,
    Canceled,
    Rejected,
}

impl State {
    /// Reads a state of 1.0 (`TASK_STATE_INPUT_REQUIRED`) or of 0.3 (`input-required`).
    pub(crate) fn read(text: &str) -> Option<Self> {
        let text = text.strip_prefix("TASK_STATE_").unwrap_or(text).to_ascii_lowercase().replace('_', "-");
        Some(match text.as_str() {
            "submitted" => Self::Submitted,
            "working" => Self::Working,
            "input-required" => Self::InputRequired,
            "auth-required" => Self::AuthRequired,
            "completed" => Self::Completed,
            "failed" => Self::Failed,
            "canceled" | "cancelled" => Self::Canceled,
            "rejected" => Self::Rejected,
            _ => return None,
        })
    }

    /// Whether the agent waits for its caller.
    pub(crate) fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// Whether nothing happens to the task any more.
    pub(crate) fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_in_the_words_of_both_versions() {
        for (text, state) in [
            ("TASK_STATE_INPUT_REQUIRED", Some(State::InputRequired)),
            ("input-required", Some(State::InputRequired)),
            ("TASK_STATE_CANCELLED", Some(State::Canceled)),
            ("canceled", Some(State::Canceled)),
            ("completed", Some(State::Completed)),
            ("unknown", None),
            ("TASK_STATE_UNSPECIFIED", None),
            ("", None),
        ] {
            assert_eq!(State::read(text), state, "{text}");
        }
    }
}
