//! What the agent has put out so far: its answer, and its other artifacts.
//!
//! The first artifact with text in it is the answer: its text goes out piece by piece while the caller reads along, and as
//! a whole at the end. Every other artifact is passed on as it arrives. What cannot be passed on in pieces, because it is
//! larger than an event of the host may be and cannot be cut, is attached to the answer.

use std::collections::BTreeMap;

use talaria_guest::events::{self, Artifact, Event, ToolProgress};
use talaria_guest::{Content, Failure, FailureKind, FinalState, Outcome, Part};
use talaria_upstream::mark;

use crate::decode::Status;
use crate::fault::error;

/// The bytes of the answer at most: half of what a guest may return to the host.
const ANSWER: usize = 8 << 20;
/// The bytes of one piece at most. The host takes a mebibyte, of which some is for its names.
const PIECE: usize = 900 << 10;
/// The id of the answer on this host.
const REPLY: &str = "reply";
/// The metadata key for the text of the final status.
const STATUS: &str = "talaria/status";

/// What the agent has put out.
pub(crate) struct Gathered {
    /// Whether the caller reads along.
    streaming: bool,
    answer: Option<Answer>,
    /// Parts that are sent with the answer.
    attached: Vec<Part>,
    bytes: usize,
    /// The other artifacts, each with a hash of what it was when it was seen as a whole.
    others: BTreeMap<String, Option<u64>>,
    /// Whether pieces may have been missed.
    pub(crate) is_patchy: bool,
}

struct Answer {
    id: String,
    text: String,
    media_type: Option<String>,
    /// The bytes of the text that the caller was sent.
    shown: usize,
    /// Whether the text is no longer what the caller was sent, and more.
    diverged: bool,
    /// Its parts other than text.
    beside: Vec<Part>,
}

impl Gathered {
    pub(crate) fn new(streaming: bool) -> Self {
        Self {
            streaming,
            answer: None,
            attached: Vec::new(),
            bytes: 0,
            others: BTreeMap::new(),
            is_patchy: false,
        }
    }

    /// Takes the artifacts of a task, whole.
    pub(crate) fn snapshot(&mut self, artifacts: Vec<Artifact>) -> Result<(), Failure> {
        // Some agents give an artifact another id whenever they show it.
        if let Some(answer) = &mut self.answer
            && artifacts.iter().all(|artifact| artifact.id != answer.id)
            && let Some(same) = artifacts.iter().find(|artifact| artifact.parts.iter().any(is_open_text))
        {
            answer.id.clone_from(&same.id);
        }
        for artifact in artifacts {
            let known = !self.is_answer(&artifact) && {
                let now = Some(hash(&artifact));
                self.others.values().any(|before| *before == now)
            };
            if !known {
                self.take(artifact, true)?;
            }
        }
        Ok(())
    }

    /// Takes an artifact, or a piece of one.
    pub(crate) fn piece(&mut self, artifact: Artifact) -> Result<(), Failure> {
        self.take(artifact, false)
    }

    /// Takes a piece of the answer that came as the message of a status.
    pub(crate) fn chunk(&mut self, parts: Vec<Part>) -> Result<(), Failure> {
        let append = self.answer.is_some();
        let id = self.answer.as_ref().map_or_else(|| REPLY.to_owned(), |answer| answer.id.clone());
        let artifact =
            Artifact { id, name: None, description: None, parts, append, last: false, metadata: None };
        self.take(artifact, false)
    }

    /// Reports what the agent is doing.
    pub(crate) fn report(&self, text: String) -> Result<(), Failure> {
        if self.streaming && !text.trim().is_empty() { emit(&Event::Status(text)) } else { Ok(()) }
    }

    /// Reports what a tool of the agent is doing.
    pub(crate) fn tool(&self, tool: ToolProgress) -> Result<(), Failure> {
        emit(&Event::ToolProgress(tool))
    }

    /// Sends what was gathered but not shown, before a question ends the turn.
    pub(crate) fn show_rest(&mut self) -> Result<(), Failure> {
        match &self.answer {
            Some(answer) if answer.shown == 0 && !answer.text.is_empty() => {
                emit(&Event::TextDelta(answer.text.clone()))
            }
            _ => Ok(()),
        }
    }

    /// The outcome of a task that is completed with this status.
    pub(crate) fn outcome(self, status: Status) -> Outcome {
        let Self { answer, attached, .. } = self;
        let said = text_of(&status.parts);
        let mut outcome = match answer {
            Some(answer) => {
                let mut parts = Vec::new();
                if !answer.text.is_empty() || answer.beside.is_empty() {
                    parts.push(Part { media_type: answer.media_type, ..Part::text(answer.text.as_str()) });
                }
                parts.extend(answer.beside);
                let mut outcome = Outcome::new(FinalState::Completed, parts);
                // Some agents say their answer twice.
                if !said.is_empty() && said.trim() != answer.text.trim() {
                    outcome.metadata = Some(serde_json::json!({ STATUS: said }).to_string());
                }
                outcome
            }
            None => Outcome::new(FinalState::Completed, status.parts),
        };
        outcome.parts.extend(attached);
        outcome.usage = status.usage;
        outcome
    }

