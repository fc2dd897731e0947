//! What the executors that ship share: whom they ask for, how they read an answer, and what a caller reads when there
//! is none.
//!
//! Everything that an upstream sends is read up to a bound and taken as text until it proves to be more: gateways answer
//! with JSON, with plain text and with web pages, whatever was asked for.

mod beside;
mod chunks;
mod ending;
pub mod hermes_agent;
pub mod history;
pub mod moment;
mod prompt;

use serde_json::Value;
use talaria_guest::{Request, Usage, config, events, http};

pub use beside::{Beside, reads_data};
pub use chunks::{Chunk, next_chunk};
pub use ending::Ending;
pub use prompt::{Prompt, input_modes};

/// How long an upstream may take to answer a turn, as the Python bridge had it.
pub const TURN_TIMEOUT_MS: u32 = 600_000;
/// How long it may take to answer the probe.
pub const PROBE_TIMEOUT_MS: u32 = 5_000;
/// How much of an upstream's error a caller gets to read, in characters.
pub const ERROR_CHARS: usize = 500;
/// How much of an error's body is read: what is shown of it, in the longest characters, and a key that begins there.
pub const ERROR_BYTES: usize = ERROR_CHARS * 4 + 4_096;
/// The largest body of an upstream that was asked to stream and answered in one piece.
pub const WHOLE_BODY: usize = 8 << 20;

/// The executor's own setting, or the workspace's; an empty text is none.
#[must_use]
pub fn first<'a>(own: &'a str, workspace: Option<&'a String>) -> Option<&'a str> {
    [Some(own), workspace.map(String::as_str)].into_iter().flatten().find(|text| !text.is_empty())
}

/// The base URL without slashes at its end.
#[must_use]
pub fn base(url: &str) -> &str {
    url.trim_end_matches('/')
}

/// Adds the bearer token of that name, where it is set.
pub fn bearer(request: Request, secret: &str) -> Request {
    if config::has_secret(secret) {
        request.header("authorization", format!("Bearer {{secret:{secret}}}"))
    } else {
        request
    }
}

/// A mark by which equal bytes are known again: FNV-1a, which is enough where nobody gains by a clash.
#[must_use]
pub fn mark(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |mark, byte| (mark ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Whether a status says that all is well.
#[must_use]
pub fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// Whether an answer is a stream of events.
#[must_use]
pub fn is_event_stream(exchange: &http::Exchange) -> bool {
    exchange.headers().iter().any(|(name, value)| {
        name == "content-type" && value.to_ascii_lowercase().starts_with("text/event-stream")
    })
}

/// The body, up to a bound; the rest is left.
///
/// # Errors
/// The host's.
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

/// The beginning of an upstream's text: scrubbed first, since half a key looks like none.
#[must_use]
pub fn excerpt(text: &str) -> String {
    cut(text, ERROR_CHARS)
}

/// The first characters of a text, scrubbed before the cut.
#[must_use]
pub fn cut(text: &str, chars: usize) -> String {
    events::scrub(text).chars().take(chars).collect()
}

/// Usage, where an answer has both numbers.
#[must_use]
pub fn usage(data: &Value, input: &str, output: &str) -> Option<Usage> {
    let tokens = |path: &str| {
        let tokens = at(data, path).and_then(Value::as_u64)?;
        Some(u32::try_from(tokens).unwrap_or(u32::MAX))
    };
    Some(Usage { input_tokens: tokens(input)?, output_tokens: tokens(output)? })
}

/// A text in an answer.
#[must_use]
pub fn text(data: &Value, path: &str) -> Option<String> {
    at(data, path).and_then(Value::as_str).map(str::to_owned)
}

/// What an answer has at a path of names and places, as `/choices/0/delta`. A JSON pointer without its escapes: looking
/// for those took most of the time that an answer was read for.
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
