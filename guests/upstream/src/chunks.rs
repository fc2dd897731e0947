//! The chunks of a streamed chat completion.

use serde_json::Value;
use talaria_guest::http;

/// What a stream holds next.
pub enum Chunk {
    /// A chunk, and the name of the event that carried it; `message` unless the upstream names it.
    Data {
        /// The event's name.
        event: String,
        /// What it carried.
        data: Value,
    },
    /// The line that says that there is nothing more.
    Done,
    /// The end of the stream.
    End,
}

/// Waits for the next chunk. What is no JSON is skipped.
///
/// # Errors
/// The host's.
pub fn next_chunk(exchange: &http::Exchange) -> Result<Chunk, http::Error> {
    while let Some(event) = exchange.next_event()? {
        if event.data == "[DONE]" {
            return Ok(Chunk::Done);
        }
        if let Ok(data) = serde_json::from_str(&event.data) {
            return Ok(Chunk::Data { event: event.event, data });
        }
    }
    Ok(Chunk::End)
}
