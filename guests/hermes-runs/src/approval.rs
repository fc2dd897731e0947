//! Approvals: what the agent wants to do, put to the caller, and the caller's word.
//!
//! Nothing is guessed. An answer that is not one of the words is asked for again, a few times, and then the answer is no.
//! "Always" would change what the gateway allows to everybody, so no remote caller can say it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use talaria_guest::{Content, Message, Part};
use talaria_upstream::{cut, text};

/// How much of a command the caller reads, in characters.
const COMMAND_CHARS: usize = 4_000;
/// How much of the reason.
const REASON_CHARS: usize = 500;
/// The longest answer that is looked at.
const ANSWER_BYTES: usize = 64;

/// An approval that the caller is asked for.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct Approval {
    /// What tells it from the next one: when the run began to wait.
    pub(crate) mark: String,
    pub(crate) request: Request,
}

/// What the agent wants to do.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct Request {
    command: String,
    reason: String,
    choices: Vec<Choice>,
}

/// What a caller may say.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Choice {
    Once,
    Session,
    Deny,
}

/// What a caller said.
pub(crate) enum Said {
    Choice(Choice),
    Always,
    Unclear,
}

impl Request {
    /// What an event, or a status, says about it.
    pub(crate) fn of(data: &Value) -> Self {
        let field = |name: &str, chars| cut(&text(data, name).unwrap_or_default(), chars);
        let offered = data.get("choices").and_then(Value::as_array);
        let is_offered = |choice: &Choice| {
            let names = |value: &Value| value.as_str() == Some(choice.name());
            *choice == Choice::Deny || offered.is_none_or(|offered| offered.iter().any(names))
        };
        Self {
            command: field("/command", COMMAND_CHARS),
            reason: field("/description", REASON_CHARS),
            choices: [Choice::Once, Choice::Session, Choice::Deny].into_iter().filter(is_offered).collect(),
        }
    }

    pub(crate) fn allows(&self, choice: Choice) -> bool {
        self.choices.contains(&choice)
    }

    /// The question, after what was wrong with the last answer: for people, and as data for programs.
    pub(crate) fn question(&self, complaint: Option<&str>) -> Vec<Part> {
        let complaint = complaint.map(|complaint| format!("{complaint}\n\n")).unwrap_or_default();
        let reason = if self.reason.is_empty() { String::new() } else { format!(" ({})", self.reason) };
        let command =
            if self.command.is_empty() { String::new() } else { format!("\n\n    {}", self.command) };
        let words = self.choices.iter().map(|choice| choice.words()).collect::<Vec<_>>().join(", ");
        let question =
            format!("{complaint}The agent asks for approval{reason}:{command}\n\nAnswer with {words}.");
        let data = json!({
            "approval": { "command": self.command, "description": self.reason, "choices": self.choices },
        });
        vec![Part::text(question), Part::new(Content::Data(data.to_string()))]
    }
}

impl Choice {
    /// As the gateway writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Deny => "deny",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Once => "`yes` to allow it once",
            Self::Session => "`session` to allow the like for the rest of this run",
            Self::Deny => "`no` to deny it",
        }
    }
}

impl Said {
    /// The caller's word: a text that is one of the words and nothing else, or data with a `choice`.
    pub(crate) fn of(message: &Message) -> Self {
        let mut words = message.parts.iter().filter_map(|part| match &part.content {
            Content::Text(text) => Some(text.clone()),
            Content::Data(data) => {
                let data: Value = serde_json::from_str(data).ok()?;
                text(&data, "/choice").or_else(|| text(&data, "/approval/choice"))
            }
            Content::Uri(_) | Content::Bytes(_) => None,
        });
        // Two words could mean two things.
        match (words.next(), words.next()) {
            (Some(word), None) => Self::word(&word),
            _ => Self::Unclear,
        }
    }

    fn word(word: &str) -> Self {
        if word.len() > ANSWER_BYTES {
            return Self::Unclear;
        }
        let word = word.to_lowercase();
        let word = word.trim_matches(|char: char| !char.is_alphanumeric());
        match word.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["yes" | "y" | "ok" | "okay" | "once" | "approve" | "approved" | "allow"]
            | ["approve" | "allow", "once"] => Self::Choice(Choice::Once),
            ["session"] | ["approve" | "allow", "session"] => Self::Choice(Choice::Session),
            ["no" | "n" | "deny" | "denied" | "reject"] => Self::Choice(Choice::Deny),
            ["always"] | ["approve" | "allow", "always"] => Self::Always,
            _ => Self::Unclear,
        }
    }
}
