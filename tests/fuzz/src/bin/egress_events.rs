//! Server-sent events. The first line says how the rest is cut into pieces.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use talaria_egress::fuzz::events;
use talaria_egress::{ErrorKind, SseEvent};
use talaria_fuzz::{cuts, first_line};

/// A bound that no input reaches, and one that many exceed.
const BOUNDS: [usize; 2] = [1 << 20, 24];

fuzz_target!(|data: &[u8]| {
    let (sizes, body) = first_line(data);
    let body = Bytes::copy_from_slice(body);
    let (expected, valid) = by_the_standard(&body);
    for most in BOUNDS {
        let (whole, end) = events(vec![body.clone()], most);
        for sizes in [sizes, b"A"] {
            let cuts = cuts(sizes, body.len());
            let pieces = cuts.windows(2).map(|pair| body.slice(pair[0]..pair[1])).collect();
            let (cut, cut_end) = events(pieces, most);
            assert_eq!(cut, whole, "the pieces give what the whole gives");
            assert_eq!(cut_end.is_ok(), end.is_ok());
        }
        for event in &whole {
            let id = event.id.as_deref().unwrap_or_default();
            assert!(event.data.len() + id.len() <= most, "{} bytes are over the bound", event.data.len());
        }
        match end.as_ref().map_err(|error| error.kind()) {
            Ok(()) => assert!(valid && whole == expected, "nothing is lost"),
            Err(ErrorKind::TooLarge) => {
                assert!(most == BOUNDS[1], "too large for {most} bytes");
                assert!(expected.starts_with(&whole));
            }
            Err(ErrorKind::Protocol) => assert!(!valid && expected.starts_with(&whole)),
            Err(kind) => panic!("{kind:?} is no end of a stream"),
        }
        if most == BOUNDS[0] {
            assert_eq!((whole, end.is_ok()), (expected.clone(), valid));
        }
    }
});

/// Parses a body by the standard, in the plainest way, up to the first value that is not UTF-8. Returns the events and
/// whether every value was UTF-8.
fn by_the_standard(body: &[u8]) -> (Vec<SseEvent>, bool) {
    let (mut events, mut name, mut id, mut data) = (Vec::new(), None, None, None::<String>);
    let mut rest = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        let line = &rest[..end];
        rest = &rest[end..];
        rest = rest.strip_prefix(b"\r\n").unwrap_or(&rest[1..]);
        if line.is_empty() {
            let (name, id) = (name.take(), id.take());
            if let Some(data) = data.take() {
                let event = name.filter(|name: &String| !name.is_empty()).unwrap_or_else(|| "message".into());
                events.push(SseEvent { event, data, id });
            }
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let field = &line[..colon];
        if !matches!(field, b"data" | b"event" | b"id" | b"retry") || (field == b"id" && value.contains(&0)) {
            continue;
        }
        let Ok(value) = std::str::from_utf8(value) else { return (events, false) };
        match field {
            b"data" => {
                data = Some(data.map_or_else(|| value.to_owned(), |data| format!("{data}\n{value}")));
            }
            b"event" => name = Some(value.to_owned()),
            b"id" => id = Some(value.to_owned()),
            _ => {}
        }
    }
    (events, true)
}
