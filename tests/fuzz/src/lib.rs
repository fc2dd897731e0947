//! Shared by the targets: how to parse an input.
//!
//! Inputs are text that a person can read and write, so that a corpus file is an example from the wire and a finding
//! explains itself: a request has lines of headers, an empty line and a body; a stream begins with a line that says where
//! it is cut. The targets are in `src/bin`, one per file, named after the crate whose promises they check.
#![forbid(unsafe_code)]

pub mod wire;

use http::{HeaderMap, HeaderName, HeaderValue};

/// Splits an input at its first empty line into head and body; without one, all of it is head.
pub fn head_and_body(data: &[u8]) -> (&[u8], &[u8]) {
    match data.windows(2).position(|pair| pair == b"\n\n") {
        Some(at) => (&data[..at], &data[at + 2..]),
        None => (data, b""),
    }
}

/// Splits an input after its first line.
pub fn first_line(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, b""),
    }
}

/// Parses lines of `Name: value`; invalid headers are skipped.
pub fn headers(lines: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let value = line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..]);
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    headers
}

/// Returns where to cut an input of this length: the bytes of `sizes` are, in turn, the lengths of the pieces, from 1 to 32.
/// `A` is 1, `B` is 2.
pub fn cuts(sizes: &[u8], length: usize) -> Vec<usize> {
    let mut cuts = vec![0];
    let mut at = 0;
    for size in sizes.iter().cycle() {
        at += match size & 31 {
            0 => 32,
            size => usize::from(size),
        };
        if at >= length {
            break;
        }
        cuts.push(at);
    }
    cuts.push(length);
    cuts
}

/// Returns the pieces of a text, cut as [`cuts`] says but never inside a character.
pub fn pieces<'t>(sizes: &[u8], text: &'t str) -> Vec<&'t str> {
    let mut cuts = cuts(sizes, text.len());
    cuts.iter_mut().for_each(|cut| *cut = text.floor_char_boundary(*cut));
    cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}
