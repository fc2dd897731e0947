//! The tool calls of a model's answer.

use serde::Serialize;
use serde_json::Value;
use talaria_upstream::{at, text};

/// The number of calls of one answer at most; models make a handful. Further ones are dropped.
const MOST: usize = 128;

/// One call, in the shape of the Python executor.
#[derive(Serialize)]
pub(crate) struct Call {
    pub(crate) id: String,
    r#type: String,
    pub(crate) function: Function,
    #[serde(skip)]
    index: Option<u64>,
}

#[derive(Serialize)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// A JSON text, as models write it.
    arguments: String,
}

/// The calls so far.
#[derive(Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Calls(Vec<Call>);

impl Call {
    /// The arguments, as the model wrote them; none count as an empty object.
    pub(crate) fn arguments(&self) -> &str {
        match self.function.arguments.trim() {
            "" => "{}",
            arguments => arguments,
        }
    }

    #[cfg(test)]
    pub(crate) fn new(id: &str, name: &str, arguments: &str) -> Self {
        let function = Function { name: name.into(), arguments: arguments.into() };
        Self { id: id.into(), r#type: "function".into(), function, index: None }
    }
}

impl Calls {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn list(&self) -> &[Call] {
        &self.0
    }

    /// Takes the calls of a message, or the pieces of calls in a delta. A piece belongs to the call of its index;
    /// without an index it belongs to the call before it, unless it has an id of its own.
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
                // Some servers send the arguments parsed.
                Some(Value::Null) | None => {}
                Some(parsed) => call.function.arguments.push_str(&parsed.to_string()),
            }
        }
    }

    /// The calls as JSON. Arguments are left as the model wrote them, since a tool will act on them.
    pub(crate) fn json(mut self) -> Result<String, serde_json::Error> {
        for call in &mut self.0 {
            if call.function.arguments.is_empty() {
                call.function.arguments.push_str("{}");
            }
        }
        serde_json::to_string(&self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gathered(messages: &[Value], streamed: bool) -> Value {
        let mut calls = Calls::default();
        for message in messages {
            calls.take(&json!({ "tool_calls": message }), streamed);
        }
        serde_json::from_str(&calls.json().unwrap()).unwrap()
    }

    fn call(id: &str, name: &str, arguments: &str) -> Value {
        json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    }

    #[test]
    fn pieces_of_calls_are_put_together() {
        for (pieces, expected) in [
            (
                vec![
                    json!([{ "index": 0, "id": "a", "function": { "name": "ls", "arguments": "" } }]),
                    json!([{ "index": 1, "id": "b", "function": { "name": "cat", "arguments": "{}" } }]),
                    json!([{ "index": 0, "function": { "arguments": "{\"x\":1}" } }]),
                ],
                json!([call("a", "ls", r#"{"x":1}"#), call("b", "cat", "{}")]),
            ),
            // Without an index, a piece belongs to the call before it unless it brings an id.
            (
                vec![
                    json!([{ "id": "a", "function": { "name": "ls" } }]),
                    json!([{ "function": { "arguments": "{}" } }]),
                    json!([{ "id": "b", "function": { "name": "cat" } }]),
                ],
                json!([call("a", "ls", "{}"), call("b", "cat", "{}")]),
            ),
            (vec![json!([7, null]), json!({}), Value::Null], json!([])),
        ] {
            assert_eq!(gathered(&pieces, true), expected, "{pieces:?}");
        }
    }

    #[test]
    fn whole_calls_stay_apart_and_parsed_arguments_become_text() {
        let calls = json!([{ "function": { "name": "ls", "arguments": { "x": 1 } } }, { "function": { "name": "ls" } }]);
        assert_eq!(gathered(&[calls], false), json!([call("", "ls", r#"{"x":1}"#), call("", "ls", "{}")]));
    }

    #[test]
    fn the_number_of_calls_is_bounded() {
        let pieces: Vec<Value> = (0..MOST + 5).map(|n| json!([{ "id": n.to_string() }])).collect();
        assert_eq!(gathered(&pieces, true).as_array().map(Vec::len), Some(MOST));
    }
}
