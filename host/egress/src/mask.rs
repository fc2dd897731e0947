//! Masks secrets that an upstream repeats, so that a guest cannot read them in a response.
//!
//! A guest names a secret and never sees it, but the upstream does, and many upstreams have a page or an error that repeats
//! the headers of a request. So in everything that a guest may read of a response, headers and body, each byte of a secret
//! becomes `*`, which keeps the lengths true. All secrets of the executor are masked, not only those of this request: an
//! upstream may keep what one request brought and show it to the next.
//!
//! A body is searched while it streams. Bytes that could be the beginning of a secret are held back until the rest is
//! there, which is less than twice the longest secret; all others pass at once and without a copy.
//!
//! Limits of the promise: values of less than 8 bytes are not masked, because that would destroy ordinary text, and a
//! secret that the upstream repeats in another form (base64, escaped, reversed) is not recognised.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, BuildError, MatchKind};
use bytes::{Bytes, BytesMut};

/// Shorter values are not masked; the redactor of the logs has the same bound.
const SHORTEST: usize = 8;
const MASK: u8 = b'*';

/// The secrets to mask. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Mask(Option<Arc<Search>>);

struct Search {
    /// Finds all values in one pass; where several start at the same place, the longest.
    automaton: AhoCorasick,
    /// The values, for the search of their beginnings.
    values: Vec<Box<[u8]>>,
}

/// A body on its way to a guest.
pub(crate) struct MaskedBody {
    mask: Mask,
    /// The end of what has arrived, if it may be the beginning of a secret.
    held: Bytes,
}

// === impl Mask ===

impl Mask {
    /// Fails only if the values are too many or too large for one search, far above what fits into headers.
    pub(crate) fn new<'v>(values: impl Iterator<Item = &'v str>) -> Result<Self, BuildError> {
        let values: Vec<Box<[u8]>> =
            values.filter(|value| value.len() >= SHORTEST).map(|value| value.as_bytes().into()).collect();
        if values.is_empty() {
            return Ok(Self::default());
        }
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&values)?;
        Ok(Self(Some(Arc::new(Search { automaton, values }))))
    }

    /// Returns the data without secrets; the same data if it has none.
    pub(crate) fn apply(&self, data: Bytes) -> Bytes {
        match &self.0 {
            Some(search) => {
                let found = search.find(&data);
                masked(data, found)
            }
            None => data,
        }
    }
}

/// Shows only whether there is anything to mask.
impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask({})", self.0.as_ref().map_or(0, |search| search.values.len()))
    }
}

// === impl Search ===

impl Search {
    /// The places of all secrets, from left to right, without overlaps.
    fn find(&self, data: &[u8]) -> Vec<Range<usize>> {
        self.automaton.find_iter(data).map(|found| found.range()).collect()
    }

    /// The number of bytes at the end of the data that could be the beginning of a secret.
    fn begun(&self, data: &[u8]) -> usize {
        let begun = |value: &[u8]| {
            (1..value.len())
                .rev()
                .find(|length| value.get(..*length).is_some_and(|start| data.ends_with(start)))
        };
        self.values.iter().filter_map(|value| begun(value)).max().unwrap_or(0)
    }
}

fn masked(data: Bytes, found: Vec<Range<usize>>) -> Bytes {
    if found.is_empty() {
        return data;
    }
    let mut data = BytesMut::from(data);
    for range in found {
        if let Some(secret) = data.get_mut(range) {
            secret.fill(MASK);
        }
    }
    data.freeze()
}

// === impl MaskedBody ===

impl MaskedBody {
    pub(crate) fn new(mask: Mask) -> Self {
        Self { mask, held: Bytes::new() }
    }

    /// Takes the next chunk and returns what may be read so far, perhaps nothing yet.
    pub(crate) fn push(&mut self, data: Bytes) -> Bytes {
        let Some(search) = &self.mask.0 else { return data };
        let held = std::mem::take(&mut self.held);
        let mut data = if held.is_empty() { data } else { Bytes::from([held, data].concat()) };
        let mut found = search.find(&data);
        let mut cut = data.len() - search.begun(&data);
        // A secret that ends beyond the cut is held back as a whole.
        while let Some(across) = found.pop_if(|last| last.end > cut) {
            cut = cut.min(across.start);
        }
        self.held = data.split_off(cut);
        masked(data, found)
    }

    /// Returns what was held back, now that the body has ended.
    pub(crate) fn finish(&mut self) -> Bytes {
        self.mask.apply(std::mem::take(&mut self.held))
    }
}

/// Leaves out what is held back, which may be most of a secret.
impl fmt::Debug for MaskedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mask.fmt(f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails should say where")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask(values: &[&str]) -> Mask {
        Mask::new(values.iter().copied()).unwrap()
    }

    fn in_chunks<'p>(mask: &Mask, chunks: impl IntoIterator<Item = &'p [u8]>) -> Vec<u8> {
        let longest = mask.0.iter().flat_map(|search| &search.values).map(|value| value.len()).max();
        let mut body = MaskedBody::new(mask.clone());
        let mut read = Vec::new();
        for chunk in chunks {
            read.extend(body.push(Bytes::copy_from_slice(chunk)));
            assert!(
                body.held.len() < (2 * longest.unwrap_or(0)).max(1),
                "{} bytes held back",
                body.held.len()
            );
        }
        read.extend(body.finish());
        read
    }

    #[test]
    fn a_secret_is_masked_wherever_the_chunks_end() {
        let mask = mask(&["s3cr3t-value", "short", "s3cr3t-value-2"]);
        let body = b"a s3cr3t-value, s3cr3t-value-2, short, s3cr3t-valu";
        let expected = b"a ************, **************, short, s3cr3t-valu";
        for size in 1..=body.len() {
            let read = in_chunks(&mask, body.chunks(size));
            assert_eq!(read, expected, "in chunks of {size}: {}", String::from_utf8_lossy(&read));
        }
    }

    #[test]
    fn data_that_cannot_be_a_secret_passes_at_once_and_uncopied() {
        let mut body = MaskedBody::new(mask(&["s3cr3t-value"]));
        let data = Bytes::from("data: {}\n\n");
        let passed = body.push(data.clone());
        assert_eq!((passed.as_ptr(), passed.len()), (data.as_ptr(), data.len()));
        assert!(body.finish().is_empty());
    }

    #[test]
    fn where_several_secrets_start_the_longest_is_masked() {
        let mask = mask(&["aaaabbbb", "aaaabbbbcccc", "bbbbccccdddd"]);
        let read = mask.apply(Bytes::from_static(b"x aaaabbbbccccdddd aaaabbbbx"));
        assert_eq!(read, "x ************dddd ********x");
    }

    proptest! {
        #[test]
        fn chunks_read_as_the_whole(
            values in prop::collection::vec("[ab]{8,12}", 1..3),
            body in "[abc]{0,80}",
            size in 1..20_usize,
        ) {
            let mask = Mask::new(values.iter().map(String::as_str)).unwrap();
            let whole = mask.apply(Bytes::from(body.clone()));
            let read = in_chunks(&mask, body.as_bytes().chunks(size));
            prop_assert_eq!(String::from_utf8(read).unwrap(), String::from_utf8(whole.to_vec()).unwrap());
        }
    }
}
