//! What the built-in executors share: requests to an upstream, reading its answers, and the texts that a caller reads
//! when there is no answer.
//!
//! Everything that an upstream sends is read up to a bound, and treated as text until it parses as more: gateways
//! answer with JSON, with plain text and with web pages, whatever was asked for.

mod beside;
mod chunks;
mod completion;
mod ending;
pub mod hermes_agent;
pub mod history;
mod prompt;
pub mod timestamp;

use serde_json::Value;
use talaria_guest::{Request, Usage, config, control, events, http, log};

pub use beside::{Beside, reads_data};
pub(crate) use chunks::DONE;
pub use chunks::{Chunk, next_chunk};
pub use ending::Ending;
pub use prompt::{Prompt, input_modes};

/// How long an upstream may take to answer a turn; the Python bridge allowed as much.
const TURN_TIMEOUT_MS: u32 = 600_000;
/// The part of a turn's time that is left for the failure of a call to become the turn's answer: two seconds, or a tenth
/// of a short turn.
const MARGIN_MS: u32 = 2_000;
/// How long it may take to answer the probe.
pub const PROBE_TIMEOUT_MS: u32 = 5_000;
/// The characters of an upstream's error that a caller reads.
pub const ERROR_CHARS: usize = 500;
/// The bytes of an error's body that are read: the characters that are shown, at their longest, and a key that begins
/// among them.
pub const ERROR_BYTES: usize = ERROR_CHARS * 4 + 4_096;
/// The largest body of an upstream that was asked for a stream but answered in one piece.
pub const WHOLE_BODY: usize = 8 << 20;

/// The executor's own setting, or the workspace's. An empty text counts as unset.
#[must_use]
pub fn first<'a>(own: &'a str, workspace: Option<&'a String>) -> Option<&'a str> {
    [Some(own), workspace.map(String::as_str)].into_iter().flatten().find(|text| !text.is_empty())
}

/// The base URL without slashes at its end.
#[must_use]
pub fn base(url: &str) -> &str {
    url.trim_end_matches('/')
}

/// How long a call may take that answers the turn. It ends before the host ends the turn, so that the caller reads the
/// text of the Python bridge for it and not the host's.
#[must_use]
pub fn turn_timeout_ms() -> u32 {
    let left = control::remaining_ms();
    (left - MARGIN_MS.min(left / 10)).min(TURN_TIMEOUT_MS)
}

/// Adds the secret as a bearer token, if it is set.
pub fn bearer(request: Request, secret: &str) -> Request {
    if config::has_secret(secret) {
        request.header("authorization", format!("Bearer {{secret:{secret}}}"))
    } else {
        request
    }
}

