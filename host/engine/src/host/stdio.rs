//! The standard output and the standard error of a guest: each line is a line of the operator's log.
//!
//! Lines are scrubbed, cut, limited in rate and charged to the turn's budget like those of the import `log`. The beginning
//! of the standard error is kept besides: it usually has the message of a panic.
//!
//! A line without an end is logged when the call ends. Of a line that is too long the beginning is logged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tracing::{info, warn};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::budget::Bytes;
use super::log::MAX_LINE;
use super::{SECRET, for_log, printed};
use crate::executor::Shared;
use crate::size::ITEM;

/// The number of bytes of the standard error that are kept, enough for the message and location of a panic.
const KEPT: usize = 2 << 10;
/// What a guest may write at once.
const AT_ONCE: usize = 4 << 10;

/// What is kept of a line: more than is logged, so that no secret is cut in half before it is recognised.
const LINE: usize = MAX_LINE + SECRET;

/// One stream of a guest. Clones share it.
#[derive(Clone)]
pub(super) struct Printed(Arc<Mutex<Stream>>);

struct Stream {
    /// `stdout` or `stderr`.
    name: &'static str,
    shared: Option<Arc<Shared>>,
    kept: Vec<u8>,
    line: Vec<u8>,
    budget: Bytes,
}

/// Both streams of a guest.
pub(super) struct Stdio {
    pub(super) stdout: Printed,
    pub(super) stderr: Printed,
}

// === impl Stdio ===

impl Stdio {
    /// The streams of a call with this budget.
    pub(super) fn new(shared: Option<&Arc<Shared>>, budget: &Bytes) -> Self {
        Self {
            stdout: Printed::new("stdout", shared, budget),
            stderr: Printed::new("stderr", shared, budget),
        }
    }
}

// === impl Printed ===

impl Printed {
    fn new(name: &'static str, shared: Option<&Arc<Shared>>, budget: &Bytes) -> Self {
        let (shared, kept, line, budget) = (shared.cloned(), Vec::new(), Vec::new(), budget.clone());
        Self(Arc::new(Mutex::new(Stream { name, shared, kept, line, budget })))
    }

    /// The beginning of what was printed. It is not redacted yet.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock().kept).into_owned()
    }

    fn lock(&self) -> MutexGuard<'_, Stream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Stream ===

impl Stream {
    fn print(&mut self, bytes: &[u8]) {
        let room = KEPT.saturating_sub(self.kept.len()).min(bytes.len());
        self.kept.extend(bytes.iter().take(room));
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = (LINE - self.line.len()).min(piece.len());
            self.line.extend(piece.iter().take(room));
            if piece.ends_with(b"\n") {
                self.log();
            }
        }
    }

    /// Logs the line, and begins another one.
    fn log(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        let (Some(shared), false) = (&self.shared, text.is_empty()) else { return };
        if shared.log.is_full(Instant::now()) {
            return;
        }
        let text = for_log(Some(shared), text, MAX_LINE);
        let bytes = ITEM + printed(&text);
        if !self.budget.take(bytes) {
            return shared.log.count_dropped();
        }
        let Some(dropped) = shared.log.admit(bytes, Instant::now()) else { return };
        let (executor, stream) = (shared.name.as_str(), self.name);
        if dropped > 0 {
            warn!(executor, dropped, "dropped log lines of the guest: too many");
        }
        info!(target: "guest", executor, stream, "{text}");
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.log();
        }
    }
}

impl OutputStream for Printed {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.lock().print(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(AT_ONCE)
    }
}

#[async_trait::async_trait]
impl Pollable for Printed {
    async fn ready(&mut self) {}
}

impl IsTerminal for Printed {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Printed {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }
}
