//! The turns of all callers: the list, one of them with all that is known of it, cancel, and the answer to its question.
//!
//! A row has the beginning of a message, and one turn its conversation: those who may read here read what callers wrote.
//! Everything is scrubbed as log lines are. Bounds: a page has [`PAGE`] rows, one turn the last [`MESSAGES`] messages,
//! [`EVENTS`] events and [`TEXT`] characters of each part; what is beyond is marked as cut.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use talaria_executors::What;
use talaria_turns::{
    Artifact, CancelError, Content, Event, Incoming, Message, Part, Place, Principal, Role, SendError, State,
    StoreError, Survey, TaskId, TaskKey, TaskRow, Timeline, Timestamp, TurnState, message_text,
};

use super::executors::Upload;
use super::reply::{
    Reply, beginning, conflict, invalid, not_found, ok, read_json, respond, scrub, scrubbed, unavailable,
};
use super::{Host, guard};
use crate::journal::Journal;

/// The rows of a page: by default, and at most.
const PAGE: (usize, usize) = (50, 200);

/// The messages of one turn that are shown, the last ones.
const MESSAGES: usize = 200;

/// The artifacts that are shown.
const ARTIFACTS: usize = 100;

/// The events that are shown, the last ones.
const EVENTS: usize = 2_000;

/// The characters of a part.
const TEXT: usize = 64 << 10;

/// The characters of an event's summary.
const SUMMARY: usize = 200;

/// The bytes of values, such as metadata, that are shown.
const VALUE: usize = 16 << 10;

/// The body of an answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    text: String,
}

/// `GET /turns`
pub(super) async fn list(host: &Host, query: Option<&str>) -> Reply {
    let survey = match parse(query.unwrap_or_default()) {
        Ok(survey) => survey,
        Err(problem) => return invalid(&problem),
    };
    match host.store.survey(&survey).await {
        Ok(page) => {
            let rows: Vec<Value> = page.rows.iter().map(|known| row(known, &host.journal)).collect();
            ok(&json!({ "turns": rows, "next": page.next.as_ref().map(cursor) }))
        }
        Err(error) => unavailable(&error),
    }
}

/// A task in a line.
pub(super) fn row(row: &TaskRow, journal: &Journal) -> Value {
    let timeline = journal.last(&row.key.task);
    let facts = timeline.as_ref().map(|timeline| timeline.read(|facts| (facts.state, facts.ended.is_some())));
    let state = match facts {
        // The row was read before that was in the store.
        Some((TurnState::Running, false)) if row.state == State::Submitted => State::Working,
        _ => row.state,
    };
    json!({
        "task": row.key.task.as_str(),
        "context": row.context.as_str(),
        "owner": row.key.owner.name(),
        "executor": row.executor,
        "state": state.to_string(),
        "at": row.at.to_string(),
        "text": scrubbed(&row.text),
        "running": facts.is_some_and(|(_, ended)| !ended),
        "timeline": timeline.map(|timeline| shown(&timeline, false)),
    })
}

/// A timeline, scrubbed.
pub(super) fn shown(timeline: &Timeline, with_steps: bool) -> Value {
    let mut shown = timeline.to_json();
    let Some(fields) = shown.as_object_mut() else { return shown };
    if !with_steps {
        fields.remove("steps");
    }
    for field in ["reason", "upstream_error", "steps"] {
        if let Some(value) = fields.get_mut(field) {
            scrub(value);
        }
    }
    shown
}

