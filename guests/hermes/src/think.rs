//! Separates thoughts inside the content, `<think>…</think>`, from text, piece by piece.
//!
//! Tags may be torn between pieces, in upper or lower case, and nested. A block that is never closed runs to the end. A
//! closing tag without an opening one means that everything before it was a thought: some endpoints open the block
//! themselves and do not send the tag.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Separates text from thoughts.
#[derive(Default)]
pub(crate) struct Think {
    depth: usize,
    /// The beginning of a possible tag.
    held: String,
}

/// A piece, sorted.
#[derive(Default)]
pub(crate) struct Sorted {
    pub(crate) text: String,
    pub(crate) thought: String,
    /// Whether all text before this piece was a thought.
    pub(crate) disowns: bool,
}

impl Think {
    /// Sorts the next piece, and holds back the beginning of a possible tag.
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

    /// Sorts what was held back, which was not a tag after all.
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

/// The rest of `text` after the tag that it begins with.
fn strip<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (begin, rest) = text.split_at_checked(tag.len())?;
    begin.eq_ignore_ascii_case(tag).then_some(rest)
}

/// Whether `tag` begins with `text`.
fn begins(tag: &str, text: &str) -> bool {
    tag.get(..text.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text and the thoughts of these pieces, as an answer gathers them.
    fn sort(pieces: &[&str]) -> (String, String) {
        let (mut think, mut text, mut thoughts) = (Think::default(), String::new(), String::new());
        let mut sorted: Vec<Sorted> = pieces.iter().map(|piece| think.push(piece)).collect();
        sorted.push(think.finish());
        for sorted in sorted {
            if sorted.disowns {
                thoughts.push_str(&core::mem::take(&mut text));
            }
            thoughts.push_str(&sorted.thought);
            text.push_str(&sorted.text);
        }
        (text, thoughts)
    }

    #[test]
    fn thoughts_are_told_from_text_however_the_pieces_are_cut() {
        for (whole, text, thoughts) in [
            ("hello", "hello", ""),
            ("<think>hm</think>hello", "hello", "hm"),
            ("<THINK>hm</Think>hello", "hello", "hm"),
            ("a<think>b<think>c</think>d</think>e", "ae", "bcd"),
            ("<think>never closed", "", "never closed"),
            ("opened elsewhere</think>hello", "hello", "opened elsewhere"),
            ("1 < 2 and <b>", "1 < 2 and <b>", ""),
            ("<thin", "<thin", ""),
            ("<think>a<thin</think>b", "b", "a<thin"),
            ("ä<think>ö</think>ü", "äü", "ö"),
            ("", "", ""),
        ] {
            let expected = (text.to_owned(), thoughts.to_owned());
            assert_eq!(sort(&[whole]), expected, "{whole}");
            let letters: Vec<String> = whole.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(sort(&letters), expected, "{whole}, a letter at a time");
        }
    }
}
