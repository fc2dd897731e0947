//! Entry points for the fuzz targets in `tests/fuzz`, which alone are built with `--cfg fuzzing`.
//!
//! What a peer sends, on both sides, as the server and the client read it. The targets assert what must hold; nothing is
//! checked here.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use serde_json::Value;
use talaria_turns::ToolSpec;

use crate::client::{catalogue, connection, message, result, text};
use crate::rpc::{self, Answer};
use crate::{Output, Tool, Tools};

/// The most tools of a server.
pub const TOOLS: usize = catalogue::TOOLS;
/// The most pages of a list.
pub const PAGES: usize = catalogue::PAGES;
/// The longest name of a tool.
pub const NAME: usize = catalogue::NAME;
/// The longest description.
pub const DESCRIPTION: usize = catalogue::DESCRIPTION;
/// The longest schema.
pub const SCHEMA: usize = catalogue::SCHEMA;
/// The most bytes of all descriptions and schemas.
pub const ALL: usize = catalogue::ALL;
/// The deepest nesting of a document.
pub const DEPTH: usize = message::DEPTH;
/// The most values of a document.
pub const VALUES: usize = message::VALUES;
/// The longest result.
pub const RESULT: usize = result::RESULT;
/// The versions of the protocol.
pub const VERSIONS: [&str; 4] = rpc::VERSIONS;

/// The only tool of the server that is fuzzed: it repeats its arguments.
pub const TOOL: &str = "echo";

/// What the server answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// Nothing.
    Accepted,
    /// A response.
    Response(Value),
    /// The message is no request.
    Invalid(Value),
}

/// What the client makes of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// The response to the request of this number: a result, or the reason of an error.
    Response(u64, Result<Value, String>),
    /// A request, and what is answered.
    Request(Value),
    /// A notification.
    Notification(String),
}

struct Echo;

#[async_trait]
impl Tools for Echo {
    async fn list(&self) -> Vec<Tool> {
        vec![Tool { name: TOOL, description: String::new(), input_schema: Value::Null }]
    }

    async fn call(&self, name: &str, arguments: Value) -> Option<Output> {
        (name == TOOL).then(|| Output::text(arguments.to_string()))
    }
}

/// What the server answers to a body, and the memory that it sets aside for it.
#[must_use]
pub fn answer(version: Option<&str>, body: &[u8]) -> (Said, usize) {
    let answering = pin!(rpc::answer(&Echo, "it", version, body));
    // The tool is at hand, so this never waits.
    let said = match answering.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Answer::Response(value)) => Said::Response(value),
        Poll::Ready(Answer::Invalid(value)) => Said::Invalid(value),
        Poll::Ready(Answer::Accepted) | Poll::Pending => Said::Accepted,
    };
    (said, rpc::room(body))
}

/// What the client hears in a document.
///
/// # Errors
/// Why it cannot be read.
pub fn hear(document: &[u8]) -> Result<Vec<Heard>, &'static str> {
    let heard = |said| match said {
        message::Message::Response(id, answer) => {
            Heard::Response(id, answer.map_err(|refused| refused.reason))
        }
        message::Message::Request { id, method } => Heard::Request(connection::reply(&id, &method)),
        message::Message::Notification(method) => Heard::Notification(method),
    };
    Ok(message::read(document)?.into_iter().map(heard).collect())
}

/// The text of a result, and whether it is marked as an error.
#[must_use]
pub fn result(result: &Value) -> Option<(String, bool)> {
    result::CallResult::read(result).map(|read| (read.text, read.is_error))
}

/// The tools in a list of which every page is this one, with their names on the server, and the number of pages.
#[must_use]
pub fn tools(server: &str, page: &Value) -> (Vec<(ToolSpec, String)>, usize) {
    let (mut reader, mut pages) = (catalogue::Reader::new(server, None), 1);
    while let Ok(Some(_)) = reader.page(page) {
        pages += 1;
    }
    (reader.finish().tools.into_iter().map(|tool| (tool.spec, tool.remote)).collect(), pages)
}

/// Whether a reader does not see a character.
#[must_use]
pub fn is_hidden(char: char) -> bool {
    text::is_hidden(char)
}
