//! Answers as the A2A conformance kits expect.
//!
//! The kits tell an agent what to do by a prefix of the message's id, their successor by the first word of its text.
//! This component looks at both, so that it serves both. A task that began with `tck-multi-turn` asks after every message
//! that says nothing else, until one says `done`. Run it with `a2a.reply = "task"`.

use serde_json::json;
use talaria_guest::events::{self, Artifact, Event};
use talaria_guest::{
    Content, Description, Executor, Failure, FailureKind, FinalState, Message, Outcome, Part, Role, Turn,
    control, settings,
};

/// The prefixes, and what each asks for. A longer prefix comes before its own beginning.
const SCRIPT: &[(&str, Act)] = &[
    ("tck-complete-task", Act::Complete),
    ("tck-artifact-text", Act::Artifact(Kind::Text)),
    ("tck-artifact-file-url", Act::Artifact(Kind::FileUrl)),
    ("tck-artifact-file", Act::Artifact(Kind::File)),
    ("tck-artifact-data", Act::Artifact(Kind::Data)),
    ("tck-message-response", Act::Message),
    ("tck-input-required", Act::AskBack),
    (MULTI_TURN, Act::AskBack),
    ("tck-auth-required", Act::Challenge),
    ("tck-reject-task", Act::Reject),
    ("tck-task-failure", Act::Fail),
    ("tck-stream-artifact-chunked", Act::Chunks),
    ("tck-stream-chunked", Act::Chunks),
    ("tck-stream-artifact-file", Act::Artifact(Kind::File)),
    ("tck-stream-artifact-text", Act::Artifact(Kind::Text)),
    ("tck-stream-002", Act::Complete),
    ("tck-stream-", Act::Artifact(Kind::Text)),
    ("test-resubscribe-message-id", Act::Linger),
    ("tck-long-running", Act::LongRun),
    ("tck-cancel", Act::Wait),
];

/// Begins a task of several turns, and the word that ends it.
const MULTI_TURN: &str = "tck-multi-turn";
const DONE: &str = "done";

/// The kits expect other types to be rejected. The card of a host lists the types of all its executors, so these are types
/// that the others take too.
const INPUT_MODES: [&str; 2] = ["text/*", "application/json"];

/// How long a lingering task works; the kits resubscribe meanwhile.
const LINGER_MS: u32 = 4_000;
/// How long a task waits for its cancellation, which ends it; longer than any kit waits.
const WAIT_MS: u32 = 120_000;
/// How long the 0.3 kit's tasks work before they ask.
const WORK_MS: u32 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Complete,
    Artifact(Kind),
    Message,
    AskBack,
    Challenge,
    Reject,
    Fail,
    Chunks,
    Linger,
    LongRun,
    Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    File,
    FileUrl,
    Data,
}

#[derive(serde::Deserialize)]
struct Settings {
    otherwise: Otherwise,
}

/// The answer to a message without a known prefix.
#[derive(serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Otherwise {
    Complete,
    InputRequired,
}

struct Conformance;

impl Executor for Conformance {
    fn describe() -> Description {
        Description {
            display_name: "A2A conformance".into(),
            settings_schema: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "otherwise": {
                        "enum": ["complete", "input-required"],
                        "description": "Answer to a message without a known prefix: the 0.3 kit wants input-required",
                        "default": "complete",
                    },
                },
            })
            .to_string(),
            streaming: true,
            metadata: Some(json!({ "talaria/input-modes": INPUT_MODES }).to_string()),
            ..Description::new(
                "conformance",
                env!("CARGO_PKG_VERSION"),
                "Answers as the A2A conformance kits expect, with no upstream",
            )
        }
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        match asked(&turn) {
            Some(act) => perform(act),
            None => otherwise(&turn),
        }
    }
}

/// What the message asks for, by its id or its first word.
fn asked(turn: &Turn) -> Option<Act> {
    let word = turn.text.split_whitespace().next().unwrap_or_default();
    let scripted =
        SCRIPT.iter().find(|(prefix, _)| turn.message.id.starts_with(prefix) || word.starts_with(prefix));
    let next = || turn.history.iter().any(begins_several_turns).then(|| next_turn(word));
    scripted.map(|(_, act)| *act).or_else(next)
}

/// What a message asks for that continues a task of several turns.
fn next_turn(word: &str) -> Act {
    if word == DONE { Act::Complete } else { Act::AskBack }
}

fn begins_several_turns(message: &Message) -> bool {
    let begins = |part: &Part| matches!(&part.content, Content::Text(text) if text.trim_start().starts_with(MULTI_TURN));
    message.role == Role::User
        && (message.id.starts_with(MULTI_TURN) || message.parts.first().is_some_and(begins))
}

fn otherwise(turn: &Turn) -> Result<Outcome, Failure> {
    let settings: Settings = settings(&turn.settings)?;
    match settings.otherwise {
        Otherwise::Complete => Ok(Outcome::text(format!("Completed: {}", turn.text))),
        Otherwise::InputRequired => {
            emit(Event::Status("Working on it".into()))?;
            control::sleep(WORK_MS);
            perform(Act::AskBack)
        }
    }
}

