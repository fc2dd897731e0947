//! Tool calls that a model answers with.

use serde::Serialize;
use serde_json::Value;
use talaria_guest::events;
use talaria_upstream::{at, text};

/// The most calls of one answer; models make a handful. Further ones are dropped.
const MOST: usize = 128;

/// What stands for a text with a secret in it.
const REDACTED: &str = "[REDACTED]";

/// One call, in the shape in which the Python executor handed it on.
#[derive(Serialize)]
struct Call {
    id: String,
    r#type: String,
    function: Function,
    #[serde(skip)]
    index: Option<u64>,
}

#[derive(Serialize)]
struct Function {
    name: String,
    /// A JSON text, as models write it.
    arguments: String,
}

/// The calls so far.
#[derive(Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Calls(Vec<Call>);

impl Calls {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the calls of a message, or the pieces of calls in a delta: a piece belongs to the call of its index, or,
    /// without one, to the call before it unless it brings an id.
    pub(crate) fn take(&mut self, message: &Value, streamed: bool) {
        for piece in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            if !piece.is_object() {
                continue;
            }
            let index = piece.get("index").and_then(Value::as_u64);
            let id = text(piece, "/id").filter(|id| !id.is_empty());
            let known = match (streamed, index, &id) {
                (true, Some(index), _) => self.0.iter().position(|call| call.index == Some(index)),
                (true, None, None) => self.0.len().checked_sub(1),
                _ => None,
            };
            let place = known.unwrap_or(self.0.len());
            if place >= MOST {
                continue;
            }
            if known.is_none() {
                self.0.push(Call {
                    id: String::new(),
                    r#type: "function".into(),
                    function: Function { name: String::new(), arguments: String::new() },
                    index,
                });
            }
            let Some(call) = self.0.get_mut(place) else { continue };
            call.id = id.unwrap_or(core::mem::take(&mut call.id));
            if let Some(kind) = text(piece, "/type").filter(|kind| !kind.is_empty()) {
                call.r#type = kind;
            }
            call.function.name.push_str(&text(piece, "/function/name").unwrap_or_default());
            match at(piece, "/function/arguments") {
                Some(Value::String(more)) => call.function.arguments.push_str(more),
                // Some servers hand the arguments over parsed.
                Some(Value::Null) | None => {}
                Some(parsed) => call.function.arguments.push_str(&parsed.to_string()),
            }
        }
    }

    /// The calls as JSON. Secrets are scrubbed one text at a time, so that what is left is JSON still, the arguments
    /// included.
    pub(crate) fn json(mut self) -> Result<String, serde_json::Error> {
        for call in &mut self.0 {
            let Function { name, arguments } = &mut call.function;
            for text in [&mut call.id, &mut call.r#type, name] {
                if events::scrub(text) != *text {
                    *text = REDACTED.into();
                }
            }
            if arguments.is_empty() {
                arguments.push_str("{}");
            }
            if events::scrub(arguments) != *arguments {
                *arguments = match serde_json::from_str(arguments) {
                    Ok(mut parsed) => {
                        scrub(&mut parsed);
                        parsed.to_string()
                    }
                    Err(_) => REDACTED.into(),
                };
            }
        }
        serde_json::to_string(&self)
    }
}

fn scrub(value: &mut Value) {
    match value {
        // As a whole: what the host would find in a text that is half scrubbed may reach over its quotes.
        Value::String(text) if events::scrub(text) != *text => *text = REDACTED.into(),
        Value::Array(items) => items.iter_mut().for_each(scrub),
        Value::Object(fields) => fields.values_mut().for_each(scrub),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
