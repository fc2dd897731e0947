//! Thoughts inside the content: `<think>…</think>`, in pieces as they come.
//!
//! Tags may be torn between pieces, in either case of letters, and nested. A block that is never closed runs to the end.
//! A closing tag without an opening one means that everything before it was thought: some endpoints open the block
//! themselves and do not say so.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Tells text and thoughts apart.
#[derive(Default)]
pub(crate) struct Think {
    depth: usize,
    /// The beginning of what may be a tag.
    held: String,
}

/// What a piece turned out to be.
#[derive(Default)]
pub(crate) struct Sorted {
    pub(crate) text: String,
    pub(crate) thought: String,
    /// All text before this piece was thought.
    pub(crate) disowns: bool,
}

impl Think {
    /// Sorts the next piece. What may be the beginning of a tag is held back.
    pub(crate) fn push(&mut self, piece: &str) -> Sorted {
        let mut sorted = Sorted::default();
        let joined = core::mem::take(&mut self.held) + piece;
        let mut rest = joined.as_str();
        while let Some((before, from)) = rest.find('<').and_then(|at| rest.split_at_checked(at)) {
            self.sort(before, &mut sorted);
            if let Some(after) = strip(from, OPEN) {
                self.depth += 1;
                rest = after;
            } else if let Some(after) = strip(from, CLOSE) {
                self.close(&mut sorted);
                rest = after;
            } else if [OPEN, CLOSE].iter().any(|tag| begins(tag, from)) {
                self.held = from.to_owned();
                return sorted;
            } else {
                let (bracket, after) = from.split_at_checked(1).unwrap_or((from, ""));
                self.sort(bracket, &mut sorted);
                rest = after;
            }
        }
        self.sort(rest, &mut sorted);
        sorted
    }

    /// What was held back: no tag after all.
    pub(crate) fn finish(&mut self) -> Sorted {
        let mut sorted = Sorted::default();
        let held = core::mem::take(&mut self.held);
        self.sort(&held, &mut sorted);
        sorted
    }

    fn sort(&self, piece: &str, sorted: &mut Sorted) {
        let kind = if self.depth == 0 { &mut sorted.text } else { &mut sorted.thought };
        kind.push_str(piece);
    }

    fn close(&mut self, sorted: &mut Sorted) {
        match self.depth.checked_sub(1) {
            Some(depth) => self.depth = depth,
            None => {
                sorted.disowns = true;
                let text = core::mem::take(&mut sorted.text);
                sorted.thought.push_str(&text);
            }
        }
    }
}

/// What follows the tag that `text` begins with.
fn strip<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (begin, rest) = text.split_at_checked(tag.len())?;
    begin.eq_ignore_ascii_case(tag).then_some(rest)
}

/// Whether `tag` begins with `text`.
fn begins(tag: &str, text: &str) -> bool {
    tag.get(..text.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(text))
}
