//! Searches for values, in whole texts, whole bodies, and bodies that arrive in pieces.
//!
//! All forms of all values are searched for in one pass, and every byte that belongs to any of them is replaced, also where
//! they overlap. In texts a label takes their place; in bytes each becomes `*`, which keeps the lengths true.
//!
//! A stream holds back its end until nothing in it can be the beginning of a value. What is held back does **not** depend on
//! the values: otherwise a reader who sees where pieces end, and who can write guesses into the stream, would learn a
//! secret character by character. It is the current word, since no form of a value has white space in it, and at most
//! [`Search::tail`] bytes, which is the longest form rounded up. If a value has white space inside, it is the current line;
//! if it has a line feed inside, it is always the tail. Both are rare: [`units`] takes most such values apart.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use bytes::{Bytes, BytesMut};

use crate::forms;
use crate::shapes::label;

/// Shorter values are not searched for: replacing them would destroy ordinary text.
pub(crate) const SHORTEST: usize = 8;
const MASK: u8 = b'*';
/// Longer than ordinary words.
const LONG_RUN: usize = 24;
/// The tail of a stream is a multiple of this, so that it does not tell the length of the longest value.
const TAIL: usize = 256;

/// Values to search for, in all their forms. Cheap to clone. The default has none.
#[derive(Clone, Default)]
pub struct Values(Option<Arc<Search>>);

/// The values are too many or too long to be searched for in one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

struct Search {
    automaton: AhoCorasick,
    count: usize,
    hold: Hold,
    /// More bytes than the longest form has.
    tail: usize,
}

/// Where a stream may be cut without cutting a form of a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    /// After white space, and after every character beyond ASCII, of which some languages have whole lines.
    Word,
    /// After a line feed.
    Line,
    /// Only in front of the tail.
    Tail,
}

/// The body of a response on its way to a guest.
pub struct MaskedBody {
    values: Values,
    held: Bytes,
}

// === impl Values ===

impl Values {
    /// Prepares a search. Values of less than 8 bytes are ignored.
    ///
    /// # Errors
    /// If the values are too many or too long for one search, far above what fits into headers.
    pub fn new<'v>(values: impl IntoIterator<Item = &'v str>) -> Result<Self, TooLarge> {
        let values = values.into_iter().filter(|value| value.len() >= SHORTEST);
        let values: Vec<&str> = values.flat_map(units).collect();
        let forms: Vec<String> = values.iter().flat_map(|value| forms::of(value)).collect();
        let Some(longest) = forms.iter().map(String::len).max() else { return Ok(Self::default()) };
        // Every match is needed, also one inside another; that is the standard kind.
        let automaton = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&forms);
        let automaton = automaton.map_err(|_too_large| TooLarge)?;
        let hold = values.iter().map(|value| Hold::of(value)).max().unwrap_or(Hold::Word);
        let tail = longest.next_multiple_of(TAIL);
        Ok(Self(Some(Arc::new(Search { automaton, count: values.len(), hold, tail }))))
    }

    /// Whether there is nothing to search for.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the text with a label in place of every value; borrowed if it has none.
    pub fn replace<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let found = self.find(text.as_bytes());
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut replaced = String::with_capacity(text.len());
        let mut copied = 0;
        for range in found {
            replaced.push_str(text.get(copied..range.start).unwrap_or_default());
            replaced.push_str(&label("secret"));
            copied = range.end;
        }
        replaced.push_str(text.get(copied..).unwrap_or_default());
        Cow::Owned(replaced)
    }

    /// Returns the data with every byte of a value masked; the same data if it has none.
    pub fn mask(&self, data: Bytes) -> Bytes {
        let found = self.find(&data);
        masked(data, &found)
    }

    /// The places of all values, from left to right. Those that overlap are one.
    fn find(&self, data: &[u8]) -> Vec<Range<usize>> {
        self.0.as_ref().map_or_else(Vec::new, |search| search.find(data))
    }

    /// How much of a stream may be released: up to where no value can have begun that has not ended.
    pub(crate) fn cut(&self, data: &[u8]) -> usize {
        self.0.as_ref().map_or(data.len(), |search| search.cut(data, &search.find(data)))
    }
}

