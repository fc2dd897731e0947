//! `log`: lines in the operator's log, scrubbed and counted.

use tracing::{debug, error, info, trace, warn};
use wasmtime::Result;

use super::Ctx;
use crate::contract::bindings::talaria::executor::log as wit;

/// The longest line; the rest of a longer one is dropped.
const MAX_LINE: usize = 4 << 10;

impl wit::Host for Ctx {
    fn write(&mut self, level: wit::Level, message: String, fields: Option<String>) -> Result<()> {
        let Some(shared) = self.shared().cloned() else { return Ok(()) };
        self.log_lines = self.log_lines.saturating_add(1);
        let executor = shared.name.as_str();
        if self.log_lines > self.limits.log_lines {
            if self.log_lines == self.limits.log_lines + 1 {
                warn!(executor, lines = self.limits.log_lines, "further log lines of this turn are dropped");
            }
            return Ok(());
        }
        let message = shared.redactor.redact(cut(&message));
        let fields = fields.as_deref().map(|fields| shared.redactor.redact(cut(fields)));
        let fields = fields.as_deref();
        match level {
            wit::Level::Trace => trace!(target: "guest", executor, fields, "{message}"),
            wit::Level::Debug => debug!(target: "guest", executor, fields, "{message}"),
            wit::Level::Info => info!(target: "guest", executor, fields, "{message}"),
            wit::Level::Warn => warn!(target: "guest", executor, fields, "{message}"),
            wit::Level::Error => error!(target: "guest", executor, fields, "{message}"),
        }
        Ok(())
    }
}

fn cut(text: &str) -> &str {
    let end = text.floor_char_boundary(MAX_LINE);
    text.get(..end).unwrap_or(text)
}
