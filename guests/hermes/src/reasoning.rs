//! A model's thoughts: a span of the trace, and nothing else.

use serde_json::{Value, json};
use talaria_guest::span::Span;
use talaria_guest::{Turn, log};
use talaria_upstream::cut;

/// The characters of the thoughts that an operator sees.
const PREVIEW_CHARS: usize = 512;
/// The bytes that are kept for that: the characters that are shown, at their longest, and a key that begins among them,
/// which is recognised only as a whole.
const KEPT_BYTES: usize = PREVIEW_CHARS * 4 + 4_096;
/// The fields for thoughts; self-hosted servers use the second.
const FIELDS: [&str; 2] = ["reasoning", "reasoning_content"];

/// The length of the thoughts so far, and their beginning.
#[derive(Default)]
pub(crate) struct Reasoning {
    chars: usize,
    beginning: String,
    details: bool,
}

impl Reasoning {
    /// Takes the thoughts that a message, or a delta, has beside its content.
    pub(crate) fn take(&mut self, message: &Value) {
        if let Some(text) = FIELDS.iter().find_map(|field| message.get(field).and_then(Value::as_str)) {
            self.push(text);
        }
        self.details |= match message.get("reasoning_details") {
            None | Some(Value::Null) => false,
            Some(Value::Array(details)) => !details.is_empty(),
            Some(_) => true,
        };
    }

    /// Takes thoughts that were found in the content.
    pub(crate) fn push(&mut self, text: &str) {
        self.chars += text.chars().count();
        let room = KEPT_BYTES.saturating_sub(self.beginning.len());
        let end = text.floor_char_boundary(room);
        self.beginning.push_str(text.get(..end).unwrap_or_default());
    }

    /// Writes the thoughts into the trace; the log line has only their length.
    ///
    /// All attributes are set at once, because a span that changes later shows up in the log.
    pub(crate) fn record(&self, turn: &Turn, model: &str) {
        if self.chars == 0 && !self.details {
            return;
        }
        let workspace = turn.workspace.as_ref().map_or("unknown", |workspace| workspace.id.as_str());
        let mut attributes: Vec<(String, String)> = vec![
            ("workspace.id".into(), workspace.into()),
            ("a2a.task_id".into(), turn.context_id.clone()),
            ("hermes.model".into(), model.into()),
            ("hermes.reasoning_length".into(), self.chars.to_string()),
        ];
        if self.chars > 0 {
            attributes.push(("hermes.reasoning_preview".into(), cut(&self.beginning, PREVIEW_CHARS)));
        }
        if self.details {
            attributes.push(("hermes.has_reasoning_details".into(), "true".into()));
        }
        drop(Span::new("hermes.reasoning", &attributes));
        let fields = json!({ "model": model, "length": self.chars }).to_string();
        log::write(log::Level::Info, "reasoning recorded in the trace", Some(&fields));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_are_found_in_every_field_that_endpoints_use() {
        for (message, chars, details) in [
            (json!({ "reasoning": "hm" }), 2, false),
            (json!({ "reasoning_content": "hmm" }), 3, false),
            (json!({ "reasoning": "hm", "reasoning_content": "hm" }), 2, false),
            (json!({ "reasoning_details": [{ "type": "reasoning.text" }] }), 0, true),
            (json!({ "reasoning_details": [] }), 0, false),
            (json!({ "reasoning_details": null, "content": "hello" }), 0, false),
            (json!(7), 0, false),
        ] {
            let mut reasoning = Reasoning::default();
            reasoning.take(&message);
            assert_eq!((reasoning.chars, reasoning.details), (chars, details), "{message}");
        }
    }

    #[test]
    fn long_thoughts_are_counted_whole_and_kept_in_part() {
        let mut reasoning = Reasoning::default();
        for _ in 0..2 {
            reasoning.push(&"ä".repeat(KEPT_BYTES));
        }
        assert_eq!(reasoning.chars, 2 * KEPT_BYTES);
        assert_eq!(reasoning.beginning.len(), KEPT_BYTES);
    }
}
