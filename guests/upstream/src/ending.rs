//! How a chat completion went, gathered from one body or from many chunks.

use serde_json::Value;
use talaria_guest::Usage;

use crate::{text, usage};

/// What an upstream says about the end of its answer.
#[derive(Default)]
pub struct Ending {
    finish_reason: Option<String>,
    failed: bool,
    error: Option<String>,
    code: Option<u16>,
    usage: Option<Usage>,
}

impl Ending {
    /// Takes what a body, or a chunk, says.
    pub fn note(&mut self, data: &Value) {
        self.finish_reason = text(data, "/choices/0/finish_reason").or(self.finish_reason.take());
        // Most chunks have none of these, and each is looked for once.
        let (hermes, error) = (data.get("hermes"), data.get("error"));
        self.failed |= hermes.and_then(|hermes| hermes.get("failed")?.as_bool()).unwrap_or_default();
        let said = |from: Option<&Value>, name| Some(from?.get(name)?.as_str()?.to_owned());
        self.error = said(hermes, "error").or_else(|| said(error, "message")).or(self.error.take());
        let code = error.and_then(|error| error.get("code")?.as_u64());
        self.code = code.and_then(|code| u16::try_from(code).ok()).or(self.code);
        if let Some(data) = data.get("usage") {
            self.usage = usage(data, "/prompt_tokens", "/completion_tokens").or(self.usage);
        }
    }

    /// Whether the upstream said that the answer is over.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// Whether it said that the answer is none.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.failed || self.finish_reason.as_deref() == Some("error")
    }

    /// What it said went wrong.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The status that its error carries inside a good response, as model routers do it.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        self.code
    }

    /// What it cost.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }
}
