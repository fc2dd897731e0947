//! The chunks of a streamed chat completion.

use serde_json::Value;
use talaria_guest::http;

/// The data of the event after the last chunk.
pub(crate) const DONE: &str = "[DONE]";

/// The next item of a stream.
pub enum Chunk {
    /// A chunk, and the name of its event, which is `message` unless the upstream names it.
    Data {
        /// The event's name.
        event: String,
        /// The event's data.
        data: Value,
    },
    /// `[DONE]`: the upstream has no more chunks.
    Done,
    /// The stream ended without `[DONE]`.
    End,
}

/// Waits for the next chunk and skips events that are not JSON.
///
/// # Errors
/// The host's [`http::Error`].
pub fn next_chunk(exchange: &http::Exchange) -> Result<Chunk, http::Error> {
    while let Some(event) = exchange.next_event()? {
        if let Some(chunk) = parse(event) {
            return Ok(chunk);
        }
    }
    Ok(Chunk::End)
}

fn parse(event: http::SseEvent) -> Option<Chunk> {
    if event.data == DONE {
        return Some(Chunk::Done);
    }
    let data = serde_json::from_str(&event.data).ok()?;
    Some(Chunk::Data { event: event.event, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_chunks_the_end_or_nothing() {
        for (data, expected) in [
            ("[DONE]", "done"),
            (r#"{"choices":[]}"#, r#"message {"choices":[]}"#),
            ("7", "message 7"),
            (" [DONE]", "skipped"),
            ("<html>", "skipped"),
            ("", "skipped"),
        ] {
            let event = http::SseEvent { event: "message".into(), data: data.into(), id: None };
            let parsed = match parse(event) {
                Some(Chunk::Data { event, data }) => format!("{event} {data}"),
                Some(Chunk::Done) => "done".into(),
                Some(Chunk::End) => "end".into(),
                None => "skipped".into(),
            };
            assert_eq!(parsed, expected, "{data}");
        }
    }
}
