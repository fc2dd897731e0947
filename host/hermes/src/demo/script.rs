//! The demo gateway's answers: turns the body of a request into a response in the gateway's format. It uses no sockets, and
//! the clock only for the date of a response.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// The longest prompt, in characters. The real gateway silently truncates longer ones.
const LONGEST_PROMPT: usize = 65_536;
/// The number of characters of a prompt that the answer quotes.
const QUOTED: usize = 500;
/// The delay of the answer to a prompt that starts with `slow`.
const SLOW: Duration = Duration::from_secs(2);

const FAILURE: &str = "the demo gateway failed, because the prompt starts with `fail`";

/// A turn that a client requested.
pub(super) struct Turn {
    /// Whether to stream the answer.
    pub(super) stream: bool,
    /// The end of the turn.
    pub(super) ending: Ending,
    id: String,
    created: u64,
    model: String,
    prompt: String,
}

/// The end of a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The turn succeeds with this answer.
    Stopped(String),
    /// The turn fails with this error, in a response with status 200.
    Failed(&'static str),
}

// === impl Turn ===

impl Turn {
    /// Parses the body of a request; `None` if it has no message to answer.
    pub(super) fn read(body: &Value) -> Option<Self> {
        let messages = body.get("messages")?.as_array()?;
        let last =
            messages.iter().rev().find(|message| message.get("role").is_none_or(|role| role != "system"))?;
        let prompt: String = text(last.get("content")?).chars().take(LONGEST_PROMPT).collect();
        let stream =
            body.get("stream").is_some_and(|stream| *stream == json!(true) || *stream == json!("true"));
        let model = body.get("model").and_then(Value::as_str).unwrap_or("hermes-agent").to_owned();
        let id = format!("chatcmpl-{}", uuid::Uuid::new_v4().simple());
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let ending = ending(&prompt);
        Some(Self { stream, ending, id, created, model, prompt })
    }

    /// The delay before the answer.
    pub(super) fn pause(&self) -> Duration {
        if starts_with_word(&self.prompt, "slow") { SLOW } else { Duration::ZERO }
    }

    /// The id of the session that the real gateway would create.
    pub(super) fn session(&self) -> String {
        format!("api-{}", self.id.trim_start_matches("chatcmpl-").get(..16).unwrap_or_default())
    }

