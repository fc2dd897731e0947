//! The JSON in the store's rows: reading returns what was written. An input that begins with `[` is JSON; any other input
//! is the material of events.
#![no_main]

use libfuzzer_sys::arbitrary::{Error, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Number, Value};
use talaria_store::fuzz::{read, write};
use talaria_turns::{
    Artifact, Content, ContextId, Event, Id, Message, Metadata, Part, Role, State, Status, Task, TaskId,
    Timestamp,
};

const STATES: [State; 8] = [
    State::Submitted,
    State::Working,
    State::InputRequired,
    State::AuthRequired,
    State::Completed,
    State::Failed,
    State::Canceled,
    State::Rejected,
];

fuzz_target!(|data: &[u8]| {
    let events = match data {
        [b'[', ..] => read(data),
        data => made(&mut Unstructured::new(data)).ok(),
    };
    let Some(events) = events else { return };
    let text = write(&events).expect("events can be written");
    assert_eq!(read::<Vec<Event>>(text.as_bytes()).as_ref(), Some(&events));

    let (Ok(id), Ok(context)) = ("t".parse::<TaskId>(), "c".parse::<ContextId>()) else { return };
    let mut task = Task::new(id, context);
    for event in &events {
        let before = task.clone();
        match task.apply(event) {
            Ok(()) => assert_eq!(task.version, before.version + 1),
            Err(_) => assert_eq!(task, before, "a refused event changes nothing"),
        }
    }
    let snapshot = serde_json::to_vec(&task).expect("a task can be written");
    assert_eq!(read::<Task>(&snapshot), Some(task));
});

fn made(from: &mut Unstructured<'_>) -> Result<Vec<Event>> {
    list(from, event)
}

fn list<T>(from: &mut Unstructured<'_>, make: impl Fn(&mut Unstructured<'_>) -> Result<T>) -> Result<Vec<T>> {
    let length = from.int_in_range(0..=4)?;
    (0..length).map(|_| make(from)).collect()
}

fn maybe<T>(
    from: &mut Unstructured<'_>,
    make: impl Fn(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Option<T>> {
    if from.arbitrary()? { make(from).map(Some) } else { Ok(None) }
}

fn text(from: &mut Unstructured<'_>) -> Result<String> {
    from.arbitrary()
}

fn id<K>(from: &mut Unstructured<'_>) -> Result<Id<K>> {
    text(from)?.parse().map_err(|_| Error::IncorrectFormat)
}

fn event(from: &mut Unstructured<'_>) -> Result<Event> {
    Ok(match from.int_in_range(0..=5)? {
        0 => Event::Accepted {
            message: message(from)?.into(),
            executor: text(from)?.into(),
            metadata: maybe(from, metadata)?.map(Into::into),
            trace: None,
        },
        1 => Event::Answered(message(from)?.into()),
        2 => Event::Status {
            status: status(from)?,
            metadata: maybe(from, metadata)?,
            ends_turn: from.arbitrary()?,
        },
        3 => Event::Checkpoint(from.arbitrary()?),
        4 => Event::Artifact {
            artifact: artifact(from)?.into(),
            append: from.arbitrary()?,
            last: from.arbitrary()?,
        },
        _ => Event::Note { name: text(from)?, value: value(from, 8)? },
    })
}

fn status(from: &mut Unstructured<'_>) -> Result<Status> {
    Ok(Status {
        state: *from.choose(&STATES)?,
        message: maybe(from, message)?.map(Into::into),
        at: Timestamp::from_millis(from.arbitrary()?),
    })
}

fn message(from: &mut Unstructured<'_>) -> Result<Message> {
    Ok(Message {
        id: id(from)?,
        role: *from.choose(&[Role::User, Role::Agent])?,
        parts: list(from, part)?,
        metadata: maybe(from, metadata)?,
        extensions: list(from, text)?,
        reference_task_ids: list(from, text)?,
    })
}

fn artifact(from: &mut Unstructured<'_>) -> Result<Artifact> {
    Ok(Artifact {
        id: text(from)?,
        name: maybe(from, text)?,
        description: maybe(from, text)?,
        parts: list(from, part)?,
        metadata: maybe(from, metadata)?,
        extensions: list(from, text)?,
    })
}

fn part(from: &mut Unstructured<'_>) -> Result<Part> {
    let content = match from.int_in_range(0..=3)? {
        0 => Content::Text(text(from)?),
        1 => Content::Data(value(from, 8)?),
        2 => Content::Uri(text(from)?),
        _ => Content::Bytes(from.arbitrary()?),
    };
    Ok(Part {
        content,
        media_type: maybe(from, text)?,
        filename: maybe(from, text)?,
        metadata: maybe(from, metadata)?,
    })
}

fn metadata(from: &mut Unstructured<'_>) -> Result<Metadata> {
    object(from, 8)
}

fn object(from: &mut Unstructured<'_>, depth: usize) -> Result<Map<String, Value>> {
    Ok(list(from, |from| Ok((text(from)?, value(from, depth.saturating_sub(1))?)))?.into_iter().collect())
}

fn value(from: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    let most = if depth == 0 { 5 } else { 7 };
    Ok(match from.int_in_range(0..=most)? {
        0 => Value::Null,
        1 => Value::Bool(from.arbitrary()?),
        2 => Value::from(from.arbitrary::<i64>()?),
        3 => Value::from(from.arbitrary::<u64>()?),
        // JSON has neither infinities nor NaN.
        4 => Number::from_f64(from.arbitrary()?).map_or(Value::Null, Value::Number),
        5 => Value::String(text(from)?),
        6 => Value::Array(list(from, |from| value(from, depth - 1))?),
        _ => Value::Object(object(from, depth)?),
    })
}
