//! What a model thought: a span of the trace, and nothing else.

use serde_json::{Value, json};
use talaria_guest::span::Span;
use talaria_guest::{Turn, log};
use talaria_upstream::cut;

/// How much of the thoughts an operator sees, in characters.
const PREVIEW_CHARS: usize = 512;
/// How much is kept for that: what is shown, in the longest characters, and a key that begins there, which can only be
/// recognised whole.
const KEPT_BYTES: usize = PREVIEW_CHARS * 4 + 4_096;
/// The fields in which endpoints hand thoughts over. The second is what self-hosted servers call the first.
const FIELDS: [&str; 2] = ["reasoning", "reasoning_content"];

/// The thoughts so far: how long they are, and how they begin.
#[derive(Default)]
pub(crate) struct Reasoning {
    chars: usize,
    beginning: String,
    details: bool,
}

impl Reasoning {
    /// Takes what a message, or a delta, holds besides its content.
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

    /// Takes thoughts out of the content.
    pub(crate) fn push(&mut self, text: &str) {
        self.chars += text.chars().count();
        let room = KEPT_BYTES.saturating_sub(self.beginning.len());
        let end = text.floor_char_boundary(room);
        self.beginning.push_str(text.get(..end).unwrap_or_default());
    }

    /// Writes them into the trace. The line in the log has their length only.
    ///
    /// All attributes are given at once: a span that is changed later shows up in the log.
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
        log::write(log::Level::Info, "the model thought; the trace has it", Some(&fields));
    }
}
