//! How an event is written for a caller: the log has one form, and callers choose theirs.
//!
//! - **As statuses** (the default): a piece of the answer is what the agent says in a WORKING status, marked by
//!   [`CHUNK`]; the answer is one artifact at the end.
//! - **As artifacts**: a piece of the answer is a piece of its artifact, marked in the same way. Nobody knows of a piece
//!   that it is the last one before the turn ends, so the last one is what the end adds: mostly an empty text. Holding
//!   every piece back until the next one comes would delay all of them by one.
//! - **As a whole**: no pieces; the answer is one artifact at the end.
//!
//! Many clients take whatever text a status has for the answer. So, but for those who want artifacts and know what they
//! do, a status that is no question and no end has no other text than the answer's: what an executor says about its work
//! is metadata there ([`LINE`]), as tools at work are everywhere.
//!
//! Everything is decided by the one event and the form, with no memory of the events before it. So a stream that is taken
//! up again in the middle says the same as one that was never cut, and a reader costs a cursor.

use talaria_turns::{Artifact, Content, Event, Message, Metadata, Part, State, Status, StreamAs};

use crate::updates::Happened;

/// In the metadata of a status's message, or of an artifact's update: this is a piece of the answer.
pub(crate) const CHUNK: &str = "talaria/chunk";
/// In the metadata of a status: what the executor says about its work.
pub(crate) const LINE: &str = "talaria/status";

/// What is said of an event.
pub(crate) enum Told<'a> {
    /// A status, with its metadata.
    Status(&'a Status, Option<&'a Metadata>),
    /// What an executor says about its work, as metadata of a status.
    Line(&'a Status, &'a str),
    /// A piece of the answer, as the message of a status.
    Chunk(&'a [Part]),
    /// An artifact, or a piece of one.
    Artifact(Piece<'a>),
    /// A note, by its name.
    Note(&'a str, &'a serde_json::Value),
    /// Nothing; no update is made of it.
    Nothing,
}

/// An artifact, or a piece of one.
pub(crate) struct Piece<'a> {
    pub(crate) artifact: &'a Artifact,
    /// The parts to show. None: an empty text, since an artifact has at least one part.
    pub(crate) parts: &'a [Part],
    pub(crate) append: bool,
    pub(crate) last: bool,
    /// Whether it is marked as a piece of the answer.
    pub(crate) is_chunk: bool,
}

/// Names the extensions by which a caller asks for a form, and says what each is.
pub(crate) const EXTENSIONS: [(StreamAs, &str, &str); 3] = [
    (
        StreamAs::Status,
        "urn:talaria:stream:status",
        "Streams tell the pieces of an answer as messages of WORKING statuses, then the whole as one artifact.",
    ),
    (
        StreamAs::Artifact,
        "urn:talaria:stream:artifact",
        "Streams tell the pieces of an answer as appended pieces of its artifact.",
    ),
    (StreamAs::Whole, "urn:talaria:stream:whole", "Streams tell an answer as one artifact, without pieces."),
];

/// The form that a caller asks for by the extensions that it names, the first of them.
pub(crate) fn asked_for(extensions: &[String]) -> Option<StreamAs> {
    let form = |asked: &String| EXTENSIONS.iter().find(|(_, uri, _)| uri == asked).map(|(form, ..)| *form);
    extensions.iter().find_map(form)
}

// === impl Happened ===

impl Happened {
    /// What is said of it.
    pub(crate) fn told(&self) -> Told<'_> {
        match &*self.event {
            Event::Status { status, metadata: None, ends_turn: false } if self.form != StreamAs::Artifact => {
                match line(status) {
                    Some(line) => Told::Line(status, line),
                    None => Told::Status(status, None),
                }
            }
            Event::Status { status, metadata, .. } => Told::Status(status, metadata.as_ref()),
            event @ Event::Artifact { artifact, append, last } => {
                let is_chunk = event.is_chunk();
                if is_chunk && self.form == StreamAs::Status {
                    return Told::Chunk(&artifact.parts);
                }
                let parts = artifact.parts.as_slice();
                Told::Artifact(Piece { artifact, parts, append: *append, last: *last, is_chunk })
            }
            // The pieces had the first part.
            Event::Whole(artifact) if self.form == StreamAs::Artifact => {
                let parts = artifact.parts.get(1..).unwrap_or_default();
                Told::Artifact(Piece { artifact, parts, append: true, last: true, is_chunk: true })
            }
            Event::Whole(artifact) | Event::Late(artifact) => {
                let parts = artifact.parts.as_slice();
                Told::Artifact(Piece { artifact, parts, append: false, last: true, is_chunk: false })
            }
            Event::Note { name, value } => Told::Note(name, value),
            Event::Accepted { .. } | Event::Answered(_) | Event::Checkpoint(_) => Told::Nothing,
        }
    }
}

/// What the executor says about its work with a status, if that is what it says.
fn line(status: &Status) -> Option<&str> {
    let Status { state: State::Working, message: Some(Message { parts, .. }), .. } = status else {
        return None;
    };
    match parts.as_slice() {
        [Part { content: Content::Text(text), .. }] => Some(text),
        _ => None,
    }
}

// === impl Told ===

impl Told<'_> {
    /// Whether it is an update of an artifact, and not of the status.
    pub(crate) fn is_artifact(&self) -> bool {
        matches!(self, Self::Artifact(_))
    }
}