/// Shows only how many values there are.
impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Values({})", self.0.as_ref().map_or(0, |search| search.count))
    }
}

// === impl Search ===

impl Search {
    fn find(&self, data: &[u8]) -> Vec<Range<usize>> {
        // Most data holds nothing, and the search for a first match is the fastest one.
        if !self.automaton.is_match(data) {
            return Vec::new();
        }
        let mut places: Vec<_> =
            self.automaton.find_overlapping_iter(data).map(|found| found.range()).collect();
        places.sort_by_key(|place| (place.start, std::cmp::Reverse(place.end)));
        let mut found: Vec<Range<usize>> = Vec::new();
        for place in places {
            match found.last_mut() {
                Some(last) if place.start < last.end => last.end = last.end.max(place.end),
                _ => found.push(place),
            }
        }
        found
    }

    fn cut(&self, data: &[u8], found: &[Range<usize>]) -> usize {
        let is_end = |byte: &u8| match self.hold {
            Hold::Word => byte.is_ascii_whitespace() || !byte.is_ascii(),
            Hold::Line => *byte == b'\n',
            Hold::Tail => false,
        };
        let end = data.iter().rposition(is_end).map_or(0, |at| at + 1);
        let cut = end.max(data.len().saturating_sub(self.tail));
        // A value that is there as a whole is masked as a whole, so it is not cut in two.
        let across = found.iter().find(|place| place.start < cut && cut < place.end);
        across.map_or(cut, |across| across.start)
    }
}

/// What is searched for of a value. A key of several lines, or a document with keys in it, is often repeated in part or with
/// other white space, and as a whole it would hold back every stream by its length. So each long run without white space
/// counts by itself. A phrase of short words is one value.
fn units(value: &str) -> Vec<&str> {
    let runs: Vec<&str> = value.split_whitespace().filter(|run| run.len() >= LONG_RUN).collect();
    if runs.is_empty() { vec![value] } else { runs }
}

fn masked(data: Bytes, found: &[Range<usize>]) -> Bytes {
    if found.is_empty() {
        return data;
    }
    let mut data = BytesMut::from(data);
    for range in found {
        if let Some(secret) = data.get_mut(range.clone()) {
            secret.fill(MASK);
        }
    }
    data.freeze()
}

// === impl Hold ===

impl Hold {
    /// Where streams may be cut if they may contain this value. Only the value itself and its escaped forms can have white
    /// space in them; a line feed is escaped in all of these.
    fn of(value: &str) -> Self {
        if value.contains('\n') {
            Self::Tail
        } else if value.bytes().any(|byte| byte.is_ascii_whitespace() || !byte.is_ascii()) {
            Self::Line
        } else {
            Self::Word
        }
    }
}

// === impl MaskedBody ===

impl MaskedBody {
    /// Creates the state of a body in which these values are masked.
    pub fn new(values: Values) -> Self {
        Self { values, held: Bytes::new() }
    }

    /// Takes the next chunk and returns what may be read so far, perhaps nothing yet.
    pub fn push(&mut self, data: Bytes) -> Bytes {
        let Some(search) = &self.values.0 else { return data };
        let held = std::mem::take(&mut self.held);
        let mut data = if held.is_empty() { data } else { Bytes::from([held, data].concat()) };
        let found = search.find(&data);
        let cut = search.cut(&data, &found);
        self.held = data.split_off(cut);
        let before = found.partition_point(|place| place.end <= cut);
        masked(data, found.get(..before).unwrap_or_default())
    }

    /// Returns what was held back, now that the body has ended.
    pub fn finish(&mut self) -> Bytes {
        self.values.mask(std::mem::take(&mut self.held))
    }
}

/// Leaves out what is held back, which may be most of a secret.
impl fmt::Debug for MaskedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}

#[cfg(test)]
mod tests;