    fn is_answer(&self, artifact: &Artifact) -> bool {
        match &self.answer {
            Some(answer) => answer.id == artifact.id,
            None => !self.others.contains_key(&artifact.id) && artifact.parts.iter().any(is_open_text),
        }
    }

    fn take(&mut self, artifact: Artifact, whole: bool) -> Result<(), Failure> {
        if self.is_answer(&artifact) {
            return self.take_answer(artifact);
        }
        self.others.insert(artifact.id.clone(), whole.then(|| hash(&artifact)));
        self.pass_on(artifact)
    }

    fn take_answer(&mut self, artifact: Artifact) -> Result<(), Failure> {
        let Artifact { id, parts, append, .. } = artifact;
        let answer = self.answer.get_or_insert_with(|| Answer {
            id,
            text: String::new(),
            media_type: None,
            shown: 0,
            diverged: false,
            beside: Vec::new(),
        });
        let (texts, beside): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(is_open_text);
        let media_type = texts.first().and_then(|part| part.media_type.clone());
        let text = join(texts);
        if append {
            self.bytes = self.bytes.saturating_add(text.len() + bytes_of(&beside));
            answer.text.push_str(&text);
            answer.beside.extend(beside);
        } else {
            let before = answer.text.len() + bytes_of(&answer.beside);
            self.bytes = self.bytes.saturating_sub(before).saturating_add(text.len() + bytes_of(&beside));
            let shown = answer.text.get(..answer.shown).unwrap_or_default();
            answer.diverged |= !text.starts_with(shown);
            (answer.text, answer.beside) = (text, beside);
        }
        answer.media_type = answer.media_type.take().or(media_type);
        if self.bytes > ANSWER {
            return Err(too_large());
        }
        if self.streaming
            && !answer.diverged
            && let Some(more) = answer.text.get(answer.shown..).filter(|more| !more.is_empty())
        {
            for piece in pieces(more) {
                emit(&Event::TextDelta(piece.to_owned()))?;
            }
            answer.shown = answer.text.len();
        }
        Ok(())
    }

    /// Passes an artifact on, in pieces that the host takes.
    fn pass_on(&mut self, artifact: Artifact) -> Result<(), Failure> {
        let Artifact { id, name, description, parts, append, last, metadata } = artifact;
        // The host has an artifact of that name itself.
        let id = if id == REPLY { format!("agent-{REPLY}") } else { id };
        let mut pieces: Vec<Vec<Part>> = Vec::new();
        let mut room = 0;
        for part in parts {
            for part in cut(part) {
                let size = bytes_of(std::slice::from_ref(&part));
                if size > PIECE {
                    self.bytes = self.bytes.saturating_add(size);
                    if self.bytes > ANSWER {
                        return Err(too_large());
                    }
                    self.attached.push(part);
                    continue;
                }
                match pieces.last_mut().filter(|_| size <= room) {
                    Some(piece) => piece.push(part),
                    None => {
                        room = PIECE;
                        pieces.push(vec![part]);
                    }
                }
                room -= size;
            }
        }
        let count = pieces.len();
        for (nth, parts) in pieces.into_iter().enumerate() {
            let first = nth == 0;
            emit(&Event::Artifact(Artifact {
                id: id.clone(),
                name: name.clone().filter(|_| first),
                description: description.clone().filter(|_| first),
                parts,
                append: append || !first,
                last: last && nth + 1 == count,
                metadata: metadata.clone().filter(|_| first),
            }))?;
        }
        Ok(())
    }
}

/// The texts of a message, one after the other.
pub(crate) fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match &part.content {
        Content::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Whether a part is text, and no file.
fn is_open_text(part: &Part) -> bool {
    matches!(part.content, Content::Text(_)) && part.filename.is_none()
}

/// The text of an artifact. One that was streamed has a part for each piece, so the parts are one text.
fn join(texts: Vec<Part>) -> String {
    let texts = texts.into_iter().filter_map(|part| match part.content {
        Content::Text(text) => Some(text),
        _ => None,
    });
    texts.collect()
}

/// Cuts a text that is too large for one piece; other parts stay whole.
fn cut(part: Part) -> Vec<Part> {
    match &part.content {
        Content::Text(text) if text.len() > PIECE && part.filename.is_none() => pieces(text)
            .map(|piece| Part { content: Content::Text(piece.to_owned()), ..part.clone() })
            .collect(),
        _ => vec![part],
    }
}

/// The pieces of a text that the host takes one at a time.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut end = rest.len().min(PIECE);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, more) = rest.split_at_checked(end).filter(|(piece, _)| !piece.is_empty())?;
        rest = more;
        Some(piece)
    })
}

