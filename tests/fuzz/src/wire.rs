//! What must hold for every decoded message: it can be encoded in every dialect, as one line of JSON without repeated names, and
//! the dialect that it came in decodes it to the same message again.

use std::sync::Arc;

use serde::Deserialize as _;
use serde_json::{Value, json};
use talaria_a2a::fuzz::{Addressed, Dialect, read_message, write_message, write_task};
use talaria_turns::{Artifact, Content, Event, Message, Metadata, Part, Role, State, Task};

/// The dialects.
pub const DIALECTS: [Dialect; 3] = [Dialect::V1, Dialect::V03, Dialect::V03Rest];

/// The mark of wrapped data, which 0.3 keeps in the metadata of a part.
const WRAPPED: &str = "data_part_compat";

/// Checks a message that was decoded in the dialect `came`.
pub fn check_message(came: Dialect, said: &Addressed) {
    for dialect in DIALECTS {
        let mut written = one_document(&write_message(dialect, said).expect("a message can be written"));
        if dialect != Dialect::V03 {
            written = written["message"].take();
        }
        let read = read_message(dialect, written).expect("what is written can be read");
        assert_same(came, dialect, &read, said);
    }
    check_task(came, &said.message);
}

/// Checks a task that holds the message in every place that can hold one.
fn check_task(came: Dialect, message: &Message) {
    let task = Arc::new(task(message));
    let (id, context) = (Some(task.id.clone()), Some(task.context.clone()));
    let with = |message: &Message| Addressed {
        message: message.clone(),
        task: id.clone(),
        context: context.clone(),
    };
    for dialect in DIALECTS {
        let mut written = one_document(&write_task(dialect, &task).expect("a task can be written"));
        assert_eq!(written["id"], task.id.as_str());
        assert_eq!(written["contextId"], task.context.as_str());
        let history = written["history"].as_array_mut().expect("a history");
        assert_eq!(history.len(), task.history.len());
        for (written, said) in history.iter_mut().zip(&task.history) {
            let read = read_message(dialect, written.take()).expect("a message of the history can be read");
            assert_same(came, dialect, &read, &with(said));
        }
        let said = task.status.message.as_ref().expect("a last word");
        let read =
            read_message(dialect, written["status"]["message"].take()).expect("the last word can be read");
        assert_same(came, dialect, &read, &with(said));

        let parts = written["artifacts"][0]["parts"].take();
        let role = if dialect == Dialect::V03 { "user" } else { "ROLE_USER" };
        let read = read_message(dialect, json!({ "messageId": "m", "role": role, "parts": parts }));
        let read = read.expect("an artifact's parts can be read").message.parts;
        assert_same_parts(came, dialect, &read, &message.parts);
    }
}

fn task(message: &Message) -> Task {
    let mut task = Task::new("t".parse().expect("an id"), "c".parse().expect("an id"));
    let artifact = Artifact {
        id: "a".into(),
        name: Some("n".into()),
        description: None,
        parts: message.parts.clone(),
        metadata: message.metadata.clone(),
        extensions: message.extensions.clone(),
    };
    let mut word = Message { role: Role::Agent, ..message.clone() };
    word.id = "w".parse().expect("an id");
    let mut moved = Event::moved(State::Completed);
    if let Event::Status { status, metadata, .. } = &mut moved {
        (status.message, *metadata) = (Some(word.into()), message.metadata.clone());
    }
    let accepted = Event::Accepted {
        message: message.clone().into(),
        executor: "e".into(),
        metadata: message.metadata.clone().map(Into::into),
        trace: None,
    };
    for event in [accepted, Event::Artifact { artifact: artifact.into(), append: false, last: true }, moved] {
        task.apply(&event).expect("a legal move");
    }
    task
}

/// Parses encoded text. It must be one line, and no object in it may name a member twice: the parser would drop the first one,
/// and the text would not be the same again.
pub fn one_document(text: &str) -> Value {
    assert!(!text.contains(['\n', '\r']), "more than a line: {text}");
    let mut reader = serde_json::Deserializer::from_str(text);
    // The input had a depth limit, but the envelope may be deeper.
    reader.disable_recursion_limit();
    let value = Value::deserialize(&mut reader).expect("what is written is JSON");
    reader.end().expect("what is written is one document");
    assert_eq!(value.to_string(), text, "a member is named twice");
    value
}

fn assert_same(came: Dialect, dialect: Dialect, read: &Addressed, said: &Addressed) {
    assert_same_parts(came, dialect, &read.message.parts, &said.message.parts);
    let mut said = said.clone();
    // Compared above.
    said.message.parts.clone_from(&read.message.parts);
    if dialect == Dialect::V03Rest {
        said.message.reference_task_ids.clear();
    }
    assert_eq!(*read, said, "{came:?} as {dialect:?}");
}

fn assert_same_parts(came: Dialect, dialect: Dialect, read: &[Part], said: &[Part]) {
    assert_eq!(read.len(), said.len(), "{came:?} as {dialect:?}");
    for (read, said) in read.iter().zip(said) {
        // A mark of 0.3 that a caller of 1.0 sends is decoded as one of 0.3.
        let made_up =
            came == Dialect::V1 && said.metadata.as_ref().is_some_and(|map| map.contains_key(WRAPPED));
        if dialect == Dialect::V1 || !made_up {
            assert_eq!(*read, as_in(dialect, said), "{came:?} as {dialect:?}");
        }
    }
}

/// Returns a part without what a dialect cannot express.
fn as_in(dialect: Dialect, part: &Part) -> Part {
    let mut part = part.clone();
    if dialect != Dialect::V1 {
        if matches!(part.content, Content::Text(_) | Content::Data(_)) {
            (part.media_type, part.filename) = (None, None);
        }
        if matches!(&part.content, Content::Data(data) if !data.is_object()) {
            part.metadata = part.metadata.filter(|metadata: &Metadata| !metadata.is_empty());
        }
    }
    part
}
