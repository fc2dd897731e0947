//! The log of a test, as the product writes it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use talaria_observe::logs::{self, Format};
use tracing::dispatcher::DefaultGuard;

/// Everything that was logged on this thread since [`Logged::start`].
pub struct Logged {
    text: Text,
    _default: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Logged {
    /// Starts to log at the level `info`, on this thread, until the value is dropped.
    #[must_use]
    pub fn start(format: Format) -> Self {
        let text = Text::default();
        let writer = text.clone();
        let logs = logs::written_to(move || writer.clone(), format, "info").expect("a filter");
        Self { text, _default: tracing::dispatcher::set_default(&logs) }
    }

    /// The log so far.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8(self.text.0.lock().unwrap().clone()).expect("a log is text")
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
