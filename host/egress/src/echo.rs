//! Secrets that come back: an upstream that repeats what it was sent tells a guest nothing.
//!
//! The guest names a secret and never sees it, but the upstream does, and many have a page or an error that repeats a
//! request's headers. So all of a response that a guest may read, headers and body, has each of the executor's secrets
//! blotted out: every byte becomes `*`, which keeps lengths true. All of the executor's, not only those of this request: an
//! upstream may keep what one request brought and show it to the next.
//!
//! A body is searched as it streams. What could be the beginning of a secret is held back until the rest is there, which is less
//! than twice the longest secret; everything else passes on at once, without a copy.
//!
//! Bounds of the promise: values under 8 bytes are left, since they would shred ordinary text; and an upstream that
//! repeats a secret in another form (base64, escaped, backwards) has told it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;

/// Values shorter than this are left alone, as the redactor leaves them.
const SHORTEST: usize = 8;
const BLOT: u8 = b'*';

/// The values to look for, the longest first. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<[Finder<'static>]>);

/// A body on its way to a guest.
pub(crate) struct Echoes {
    known: Known,
    /// The end of what came, where it may be the beginning of a secret.
    held: Bytes,
}

// === impl Known ===

impl Known {
    pub(crate) fn new<'v>(values: impl Iterator<Item = &'v str>) -> Self {
        let mut known: Vec<_> = values
            .filter(|value| value.len() >= SHORTEST)
            .map(|value| Finder::new(value).into_owned())
            .collect();
        known.sort_by_key(|finder| std::cmp::Reverse(finder.needle().len()));
        Self(known.into())
    }

    /// The data without secrets; the same where there were none.
    pub(crate) fn blot(&self, data: Bytes) -> Bytes {
        let found = self.find(&data);
        blot(data, &found)
    }

    /// Where they stand, from the left, the longest where several start.
    fn find(&self, data: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(rest) = data.get(from..) {
            let all = self.0.iter().filter_map(|finder| Some((finder.find(rest)?, finder.needle().len())));
            // `min_by_key` keeps the first of equals, which is the longest.
            let Some((at, length)) = all.min_by_key(|(at, _)| *at) else { break };
            found.push(from + at..from + at + length);
            from += at + length;
        }
        found
    }

    /// How many bytes at the end of the data could be the beginning of a secret.
    fn begun(&self, data: &[u8]) -> usize {
        let begins = |needle: &[u8]| {
            (1..needle.len())
                .rev()
                .find(|length| needle.get(..*length).is_some_and(|start| data.ends_with(start)))
        };
        self.0.iter().filter_map(|finder| begins(finder.needle())).max().unwrap_or(0)
    }
}

/// How many, and no more.
impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Known({})", self.0.len())
    }
}

fn blot(data: Bytes, found: &[Range<usize>]) -> Bytes {
    if found.is_empty() {
        return data;
    }
    let mut data = BytesMut::from(data);
    for range in found {
        if let Some(secret) = data.get_mut(range.clone()) {
            secret.fill(BLOT);
        }
    }
    data.freeze()
}

// === impl Echoes ===

impl Echoes {
    pub(crate) fn new(known: Known) -> Self {
        Self { known, held: Bytes::new() }
    }

    /// What may be read of what came so far; perhaps nothing yet.
    pub(crate) fn pass(&mut self, data: Bytes) -> Bytes {
        if self.known.0.is_empty() {
            return data;
        }
        let held = std::mem::take(&mut self.held);
        let mut data = if held.is_empty() { data } else { Bytes::from([held, data].concat()) };
        let mut found = self.known.find(&data);
        let mut cut = data.len() - self.known.begun(&data);
        // A secret that ends beyond the cut waits whole.
        while let Some(across) = found.pop_if(|last| last.end > cut) {
            cut = cut.min(across.start);
        }
        self.held = data.split_off(cut);
        blot(data, &found)
    }

    /// What was held back, now that nothing more comes.
    pub(crate) fn end(&mut self) -> Bytes {
        self.known.blot(std::mem::take(&mut self.held))
    }
}

/// What is held back may be most of a secret.
impl fmt::Debug for Echoes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.known.fmt(f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails should say where")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known(values: &[&str]) -> Known {
        Known::new(values.iter().copied())
    }

    fn in_pieces<'p>(known: &Known, pieces: impl IntoIterator<Item = &'p [u8]>) -> Vec<u8> {
        let mut echoes = Echoes::new(known.clone());
        let mut read = Vec::new();
        for piece in pieces {
            read.extend(echoes.pass(Bytes::copy_from_slice(piece)));
            let longest = known.0.first().map_or(0, |finder| finder.needle().len());
            assert!(echoes.held.len() < (2 * longest).max(1), "{} bytes held back", echoes.held.len());
        }
        read.extend(echoes.end());
        read
    }

    #[test]
    fn a_secret_is_blotted_out_however_it_is_cut() {
        let known = known(&["s3cr3t-value", "short", "s3cr3t-value-2"]);
        let body = b"a s3cr3t-value, s3cr3t-value-2, short, s3cr3t-valu";
        let expected = b"a ************, **************, short, s3cr3t-valu";
        for size in 1..=body.len() {
            let read = in_pieces(&known, body.chunks(size));
            assert_eq!(read, expected, "in pieces of {size}: {}", String::from_utf8_lossy(&read));
        }
    }

    #[test]
    fn what_cannot_be_a_secret_passes_at_once_and_uncopied() {
        let mut echoes = Echoes::new(known(&["s3cr3t-value"]));
        let data = Bytes::from("data: {}\n\n");
        let passed = echoes.pass(data.clone());
        assert_eq!((passed.as_ptr(), passed.len()), (data.as_ptr(), data.len()));
        assert!(echoes.end().is_empty());
    }

    proptest! {
        #[test]
        fn pieces_read_as_the_whole(
            values in prop::collection::vec("[ab]{8,12}", 1..3),
            body in "[abc]{0,80}",
            size in 1..20_usize,
        ) {
            let known = Known::new(values.iter().map(String::as_str));
            let whole = known.blot(Bytes::from(body.clone()));
            let read = in_pieces(&known, body.as_bytes().chunks(size));
            prop_assert_eq!(String::from_utf8(read).unwrap(), String::from_utf8(whole.to_vec()).unwrap());
        }
    }
}
