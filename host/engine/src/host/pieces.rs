//! Artifacts that arrive in pieces: a secret that is split over the pieces is redacted like one in a whole text.
//!
//! The pieces of an artifact's text are one text, so they pass one [`TextStream`], which holds back what may be the
//! beginning of a secret. The rest follows with the last piece, before any other kind of part, before a question, and at
//! the end of the turn. A piece of which everything is held back is not emitted, unless it begins its artifact.
//!
//! Text is held back for at most [`OPEN`] artifacts. When a turn begins more, the rest of the one that began first is
//! released: a secret that is split over that point of it is not recognised. To reject the event instead would break
//! executors that never mark a last piece.

use std::collections::VecDeque;

use talaria_redact::{ReplyRedactor, TextStream};
use talaria_turns::{Artifact, Content, Emitted, Part};

/// The artifacts of a turn of which text is held back, as many as the host closes at the end of a turn.
const OPEN: usize = 64;

/// The artifacts of a turn that have pieces, but not a last one.
#[derive(Default)]
pub(super) struct Pieces(VecDeque<Open>);

struct Open {
    id: String,
    /// The media type of the text that is held back.
    media_type: Option<String>,
    text: TextStream,
}

/// Whether a part is text that continues the text before it, and is continued by the text after it.
pub(crate) fn is_open_text(part: &Part) -> bool {
    matches!(part, Part { content: Content::Text(_), filename: None, metadata: None, .. })
}

// === impl Pieces ===

impl Pieces {
    /// Redacts a piece, in which [open text](is_open_text) is not redacted yet and everything else is. Returns what to
    /// emit: the rest of another artifact, if there was no room, and the piece, unless it is held back.
    pub(super) fn push(
        &mut self,
        mut piece: Artifact,
        append: bool,
        last: bool,
        replies: &ReplyRedactor,
    ) -> [Option<Emitted>; 2] {
        let known = self.0.iter().position(|open| open.id == piece.id);
        let known = known.and_then(|at| self.0.remove(at)).filter(|_| append);
        let begin = || Open { id: piece.id.clone(), media_type: None, text: replies.stream() };
        let mut open = known.unwrap_or_else(begin);
        piece.parts = open.redact(piece.parts);
        if last {
            open.append_rest(&mut piece.parts);
        }
        let evicted = if last { None } else { self.hold(open) };
        let is_held = append && !last && is_bare(&piece);
        [evicted, (!is_held).then_some(Emitted::Artifact { artifact: piece, append, last })]
    }

    /// Releases everything.
    pub(super) fn finish(&mut self) -> Vec<Emitted> {
        self.0.drain(..).filter_map(Open::close).collect()
    }

    fn hold(&mut self, open: Open) -> Option<Emitted> {
        self.0.push_back(open);
        if self.0.len() > OPEN { self.0.pop_front()?.close() } else { None }
    }
}

// === impl Open ===

impl Open {
    /// Redacts the parts of a piece. Text that was held back comes before a part that does not continue it.
    fn redact(&mut self, parts: Vec<Part>) -> Vec<Part> {
        let mut redacted = Vec::with_capacity(parts.len());
        for mut part in parts {
            let continues = is_open_text(&part) && part.media_type == self.media_type;
            if !continues {
                self.append_rest(&mut redacted);
            }
            if is_open_text(&part)
                && let Content::Text(text) = &mut part.content
            {
                *text = self.text.push(text);
                self.media_type.clone_from(&part.media_type);
            }
            redacted.push(part);
        }
        redacted
    }

    /// Appends the text that is held back to the text that it continues.
    fn append_rest(&mut self, parts: &mut Vec<Part>) {
        let Some(rest) = self.rest() else { return };
        match (parts.last_mut().filter(|part| is_open_text(part)), &rest.content) {
            (Some(Part { content: Content::Text(text), .. }), Content::Text(rest)) => text.push_str(rest),
            _ => parts.push(rest),
        }
    }

    /// Returns the text that is held back, if there is any.
    fn rest(&mut self) -> Option<Part> {
        let rest = self.text.finish();
        let media_type = self.media_type.clone();
        (!rest.is_empty()).then(|| Part { media_type, ..Part::text(rest) })
    }

