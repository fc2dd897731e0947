//! The standard error of a guest. The beginning is kept for the log; the rest is dropped.

use std::sync::{Arc, Mutex, PoisonError};

use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// The number of bytes kept, enough for the message and location of a panic.
const KEPT: usize = 2 << 10;

#[derive(Clone, Default)]
pub(super) struct CapturedStderr(Arc<Mutex<Vec<u8>>>);

impl CapturedStderr {
    pub(super) fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }

    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = KEPT.saturating_sub(kept.len()).min(bytes.len());
        kept.extend(bytes.iter().take(room));
    }
}

impl OutputStream for CapturedStderr {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.keep(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(KEPT)
    }
}

#[async_trait::async_trait]
impl Pollable for CapturedStderr {
    async fn ready(&mut self) {}
}

impl IsTerminal for CapturedStderr {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for CapturedStderr {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }
}
