//! Approvals: the question that a caller reads, and the caller's answer.
//!
//! Nothing is guessed. If an answer is not one of the words, the caller is asked again, a few times, and then the
//! command is denied. "Always" would change what the gateway allows to everybody, so no remote caller can say it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use talaria_guest::{Content, Message, Part};

use crate::text;

/// The characters of a command that the caller reads.
const COMMAND_CHARS: usize = 4_000;
/// The characters of the reason.
const REASON_CHARS: usize = 500;
/// The longest answer that is parsed.
const ANSWER_BYTES: usize = 64;

/// An approval that the caller is asked for.
#[derive(Serialize, Deserialize, Clone)]
pub(super) struct Approval {
    /// Tells it from the next one: the time at which the run began to wait.
    pub(super) mark: String,
    pub(super) request: Request,
}

/// What the agent wants to do.
#[derive(Serialize, Deserialize, Clone)]
pub(super) struct Request {
    command: String,
    reason: String,
    choices: Vec<Choice>,
}

/// What a caller may decide.
#[derive(Debug, Serialize, Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Choice {
    Once,
    Session,
    Deny,
}

/// What a caller answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Choice(Choice),
    Always,
    Unclear,
}

impl Request {
    /// Reads the request from an event or a status.
    pub(super) fn of(data: &Value) -> Self {
        // As the agent wrote it: a person decides about exactly this.
        let field =
            |name: &str, chars| text(data, name).unwrap_or_default().chars().take(chars).collect::<String>();
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

    pub(super) fn allows(&self, choice: Choice) -> bool {
        self.choices.contains(&choice)
    }

    /// The question, as text for people and as data for programs. A complaint about the last answer comes first.
    pub(super) fn question(&self, complaint: Option<&str>) -> Vec<Part> {
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
    /// The choice as the gateway spells it.
    pub(super) fn name(self) -> &'static str {
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

impl Answer {
    /// Parses the caller's message: a text that is one of the words and nothing else, or data with a `choice`.
    pub(super) fn of(message: &Message) -> Self {
        let mut words = message.parts.iter().filter_map(|part| match &part.content {
            Content::Text(text) => Some(text.clone()),
            Content::Data(data) => {
                let data: Value = serde_json::from_str(data).ok()?;
                text(&data, "/choice").or_else(|| text(&data, "/approval/choice"))
            }
            Content::Uri(_) | Content::Bytes(_) => None,
        });
        // Two answers could contradict each other.
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

#[cfg(test)]
mod tests {
    use talaria_guest::testing::message;

    use super::*;

    fn answer(contents: impl IntoIterator<Item = Content>) -> Answer {
        Answer::of(&message(contents))
    }

    #[test]
    fn only_the_words_themselves_decide() {
        use Answer::{Always, Unclear};
        let (once, session, deny) =
            (Answer::Choice(Choice::Once), Answer::Choice(Choice::Session), Answer::Choice(Choice::Deny));
        for (words, expected) in [
            (&["yes", "Y", "OK!", " okay. ", "once", "approve", "Approved", "allow", "allow once"][..], once),
            (&["session", "allow session", "`session`"], session),
            (&["no", "N.", "deny", "denied", "reject"], deny),
            (&["always", "approve always"], Always),
            (&["", "maybe", "yes please", "yes, but no", "no yes", "ja", "approve  it"], Unclear),
        ] {
            for word in words {
                assert_eq!(answer([Content::Text((*word).into())]), expected, "{word}");
            }
        }
        let long = format!("yes{}", " ".repeat(ANSWER_BYTES));
        assert_eq!(answer([Content::Text(long)]), Unclear);
    }

    #[test]
    fn data_answers_by_its_choice_and_two_answers_are_none() {
        let data = |json: &str| Content::Data(json.into());
        let once = || Answer::Choice(Choice::Once);
        assert_eq!(answer([data(r#"{"choice":"once"}"#)]), once());
        assert_eq!(answer([data(r#"{"approval":{"choice":"once"}}"#)]), once());
        assert_eq!(answer([data(r#"{"other":1}"#), Content::Text("yes".into())]), once());
        for contents in [
            vec![],
            vec![data("{")],
            vec![Content::Text("yes".into()), Content::Text("yes".into())],
            vec![Content::Uri("https://example.com/yes".into())],
        ] {
            assert_eq!(answer(contents), Answer::Unclear);
        }
    }

    #[test]
    fn a_question_offers_what_the_gateway_offers_and_always_a_denial() {
        for (offered, choices) in [
            (json!(["once", "session", "always", "deny"]), vec![Choice::Once, Choice::Session, Choice::Deny]),
            (json!(["once"]), vec![Choice::Once, Choice::Deny]),
            (json!([]), vec![Choice::Deny]),
            (Value::Null, vec![Choice::Once, Choice::Session, Choice::Deny]),
        ] {
            let request = Request::of(&json!({ "command": "rm -rf /", "choices": offered }));
            assert_eq!(request.choices, choices, "{offered}");
        }
        let request = Request::of(&json!({ "command": "rm", "description": "delete", "choices": ["once"] }));
        let parts = request.question(Some("That answer was not understood."));
        let Some(Content::Text(question)) = parts.first().map(|part| &part.content) else { panic!("a text") };
        assert_eq!(
            question,
            "That answer was not understood.\n\nThe agent asks for approval (delete):\n\n    rm\n\nAnswer with `yes` to \
             allow it once, `no` to deny it."
        );
    }
}
