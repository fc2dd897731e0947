//! What a turn asks the model: the messages so far, the tools, and what was called since.

use serde::Serialize;
use serde::ser::{SerializeSeq as _, Serializer};
use serde_json::value::RawValue;
use talaria_guest::Failure;
use talaria_upstream::{Prompt, history};

use crate::tool_loop::ToolLoop;

/// The names of models that think if they are told to.
const THINKING_MODELS: [&str; 2] = ["hermes-4", "hermes4"];

/// The body of a request.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Messages<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    /// Absent rather than empty, because some endpoints reject an empty list.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tools: &'a [Box<RawValue>],
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
}

/// The messages of a request: those up to the caller's, and what tools were called since.
struct Messages<'a>(&'a Conversation<'a>, &'a [Box<RawValue>]);

/// What a turn asks the model, whatever follows from the answers.
pub(crate) struct Conversation<'a> {
    pub(crate) model: &'a str,
    pub(crate) system: Option<&'a str>,
    pub(crate) past: Vec<history::Said>,
    pub(crate) prompt: &'a Prompt<'a>,
    pub(crate) tools: Vec<Box<RawValue>>,
    pub(crate) stream: bool,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Prompt(&'a Prompt<'a>),
}

#[derive(Serialize)]
struct Reasoning {
    enabled: bool,
}

impl Conversation<'_> {
    /// The body of a request, with what tools were called so far.
    pub(crate) fn body(&self, tool_loop: Option<&ToolLoop>) -> Result<Vec<u8>, Failure> {
        let since = tool_loop.map_or(&[][..], |tool_loop| &tool_loop.messages);
        self.prompt.body(&Body {
            model: self.model,
            messages: Messages(self, since),
            reasoning: thinks(self.model).then_some(Reasoning { enabled: true }),
            tools: &self.tools,
            tool_choice: tool_loop.is_some_and(ToolLoop::is_over).then_some("none"),
            stream: self.stream,
        })
    }
}

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(Conversation { system, past, prompt, .. }, since) = self;
        let mut messages = serializer.serialize_seq(None)?;
        if let Some(text) = system {
            messages.serialize_element(&Message { role: "system", content: Content::Text(text) })?;
        }
        for history::Said { role, content } in past {
            messages.serialize_element(&Message { role, content: Content::Text(content) })?;
        }
        messages.serialize_element(&Message { role: "user", content: Content::Prompt(prompt) })?;
        for message in *since {
            messages.serialize_element(message)?;
        }
        messages.end()
    }
}

/// Whether the model thinks if it is told to.
fn thinks(model: &str) -> bool {
    let model = model.to_lowercase();
    THINKING_MODELS.iter().any(|name| model.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hermes_4_is_told_to_think() {
        for (model, expected) in [
            ("nousresearch/hermes-4-70b", true),
            ("Hermes4", true),
            ("nousresearch/hermes-3-llama-3.1-405b", false),
            ("gpt-4", false),
        ] {
            assert_eq!(thinks(model), expected, "{model}");
        }
    }
}