    /// The buffered answer.
    pub(super) fn completion(&self) -> Value {
        let (content, reason) = match &self.ending {
            Ending::Stopped(answer) => (answer.as_str(), "stop"),
            Ending::Failed(error) => (*error, "error"),
        };
        let mut completion = json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [{
                "index": 0,
                "message": { "role": "assistant", "content": content },
                "finish_reason": reason,
            }],
            "usage": self.usage(),
        });
        self.add_failure(&mut completion, false);
        completion
    }

    /// The streamed answer, as complete server-sent events.
    pub(super) fn events(&self) -> Vec<String> {
        let mut events = vec![data(&self.chunk(json!({ "role": "assistant" }), None))];
        let used_tool = self.prompt.to_lowercase().contains("tool");
        if used_tool {
            let id = "call_demo_1";
            let running = json!({ "tool": "demo", "emoji": "🪽", "label": "looking around", "toolCallId": id, "status": "running" });
            let completed = json!({ "tool": "demo", "toolCallId": id, "status": "completed" });
            events.extend(
                [running, completed]
                    .iter()
                    .map(|progress| format!("event: hermes.tool.progress\n{}", data(progress))),
            );
        }
        if let Ending::Stopped(answer) = &self.ending {
            for (index, word) in answer.split_inclusive(' ').enumerate() {
                // The real gateway inserts a blank line after a tool call, but only into the stream.
                let lead = if used_tool && index == 0 { "\n\n" } else { "" };
                events.push(data(&self.chunk(json!({ "content": format!("{lead}{word}") }), None)));
            }
        }
        let reason = if matches!(self.ending, Ending::Stopped(_)) { "stop" } else { "error" };
        let mut last = self.chunk(json!({}), Some(reason));
        if let Some(last) = last.as_object_mut() {
            last.insert("usage".into(), self.usage());
        }
        self.add_failure(&mut last, true);
        events.push(data(&last));
        events.push("data: [DONE]\n\n".into());
        events
    }

    fn chunk(&self, delta: Value, reason: Option<&str>) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }],
        })
    }

    /// The usage, which counts each word as a token.
    fn usage(&self) -> Value {
        let answer = match &self.ending {
            Ending::Stopped(answer) => answer.as_str(),
            Ending::Failed(_) => "",
        };
        let (read, written) = (self.prompt.split_whitespace().count(), answer.split_whitespace().count());
        json!({ "prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written })
    }

    fn add_failure(&self, answer: &mut Value, streamed: bool) {
        let (Ending::Failed(error), Some(answer)) = (&self.ending, answer.as_object_mut()) else { return };
        if streamed {
            answer.insert("error".into(), json!({ "message": error, "type": "agent_error" }));
        }
        let outcome = json!({
            "completed": false, "partial": false, "failed": true, "error": error, "error_code": "agent_error",
        });
        answer.insert("hermes".into(), outcome);
    }
}

fn ending(prompt: &str) -> Ending {
    if starts_with_word(prompt, "fail") {
        return Ending::Failed(FAILURE);
    }
    let prompt = prompt.trim();
    let mut quoted: String = prompt.chars().take(QUOTED).collect();
    if quoted.len() < prompt.len() {
        quoted.push('…');
    }
    Ending::Stopped(format!(
        "You said: \"{quoted}\". (This is the built-in demo gateway; point HERMES_API_BASE at a real hermes-agent for \
         real answers.)"
    ))
}

fn starts_with_word(prompt: &str, word: &str) -> bool {
    prompt.trim_start().get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// The text of a message's content, which is a string or a list of parts.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part.get("text")?.as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(prompt: &str) -> Turn {
        Turn::read(&json!({ "messages": [{ "role": "user", "content": prompt }] })).expect("a turn")
    }

    #[test]
    fn the_prompt_is_the_last_message_that_is_not_a_system_message() {
        let body = json!({ "messages": [
            { "role": "user", "content": "first" },
            { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
            { "role": "system", "content": "be brief" },
        ] });
        assert_eq!(Turn::read(&body).expect("a turn").prompt, "a\nb");
        assert!(Turn::read(&json!({ "messages": [] })).is_none());
        assert!(Turn::read(&json!({ "prompt": "x" })).is_none());
    }

    #[test]
    fn stream_may_be_a_string() {
        let stream = |value: Value| {
            let body = json!({ "messages": [{ "role": "user", "content": "x" }], "stream": value });
            Turn::read(&body).expect("a turn").stream
        };
        assert!(stream(json!(true)) && stream(json!("true")));
        assert!(!stream(json!(false)) && !stream(json!("false")) && !stream(Value::Null));
    }

    #[test]
    fn the_prompt_selects_the_behaviour() {
        assert_eq!(turn("slowly now").pause(), SLOW);
        assert_eq!(turn("not slow").pause(), Duration::ZERO);
        assert_eq!(turn(" Fail please").ending, Ending::Failed(FAILURE));
        assert!(
            matches!(turn("hi").ending, Ending::Stopped(answer) if answer.starts_with("You said: \"hi\". "))
        );
        assert!(matches!(turn(&"x".repeat(9999)).ending, Ending::Stopped(answer) if answer.len() < 800));
    }

    #[test]
    fn the_streamed_chunks_add_up_to_the_answer() {
        let turn = turn("use a tool");
        let Ending::Stopped(answer) = &turn.ending else { panic!("an answer") };
        let mut pieces = String::new();
        let events = turn.events();
        for event in &events {
            let Some(chunk) =
                event.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok())
            else {
                continue;
            };
            pieces.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
        }
        assert_eq!(pieces, format!("\n\n{answer}"));
        assert_eq!(
            events.iter().filter(|event| event.starts_with("event: hermes.tool.progress\n")).count(),
            2
        );
        assert!(events.len() > 8, "the answer comes in several chunks");
    }
}