fn perform(act: Act) -> Result<Outcome, Failure> {
    match act {
        Act::Complete => Ok(completed("Hello from TCK")),
        Act::Artifact(kind) => {
            emit(artifact(kind.part(), false, true))?;
            Ok(completed("Done"))
        }
        Act::Message => Ok(Outcome {
            metadata: Some(json!({ "talaria/reply": "message" }).to_string()),
            ..Outcome::text("Direct message response")
        }),
        Act::AskBack => {
            Ok(Outcome::new(FinalState::InputRequired, vec![Part::text("Please provide more input")]))
        }
        Act::Challenge => {
            let why = "Please authenticate at https://example.com/login, then send another message";
            Ok(Outcome::new(FinalState::AuthRequired, vec![Part::text(why)]))
        }
        Act::Reject => Ok(Outcome::new(FinalState::Rejected, vec![Part::text("rejected")])),
        Act::Fail => Err(Failure::new(FailureKind::Internal, "failed as asked")),
        Act::Chunks => {
            emit(artifact(Part::text("chunk-1 "), false, false))?;
            emit(artifact(Part::text("chunk-2"), true, true))?;
            Ok(completed("Done"))
        }
        Act::Linger => work(LINGER_MS),
        Act::LongRun => {
            let done = work(LINGER_MS)?;
            emit(artifact(Kind::Text.part(), false, true))?;
            Ok(done)
        }
        Act::Wait => work(WAIT_MS),
    }
}

/// Works for this long, and completes.
fn work(ms: u32) -> Result<Outcome, Failure> {
    emit(Event::Status("Working on it".into()))?;
    control::sleep(ms);
    Ok(completed("Done"))
}

/// A completed turn with a text in its status and no answer.
fn completed(status: &str) -> Outcome {
    Outcome {
        metadata: Some(json!({ "talaria/status": status }).to_string()),
        ..Outcome::new(FinalState::Completed, Vec::new())
    }
}

fn artifact(part: Part, append: bool, last: bool) -> Event {
    Event::Artifact(Artifact {
        id: "tck-artifact".into(),
        name: Some("tck".into()),
        description: None,
        parts: vec![part],
        append,
        last,
        metadata: None,
    })
}

fn emit(event: Event) -> Result<(), Failure> {
    events::emit(&event).map_err(|error| Failure::new(FailureKind::Internal, error.message))
}

impl Kind {
    fn part(self) -> Part {
        match self {
            Self::Text => Part::text("Generated text content"),
            Self::Data => Part::new(Content::Data(json!({ "key": "value", "count": 42 }).to_string())),
            Self::File => file(Content::Bytes(b"tck".to_vec())),
            Self::FileUrl => file(Content::Uri("https://example.com/output.txt".into())),
        }
    }
}

fn file(content: Content) -> Part {
    Part { media_type: Some("text/plain".into()), filename: Some("output.txt".into()), ..Part::new(content) }
}

talaria_guest::export!(Conformance);
talaria_guest::without_wasi!();

#[cfg(test)]
mod tests {
    use talaria_guest::testing::{message, turn};

    use super::*;

    #[test]
    fn the_id_or_the_first_word_decides_and_the_longest_prefix_wins() {
        for (id, text, expected) in [
            ("tck-complete-task-1", "hello", Some(Act::Complete)),
            ("tck-artifact-file-url-1", "hello", Some(Act::Artifact(Kind::FileUrl))),
            ("tck-artifact-file-1", "hello", Some(Act::Artifact(Kind::File))),
            ("tck-stream-artifact-chunked", "hello", Some(Act::Chunks)),
            ("tck-stream-001", "hello", Some(Act::Artifact(Kind::Text))),
            ("m1", "tck-reject-task please", Some(Act::Reject)),
            ("m1", "tck-auth-required please", Some(Act::Challenge)),
            ("m1", "tck-long-running", Some(Act::LongRun)),
            ("m1", "please tck-reject-task", None),
            ("m1", "done", None),
            ("m1", "", None),
        ] {
            let mut turn = turn(text);
            turn.message.id = id.into();
            assert_eq!(asked(&turn), expected, "{id} {text}");
        }
    }

    #[test]
    fn a_task_of_several_turns_asks_until_it_is_done() {
        for (text, expected) in [
            ("here is more", Some(Act::AskBack)),
            ("tck-multi-turn again", Some(Act::AskBack)),
            ("tck-complete-task", Some(Act::Complete)),
            ("done", Some(Act::Complete)),
        ] {
            let mut turn = turn(text);
            turn.history = vec![message([Content::Text("tck-multi-turn start".into())])];
            assert_eq!(asked(&turn), expected, "{text}");
        }
        let mut other = turn("done");
        other.history = vec![message([Content::Text("tck-input-required".into())])];
        assert_eq!(asked(&other), None, "another task that asked");
    }
}
