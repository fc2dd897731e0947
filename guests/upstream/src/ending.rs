//! How a chat completion went, gathered from one body or from many chunks.

use serde_json::Value;
use talaria_guest::Usage;

use crate::{text, usage};

/// What an upstream reports about the end of its answer.
#[derive(Default)]
pub struct Ending {
    finish_reason: Option<String>,
    failed: bool,
    error: Option<String>,
    code: Option<u16>,
    usage: Option<Usage>,
}

impl Ending {
    /// Reads a body or a chunk.
    pub fn note(&mut self, data: &Value) {
        self.finish_reason = text(data, "/choices/0/finish_reason").or(self.finish_reason.take());
        // Most chunks have none of these, so each is looked up once.
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

    /// Takes what a body or a chunk says that needs no tree of values.
    pub(crate) fn note_plain(&mut self, finish_reason: Option<String>, usage: Option<Usage>) {
        self.finish_reason = finish_reason.or(self.finish_reason.take());
        self.usage = usage.or(self.usage);
    }

    /// Why the upstream ended its answer.
    #[cfg(test)]
    pub(crate) fn finish_reason(&self) -> Option<&str> {
        self.finish_reason.as_deref()
    }

    /// Whether the upstream ended its answer.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// Whether it reported a failure instead of an answer.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.failed || self.finish_reason.as_deref() == Some("error")
    }

    /// The error that it reported.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The status of an error inside a 2xx response, as model routers report it.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        self.code
    }

    /// The tokens that it consumed.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_ending_is_gathered_from_all_chunks() {
        let mut ending = Ending::default();
        ending.note(&json!({ "choices": [{ "delta": { "content": "hi" } }] }));
        assert!(!ending.is_finished() && !ending.is_failed());
        ending.note(&json!({ "choices": [{ "finish_reason": "stop" }] }));
        ending.note(&json!({ "choices": [], "usage": { "prompt_tokens": 11, "completion_tokens": 7 } }));
        assert!(ending.is_finished() && !ending.is_failed());
        assert_eq!(ending.usage().map(|usage| (usage.input_tokens, usage.output_tokens)), Some((11, 7)));
    }

    #[test]
    fn failures_are_found_wherever_upstreams_put_them() {
        for (data, failed, error, code) in [
            (json!({ "choices": [{ "finish_reason": "error" }] }), true, None, None),
            (json!({ "hermes": { "failed": true, "error": "no" } }), true, Some("no"), None),
            (json!({ "error": { "message": "no", "code": 429 } }), false, Some("no"), Some(429)),
            (json!({ "error": { "message": "no", "code": "rate_limited" } }), false, Some("no"), None),
            (
                json!({ "hermes": { "error": "first" }, "error": { "message": "second" } }),
                false,
                Some("first"),
                None,
            ),
            (json!({ "error": "no" }), false, None, None),
        ] {
            let mut ending = Ending::default();
            ending.note(&data);
            assert_eq!((ending.is_failed(), ending.error(), ending.code()), (failed, error, code), "{data}");
        }
    }
}