/// A hash that recognises equal bytes: FNV-1a, which suffices because nobody gains by a collision.
#[must_use]
pub fn mark(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |mark, byte| (mark ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Whether a status is 2xx.
#[must_use]
pub fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// Whether a response is a stream of server-sent events.
#[must_use]
pub fn is_event_stream(exchange: &http::Exchange) -> bool {
    exchange.headers().iter().any(|(name, value)| {
        name == "content-type" && value.to_ascii_lowercase().starts_with("text/event-stream")
    })
}

/// Reads the body up to a bound and leaves the rest.
///
/// # Errors
/// The host's [`http::Error`].
pub fn read(exchange: &http::Exchange, bound: usize) -> Result<Vec<u8>, http::Error> {
    let mut body = Vec::new();
    while body.len() < bound {
        let room = u32::try_from(bound - body.len()).unwrap_or(u32::MAX);
        match exchange.read(room)? {
            Some(bytes) => body.extend_from_slice(&bytes),
            None => break,
        }
    }
    Ok(body)
}

/// The beginning of an upstream's text. It is scrubbed before it is cut, since half a key is not recognised.
#[must_use]
pub fn excerpt(text: &str) -> String {
    cut(text, ERROR_CHARS)
}

/// The first characters of a text, which is scrubbed before it is cut.
#[must_use]
pub fn cut(text: &str, chars: usize) -> String {
    scrub(text).chars().take(chars).collect()
}

/// The text without what looks like a secret. Native tests have no host, so there it is the text itself.
fn scrub(text: &str) -> String {
    if cfg!(target_arch = "wasm32") { events::scrub(text) } else { text.to_owned() }
}

/// Logs a warning for the operator; native tests have no log.
pub fn warn(line: &str) {
    if cfg!(target_arch = "wasm32") {
        log::write(log::Level::Warn, line, None);
    }
}

/// The usage, if the answer has both numbers.
#[must_use]
pub fn usage(data: &Value, input: &str, output: &str) -> Option<Usage> {
    let tokens = |path: &str| {
        let tokens = at(data, path).and_then(Value::as_u64)?;
        Some(u32::try_from(tokens).unwrap_or(u32::MAX))
    };
    Some(Usage { input_tokens: tokens(input)?, output_tokens: tokens(output)? })
}

/// The text at a path, see [`at`].
#[must_use]
pub fn text(data: &Value, path: &str) -> Option<String> {
    at(data, path).and_then(Value::as_str).map(str::to_owned)
}

/// The value at a path of names and indices, such as `/choices/0/delta`. This is a JSON pointer without escapes:
/// looking for escapes took most of the time in which an answer was read.
#[must_use]
pub fn at<'a>(data: &'a Value, path: &str) -> Option<&'a Value> {
    let mut found = data;
    let mut rest = path;
    while let Some(path) = rest.strip_prefix('/') {
        let end = path.bytes().position(|byte| byte == b'/').unwrap_or(path.len());
        let name = path.get(..end)?;
        found = match found {
            Value::Object(fields) => fields.get(name)?,
            Value::Array(items) => items.get(name.parse::<usize>().ok()?)?,
            _ => return None,
        };
        rest = path.get(end..)?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_leads_to_a_value_or_to_none() {
        let data = json!({ "choices": [{ "delta": { "content": "hi" } }], "a/b": 1, "": 2 });
        for (path, expected) in [
            ("", Some(data.clone())),
            ("/choices/0/delta/content", Some(json!("hi"))),
            ("/choices/1", None),
            ("/choices/x", None),
            ("/choices/0/delta/content/0", None),
            ("/nothing", None),
            ("/", Some(json!(2))),
        ] {
            assert_eq!(at(&data, path), expected.as_ref(), "{path}");
        }
    }

    #[test]
    fn the_executors_own_setting_counts_before_the_workspaces() {
        let (workspace, empty) = ("w".to_owned(), String::new());
        for (own, workspace, expected) in [
            ("o", Some(&workspace), Some("o")),
            ("", Some(&workspace), Some("w")),
            ("", Some(&empty), None),
            ("", None, None),
        ] {
            assert_eq!(first(own, workspace), expected);
        }
    }

    #[test]
    fn usage_needs_both_numbers_and_does_not_overflow() {
        let read =
            |data: Value| usage(&data, "/in", "/out").map(|usage| (usage.input_tokens, usage.output_tokens));
        assert_eq!(read(json!({ "in": 1, "out": 2 })), Some((1, 2)));
        assert_eq!(read(json!({ "in": 1u64 << 40, "out": 2 })), Some((u32::MAX, 2)));
        assert_eq!(read(json!({ "in": 1 })), None);
        assert_eq!(read(json!({ "in": -1, "out": 2.5 })), None);
    }

    #[test]
    fn texts_are_cut_by_characters_and_urls_lose_their_slashes() {
        assert_eq!(cut("äöü", 2), "äö");
        assert_eq!(excerpt(&"ä".repeat(600)).chars().count(), ERROR_CHARS);
        assert_eq!(base("http://h/v1///"), "http://h/v1");
        assert_ne!(mark(b"a"), mark(b"b"));
    }
}