    fn close(mut self) -> Option<Emitted> {
        let rest = self.rest()?;
        Some(Emitted::Artifact { artifact: Artifact::new(self.id, vec![rest]), append: true, last: false })
    }
}

/// Whether a piece adds nothing to its artifact.
fn is_bare(piece: &Artifact) -> bool {
    let Artifact { id: _, name, description, parts, metadata, extensions } = piece;
    let is_empty =
        |part: &Part| is_open_text(part) && matches!(&part.content, Content::Text(text) if text.is_empty());
    name.is_none()
        && description.is_none()
        && metadata.is_none()
        && extensions.is_empty()
        && parts.iter().all(is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use talaria_redact::{Redactor, Replies};

    use super::*;

    const SECRET: &str = "correct-horse-battery";

    fn replies() -> ReplyRedactor {
        ReplyRedactor::new(Redactor::new([SECRET]), Replies::Values)
    }

    fn text_of(emitted: &[Emitted], wanted: &str) -> String {
        let artifacts = emitted.iter().filter_map(|emitted| match emitted {
            Emitted::Artifact { artifact, .. } if artifact.id == wanted => Some(artifact),
            _ => None,
        });
        let parts = artifacts.flat_map(|artifact| &artifact.parts);
        parts
            .map(|part| match &part.content {
                Content::Text(text) => text.as_str(),
                _ => "|",
            })
            .collect()
    }

    #[test]
    fn a_secret_is_redacted_wherever_the_text_is_split() {
        let whole = format!("it is {SECRET} indeed");
        for cut in 1..whole.len() {
            let (before, after) = whole.split_at(cut);
            let mut pieces = Pieces::default();
            let mut emitted = Vec::new();
            for (text, append) in [(before, false), (after, true)] {
                for id in ["a", "b"] {
                    let piece = Artifact::new(id, vec![Part::text(text)]);
                    emitted.extend(pieces.push(piece, append, false, &replies()).into_iter().flatten());
                }
            }
            emitted.extend(pieces.finish());
            for id in ["a", "b"] {
                assert_eq!(text_of(&emitted, id), replies().text(whole.clone()), "{cut}");
            }
        }
    }

    #[test]
    fn the_rest_comes_with_the_last_piece_and_before_other_parts() {
        let mut pieces = Pieces::default();
        let mut push = |parts: Vec<Part>, append, last| {
            let [_, piece] = pieces.push(Artifact::new("a", parts), append, last, &replies());
            piece.map_or("held".into(), |piece| text_of(&[piece], "a"))
        };
        assert_eq!(push(vec![Part::text("corr")], false, false), "", "the first piece is always emitted");
        assert_eq!(push(vec![Part::text("ect")], true, false), "held");
        assert_eq!(push(vec![Part::new(Content::Data(json!(1)))], true, false), "correct|");
        assert_eq!(push(vec![Part::text("corr")], true, false), "held");
        assert_eq!(push(vec![Part::text("upt")], true, true), "corrupt");
        assert_eq!(push(vec![Part::text("new")], false, true), "new");
        let other = Part { media_type: Some("text/html".into()), ..Part::text("and") };
        let parts = vec![Part::text("one"), other, Part::text("two")];
        let [_, whole] = Pieces::default().push(Artifact::new("a", parts.clone()), false, true, &replies());
        let whole = whole.expect("a whole artifact");
        assert!(matches!(&whole, Emitted::Artifact { artifact, .. } if artifact.parts == parts), "{whole:?}");
        assert!(pieces.finish().is_empty());
    }

    #[test]
    fn a_replaced_artifact_loses_what_was_held_back() {
        let mut pieces = Pieces::default();
        for text in ["old", "new"] {
            pieces.push(Artifact::new("a", vec![Part::text(text)]), false, false, &replies());
        }
        assert_eq!(text_of(&pieces.finish(), "a"), "new");
    }

    #[test]
    fn the_oldest_of_too_many_artifacts_is_released() {
        let mut pieces = Pieces::default();
        let mut released = Vec::new();
        for id in 0..=OPEN {
            let piece = Artifact::new(id.to_string(), vec![Part::text("word")]);
            released.extend(pieces.push(piece, false, false, &replies()).into_iter().next().flatten());
        }
        assert_eq!((released.len(), text_of(&released, "0").as_str()), (1, "word"));
        assert_eq!(pieces.finish().len(), OPEN);
    }
}