fn bytes_of(parts: &[Part]) -> usize {
    let content = |part: &Part| match &part.content {
        Content::Text(text) | Content::Data(text) | Content::Uri(text) => text.len(),
        Content::Bytes(bytes) => bytes.len(),
    };
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    parts
        .iter()
        .map(|part| {
            content(part) + length(&part.metadata) + length(&part.filename) + length(&part.media_type)
        })
        .sum()
}

/// Recognises an artifact that has not changed.
fn hash(artifact: &Artifact) -> u64 {
    let mut all = Vec::new();
    for part in &artifact.parts {
        match &part.content {
            Content::Text(text) | Content::Data(text) | Content::Uri(text) => {
                all.extend_from_slice(text.as_bytes())
            }
            Content::Bytes(bytes) => all.extend_from_slice(bytes),
        }
        all.push(0);
    }
    mark(&all)
}

fn emit(event: &Event) -> Result<(), Failure> {
    events::emit(event).map_err(|failed| match failed.kind {
        events::ErrorKind::Cancelled => Failure::new(FailureKind::Cancelled, "the turn was cancelled"),
        _ => error(&format!("what it sent cannot be passed on: {}", failed.message)),
    })
}

fn too_large() -> Failure {
    error(&format!("its answer is larger than {ANSWER} bytes"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode::{Item, item};

    /// An artifact as the agent says it. Without a reader nothing is emitted for the answer.
    fn artifact(append: bool, parts: serde_json::Value) -> Artifact {
        let update = json!({ "artifactUpdate": {
            "taskId": "t", "append": append, "artifact": { "artifactId": "a", "parts": parts },
        } });
        match item(update).unwrap() {
            Item::Artifact { artifact, .. } => artifact,
            other => panic!("{other:?}"),
        }
    }

    fn completed(parts: serde_json::Value) -> Status {
        let task = json!({ "id": "t", "status": { "state": "completed", "message": { "parts": parts } } });
        match item(task).unwrap() {
            Item::Task { status, .. } => status,
            other => panic!("{other:?}"),
        }
    }

    fn answer(
        pieces: &[(bool, serde_json::Value)],
        said: serde_json::Value,
    ) -> (Vec<String>, Option<String>) {
        let mut gathered = Gathered::new(false);
        for (append, parts) in pieces {
            gathered.piece(artifact(*append, parts.clone())).unwrap();
        }
        let outcome = gathered.outcome(completed(said));
        let parts = outcome.parts.into_iter().map(|part| match part.content {
            Content::Text(text) => text,
            Content::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Content::Data(data) => data,
            Content::Uri(uri) => uri,
        });
        (parts.collect(), outcome.metadata)
    }

    #[test]
    fn the_answer_is_the_text_of_its_pieces_and_what_comes_beside() {
        let text = |text: &str| json!([{ "text": text }]);
        for (pieces, said, expected) in [
            (vec![(false, text("a ")), (true, text("b"))], json!([]), vec!["a b"]),
            (vec![(false, text("a ")), (true, text("b")), (false, text("a b c"))], json!([]), vec!["a b c"]),
            (vec![(false, json!([{ "text": "a " }, { "text": "b" }]))], json!([]), vec!["a b"]),
            (vec![(false, json!([{ "text": "a" }, { "raw": "AAAA" }]))], json!([]), vec!["a", "3 bytes"]),
            (vec![], json!([{ "text": "a" }, { "url": "http://f" }]), vec!["a", "http://f"]),
            (vec![], json!([]), vec![]),
            (vec![(false, text("a"))], json!([{ "text": "a" }]), vec!["a"]),
        ] {
            assert_eq!(answer(&pieces, said), (expected.into_iter().map(str::to_owned).collect(), None));
        }
        let (parts, metadata) = answer(&[(false, text("a"))], text("done"));
        assert_eq!(
            (parts, metadata.as_deref()),
            (vec!["a".to_owned()], Some(r#"{"talaria/status":"done"}"#))
        );
    }

    #[test]
    fn an_answer_over_the_bound_is_a_failure() {
        let mut gathered = Gathered::new(false);
        let piece = "x".repeat(ANSWER / 4);
        for nth in 0..4 {
            gathered.piece(artifact(nth > 0, json!([{ "text": piece }]))).unwrap();
        }
        let failure = gathered.piece(artifact(true, json!([{ "text": "x" }]))).unwrap_err();
        assert_eq!(failure.message, "[agent error] its answer is larger than 8388608 bytes");
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let text = format!("x{}", "ä".repeat(PIECE));
        let all: Vec<&str> = pieces(&text).collect();
        assert_eq!(all.concat(), text);
        assert!(all.iter().all(|piece| piece.len() <= PIECE) && all.len() == 3);
        assert_eq!(pieces("").count(), 0);
    }
}