/// `GET /turns/{task}`
pub(super) async fn one(host: &Host, task: &str) -> Reply {
    let found = match find(host, task).await {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    match whole(host, &found).await {
        Ok(shown) => ok(&shown),
        Err(StoreError::NotFound) => not_found("no such task"),
        Err(error) => unavailable(&error),
    }
}

async fn whole(host: &Host, found: &TaskRow) -> Result<Value, StoreError> {
    let task = host.turns.task(&found.key.owner, &found.key.task).await?;
    let events = events(host, &found.key, task.version).await?;
    let said: Vec<&Arc<Message>> = task.history.iter().chain(&task.status.message).collect();
    let cut = said.len().saturating_sub(MESSAGES);
    let times = times_of_messages(&events);
    let messages = said.iter().skip(cut).map(|said| message(said, times.get(said.id.as_str()).copied()));
    let timelines = host.journal.timelines(&task.id);
    let mut metadata = Value::Object(bounded(&task.metadata));
    scrub(&mut metadata);
    Ok(json!({
        "task": task.id.as_str(),
        "context": task.context.as_str(),
        "owner": found.key.owner.name(),
        "executor": task.executor,
        "state": task.status.state.to_string(),
        "at": task.status.at.to_string(),
        "metadata": metadata,
        "messages": messages.collect::<Vec<_>>(),
        "messages_cut": cut,
        "artifacts": task.artifacts.iter().take(ARTIFACTS).map(|known| artifact(known)).collect::<Vec<_>>(),
        "question": task.status.state.is_interrupted(),
        "timelines": timelines.iter().map(|timeline| shown(timeline, true)).collect::<Vec<_>>(),
        "events": events.iter().map(Told::to_json).collect::<Vec<_>>(),
        "events_cut": task.version.saturating_sub(EVENTS as u64),
        "trace_id": task.trace.as_ref().map(|place| place.trace.to_string()),
    }))
}

/// An event, and when it was appended.
struct Told {
    sequence: u64,
    at: Timestamp,
    event: Arc<Event>,
}

/// The last events of a task.
async fn events(host: &Host, key: &TaskKey, version: u64) -> Result<Vec<Told>, StoreError> {
    let mut after = version.saturating_sub(EVENTS as u64);
    let times = host.store.times(key, after).await?;
    let mut told: Vec<Told> = Vec::new();
    while told.len() < EVENTS {
        let page = host.store.events(key, after, EVENTS - told.len()).await?;
        let Some(last) = page.last() else { break };
        after = last.sequence;
        told.extend(page.into_iter().map(|entry| {
            let append = times.partition_point(|(first, _)| *first <= entry.sequence).saturating_sub(1);
            let at = times.get(append).map_or_else(Timestamp::now, |(_, at)| *at);
            Told { sequence: entry.sequence, at, event: entry.event }
        }));
    }
    Ok(told)
}

/// When the messages were said, by their ids.
fn times_of_messages(events: &[Told]) -> HashMap<String, Timestamp> {
    let said = events.iter().filter_map(|told| {
        let message = match &*told.event {
            Event::Accepted { message, .. } | Event::Answered(message) => message,
            Event::Status { status, .. } => status.message.as_ref()?,
            _ => return None,
        };
        Some((message.id.as_str().to_owned(), told.at))
    });
    said.collect()
}

impl Told {
    fn to_json(&self) -> Value {
        let (kind, summary) = summary(&self.event);
        let summary = scrubbed(&summary);
        let (text, cut) = beginning(&summary, SUMMARY);
        let summary = if cut { format!("{text}…") } else { text.to_owned() };
        json!({ "sequence": self.sequence, "at": self.at.to_string(), "kind": kind, "summary": summary })
    }
}

/// The kind of an event and a line about it; longer than what is shown, but bounded.
fn summary(event: &Event) -> (&'static str, String) {
    // More than is shown, so that a secret that is cut in two is whole when it is scrubbed.
    let text = |parts: &[Part]| beginning(&message_text(parts), 4 * SUMMARY).0.to_owned();
    match event {
        Event::Accepted { message, executor, .. } => {
            ("accepted", format!("for {executor}: {}", text(&message.parts)))
        }
        Event::Answered(message) => ("answered", text(&message.parts)),
        Event::Status { status, ends_turn, .. } => {
            let mut line = status.state.to_string();
            if *ends_turn {
                line.push_str(", ends the turn");
            }
            if let Some(message) = &status.message {
                let _ = write!(line, ": {}", text(&message.parts));
            }
            ("status", line)
        }
        Event::Artifact { artifact, append, last } => {
            let mut line = format!("{}{}", artifact.id, if *append { ", a piece" } else { "" });
            if *last {
                line.push_str(", the last");
            }
            let _ = write!(line, ": {}", text(&artifact.parts));
            ("artifact", line)
        }
        Event::Whole(artifact) => ("whole", format!("{}: {}", artifact.id, text(&artifact.parts))),
        Event::Late(artifact) => ("late", format!("{}: {}", artifact.id, text(&artifact.parts))),
        Event::Note { name, value } => {
            let value = value.to_string();
            ("note", format!("{name}: {}", beginning(&value, 4 * SUMMARY).0))
        }
        Event::Checkpoint(data) => ("checkpoint", format!("{} bytes", data.len())),
    }
}

fn message(message: &Message, at: Option<Timestamp>) -> Value {
    let role = match message.role {
        Role::User => "user",
        Role::Agent => "agent",
    };
    json!({
        "id": message.id.as_str(),
        "role": role,
        "at": at.map(|at| at.to_string()),
        "parts": message.parts.iter().map(part).collect::<Vec<_>>(),
    })
}

fn artifact(artifact: &Artifact) -> Value {
    json!({
        "id": scrubbed(&artifact.id),
        "name": artifact.name.as_deref().map(scrubbed),
        "parts": artifact.parts.iter().map(part).collect::<Vec<_>>(),
    })
}

fn part(part: &Part) -> Value {
    let file = |bytes: Option<usize>, uri: Option<&str>| {
        let name = part.filename.as_deref().map(scrubbed);
        json!({ "file": name, "media_type": part.media_type, "bytes": bytes, "uri": uri.map(scrubbed) })
    };
    match &part.content {
        Content::Text(text) => {
            let clean = scrubbed(text);
            let (text, cut) = beginning(&clean, TEXT);
            json!({ "text": text, "cut": cut })
        }
        Content::Data(data) => {
            let text = data.to_string();
            if text.len() > VALUE {
                let clean = scrubbed(&text);
                return json!({ "text": beginning(&clean, VALUE).0, "cut": true });
            }
            let mut data = data.clone();
            scrub(&mut data);
            json!({ "data": data })
        }
        Content::Uri(uri) => file(None, Some(uri)),
        Content::Bytes(bytes) => file(Some(bytes.len()), None),
    }
}

/// The values that are small enough to be shown.
fn bounded(metadata: &Map<String, Value>) -> Map<String, Value> {
    let mut left = VALUE;
    let mut shown = Map::new();
    for (key, value) in metadata {
        let size = key.len() + value.to_string().len();
        if size > left {
            shown.insert(key.clone(), json!("…"));
            continue;
        }
        left -= size;
        shown.insert(key.clone(), value.clone());
    }
    shown
}

/// `POST /turns/{task}/cancel`
pub(super) async fn cancel(host: &Host, task: &str, by: &guard::Who) -> Reply {
    let found = match find(host, task).await {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let TaskKey { owner, task } = &found.key;
    match host.turns.cancel(owner, task).await {
        Ok(ended) => {
            host.executors.note(by.name(), What::Canceled, Some(task.as_str()), None).await;
            host.journal.changes().touch(task);
            let state = ended.status.state.to_string();
            respond(StatusCode::ACCEPTED, &json!({ "task": task.as_str(), "state": state }))
        }
        Err(error @ CancelError::Over { .. }) => conflict(&error.to_string()),
        Err(error) => unavailable(&error),
    }
}

/// `POST /turns/{task}/answer`
pub(super) async fn answer(
    host: &Host,
    task: &str,
    by: &guard::Who,
    head: &http::request::Parts,
    body: impl Upload,
) -> Reply {
    let found = match find(host, task).await {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let Answer { text } = match read_json(head, body, host.turns.budget()).await {
        Ok(answer) => answer,
        Err(reply) => return reply,
    };
    if text.trim().is_empty() {
        return invalid("`text` is empty");
    }
    if !found.state.is_interrupted() {
        return conflict(&format!("the task is {} and asks nothing", found.state));
    }
    let message = Message { role: Role::User, ..Message::agent(vec![Part::text(text)]) };
    let incoming = Incoming {
        principal: found.key.owner.clone(),
        message: Arc::new(message),
        task: Some(found.key.task.clone()),
        context: Some(found.context.clone()),
        streaming: false,
        async_delivery: true,
        metadata: None,
        push: None,
        trace: None,
    };
    match host.turns.send(incoming).await {
        Ok(accepted) => {
            let task = found.key.task.as_str();
            host.executors.note(by.name(), What::Answered, Some(task), None).await;
            host.journal.changes().touch(&found.key.task);
            let state = accepted.task.status.state.to_string();
            respond(StatusCode::ACCEPTED, &json!({ "task": task, "state": state }))
        }
        Err(SendError::Store(error)) => unavailable(&error),
        Err(error) => conflict(&error.to_string()),
    }
}

/// The task of a path.
async fn find(host: &Host, task: &str) -> Result<TaskRow, Reply> {
    let text = percent_decode_str(task).decode_utf8_lossy();
    let id: TaskId = text.parse().map_err(|error| invalid(&format!("the id of the task {error}")))?;
    match host.store.find(&id).await {
        Ok(Some(row)) => Ok(row),
        Ok(None) => Err(not_found("no such task")),
        Err(error) => Err(unavailable(&error)),
    }
}

/// Reads the filters of a list. A value that is empty is absent.
fn parse(query: &str) -> Result<Survey, String> {
    let mut survey = Survey { limit: PAGE.0, ..Survey::default() };
    for (key, value) in pairs(query)? {
        if value.is_empty() {
            continue;
        }
        match key.as_str() {
            "state" => survey.state = Some(state(&value)?),
            "executor" => survey.executor = Some(short("executor", value)?),
            "owner" if value == "-" => survey.owner = Some(Principal::anyone()),
            "owner" => survey.owner = Some(Principal::named(&short("owner", value)?)),
            "context" => {
                survey.context = Some(value.parse().map_err(|error| format!("`context` {error}"))?);
            }
            "search" => survey.search = Some(short("search", value)?),
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=PAGE.1).contains(limit));
                survey.limit = limit.ok_or_else(|| format!("`limit` is a number from 1 to {}", PAGE.1))?;
            }
            "after" => survey.after = Some(place(&value).ok_or("`after` is not from `next` of a page")?),
            _ => {
                let known = "state, executor, owner, context, search, limit, after";
                return Err(format!("`{}` is no filter; there are {known}", beginning(&key, 40).0));
            }
        }
    }
    Ok(survey)
}

