//! A chat completion, read with suspicion.

use serde_json::Value;
use talaria_guest::{Failure, FailureKind, Outcome, Usage};

use crate::excerpt;

/// What of a completion matters, gathered from one body or from many chunks.
#[derive(Default)]
pub(crate) struct Reply {
    /// The text; none where the shape is not that of a completion.
    pub(crate) text: Option<String>,
    finish_reason: Option<String>,
    failed: bool,
    error: Option<String>,
    usage: Option<Usage>,
}

/// Reads a whole body.
pub(crate) fn parse(body: &[u8]) -> Result<Reply, Failure> {
    let data: Value = serde_json::from_slice(body).map_err(|_| no_content())?;
    let mut reply = Reply::default();
    reply.note(&data);
    // `content: null` is an empty reply; no `content` at all is no reply.
    reply.text = match data.pointer("/choices/0/message/content") {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Null) => Some(String::new()),
        _ => None,
    };
    Ok(reply)
}

impl Reply {
    /// Takes what a body, or the last chunk of a stream, says about how it went.
    pub(crate) fn note(&mut self, data: &Value) {
        let text = |pointer: &str| data.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        self.finish_reason = text("/choices/0/finish_reason").or(self.finish_reason.take());
        self.failed |= data.pointer("/hermes/failed").and_then(Value::as_bool).unwrap_or_default();
        self.error = text("/hermes/error").or_else(|| text("/error/message")).or(self.error.take());
        let tokens = |pointer: &str| {
            data.pointer(pointer)
                .and_then(Value::as_u64)
                .map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX))
        };
        if let (Some(input_tokens), Some(output_tokens)) =
            (tokens("/usage/prompt_tokens"), tokens("/usage/completion_tokens"))
        {
            self.usage = Some(Usage { input_tokens, output_tokens });
        }
    }

    /// What the upstream said went wrong, if it said so.
    pub(crate) fn error(&self) -> Option<Failure> {
        let said = excerpt(self.error.as_deref()?);
        Some(Failure::new(FailureKind::Upstream, format!("[hermes-agent error] {said}")))
    }

    /// Whether the upstream said that the turn is over.
    pub(crate) fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// The end of the turn.
    pub(crate) fn outcome(self) -> Result<Outcome, Failure> {
        if self.failed || self.finish_reason.as_deref() == Some("error") {
            let said = excerpt(&self.error.or(self.text).unwrap_or_default());
            return Err(Failure::new(FailureKind::Upstream, format!("[hermes-agent error] {said}")));
        }
        let text = self.text.ok_or_else(no_content)?;
        Ok(Outcome { usage: self.usage, ..Outcome::text(text) })
    }
}

fn no_content() -> Failure {
    Failure::new(FailureKind::Upstream, "(hermes-agent returned no content)")
}
