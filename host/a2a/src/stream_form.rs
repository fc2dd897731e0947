//! The form of a streamed answer: the log stores one form, and each caller chooses how events are rendered.
//!
//! - **Statuses** (the default): a chunk of the answer is the message of a WORKING status, marked by [`keys::CHUNK`]; the whole
//!   answer follows as one artifact.
//! - **Artifacts**: a chunk of the answer is an appended piece of its artifact, marked in the same way. A chunk cannot be known
//!   to be the last one before the turn ends, so the end of the turn adds a last piece, which is usually an empty text. The
//!   alternative, to hold each chunk back until the next one arrives, would delay every chunk.
//! - **Whole**: no chunks; the answer is one artifact at the end.
//!
//! Many clients take the text of any status for the answer. So a status that is neither a question nor the end carries no text
//! but the answer's: progress of the executor is sent as metadata ([`keys::STATUS`]), and tool activity always is. Callers that
//! chose artifacts know the difference and get progress as text.
//!
//! The rendering depends on the event and the form alone, not on earlier events. A stream that resumes in the middle
//! therefore sends the same as one that was never interrupted, and a reader costs no more than a cursor.

use talaria_turns::{Artifact, Content, Event, Metadata, Part, State, Status, StreamAs};

use crate::update_stream::StreamEvent;

/// What a client gets of an event.
pub(crate) enum Rendered<'a> {
    /// A status, with its metadata.
    Status(&'a Status, Option<&'a Metadata>),
    /// Progress of the executor, as metadata of a status.
    Progress(&'a Status, &'a str),
    /// A chunk of the answer, as the message of a status.
    Chunk(&'a [Part]),
    /// An artifact, or a piece of one.
    Artifact(Piece<'a>),
    /// A note, by its name.
    Note(&'a str, &'a serde_json::Value),
    /// Nothing; the event makes no update.
    Nothing,
}

/// An artifact, or a piece of one.
pub(crate) struct Piece<'a> {
    pub(crate) artifact: &'a Artifact,
    /// The parts to show. If empty, the codec writes an empty text, since an artifact has at least one part.
    pub(crate) parts: &'a [Part],
    pub(crate) append: bool,
    pub(crate) last: bool,
    /// Whether it is marked as a chunk of the answer.
    pub(crate) is_chunk: bool,
}

/// The extensions by which a caller asks for a form, with their descriptions in the card.
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

/// Returns the form that a caller requests, by the first extension that names one.
pub(crate) fn requested(extensions: &[String]) -> Option<StreamAs> {
    let form = |wanted: &String| EXTENSIONS.iter().find(|(_, uri, _)| uri == wanted).map(|(form, ..)| *form);
    extensions.iter().find_map(form)
}

// === impl StreamEvent ===

impl StreamEvent {
    /// Renders the event in the caller's form.
    pub(crate) fn rendered(&self) -> Rendered<'_> {
        match &*self.event {
            Event::Status { status, metadata: None, ends_turn: false } if self.form != StreamAs::Artifact => {
                match progress(status) {
                    Some(text) => Rendered::Progress(status, text),
                    None => Rendered::Status(status, None),
                }
            }
            Event::Status { status, metadata, .. } => Rendered::Status(status, metadata.as_ref()),
            event @ Event::Artifact { artifact, append, last } => {
                let is_chunk = event.is_chunk();
                if is_chunk && self.form == StreamAs::Status {
                    return Rendered::Chunk(&artifact.parts);
                }
                let parts = artifact.parts.as_slice();
                Rendered::Artifact(Piece { artifact, parts, append: *append, last: *last, is_chunk })
            }
            // The chunks were the first part.
            Event::Whole(artifact) if self.form == StreamAs::Artifact => {
                let parts = artifact.parts.get(1..).unwrap_or_default();
                Rendered::Artifact(Piece { artifact, parts, append: true, last: true, is_chunk: true })
            }
            Event::Whole(artifact) | Event::Late(artifact) => {
                let parts = artifact.parts.as_slice();
                Rendered::Artifact(Piece { artifact, parts, append: false, last: true, is_chunk: false })
            }
            Event::Note { name, value } => Rendered::Note(name, value),
            Event::Accepted { .. } | Event::Answered(_) | Event::Checkpoint(_) => Rendered::Nothing,
        }
    }
}

/// Returns the text of a status if it reports progress.
fn progress(status: &Status) -> Option<&str> {
    let Status { state: State::Working, message: Some(message), .. } = status else { return None };
    match message.parts.as_slice() {
        [Part { content: Content::Text(text), .. }] => Some(text),
        _ => None,
    }
}

// === impl Rendered ===

impl Rendered<'_> {
    /// Whether it updates an artifact, as opposed to the status.
    pub(crate) fn is_artifact(&self) -> bool {
        matches!(self, Self::Artifact(_))
    }
}