fn state(text: &str) -> Result<State, String> {
    serde_json::from_value(text.into()).map_err(|_| {
        "`state` is submitted, working, input-required, auth-required, completed, failed, canceled or rejected"
            .to_owned()
    })
}

fn short(key: &str, value: String) -> Result<Box<str>, String> {
    if value.len() > 256 { Err(format!("`{key}` has more than 256 bytes")) } else { Ok(value.into()) }
}

/// The pairs of a query, decoded.
pub(super) fn pairs(query: &str) -> Result<Vec<(String, String)>, String> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        let text =
            percent_decode_str(&text).decode_utf8().map_err(|_| "the query is not UTF-8".to_owned())?;
        Ok::<_, String>(text.into_owned())
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(key)?, decode(value)?))
        })
        .collect()
}

/// A position as text that its reader does not look into.
fn cursor(place: &Place) -> String {
    URL_SAFE_NO_PAD.encode(format!("{} {}", place.at.millis(), place.task.as_str()))
}

fn place(text: &str) -> Option<Place> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let (at, task) = text.split_once(' ')?;
    Some(Place { at: Timestamp::from_millis(at.parse().ok()?), task: task.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_and_mistakes_named() {
        let survey = parse("state=failed&executor=a%20b&owner=-&search=x+y&limit=7&context=").unwrap();
        assert_eq!((survey.state, survey.limit), (Some(State::Failed), 7));
        assert_eq!((survey.executor.as_deref(), survey.search.as_deref()), (Some("a b"), Some("x y")));
        assert_eq!((survey.owner, survey.context), (Some(Principal::anyone()), None));
        assert_eq!(parse("owner=peer").unwrap().owner, Some(Principal::named("peer")));
        for (query, problem) in [
            ("state=asleep", "`state` is submitted, "),
            ("limit=0", "`limit` is a number from 1 to 200"),
            ("limit=201", "`limit`"),
            ("after=x", "`after` is not from `next` of a page"),
            ("order=asc", "`order` is no filter"),
            ("search=%ff", "the query is not UTF-8"),
            (&format!("search={}", "x".repeat(257)), "`search` has more than 256 bytes"),
        ] {
            let error = parse(query).unwrap_err();
            assert!(error.starts_with(problem), "{query}: {error}");
        }
        let position = Place { at: Timestamp::from_millis(17), task: "a task".parse().unwrap() };
        assert_eq!(place(&cursor(&position)), Some(position));
    }

    #[test]
    fn what_is_shown_is_bounded_and_scrubbed() {
        let shown = part(&Part::text(format!("Bearer abcdefghijklmnop {}", "x".repeat(TEXT))));
        assert_eq!(shown["cut"], true);
        let text = shown["text"].as_str().unwrap();
        assert!(
            text.chars().count() == TEXT && !text.contains("abcdefghijklmnop"),
            "{}",
            beginning(text, 80).0
        );
        let long = Event::Note { name: "n".into(), value: "y".repeat(1 << 20).into() };
        let told = Told { sequence: 1, at: Timestamp::now(), event: Arc::new(long) };
        assert!(told.to_json()["summary"].as_str().unwrap().chars().count() <= SUMMARY + 1);
        let metadata = json!({ "a": "x".repeat(VALUE), "b": 1 });
        assert_eq!(bounded(metadata.as_object().unwrap()), *json!({ "a": "…", "b": 1 }).as_object().unwrap());
    }
}
