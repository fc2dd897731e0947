//! Writes log events to stderr, as text for people or as JSON for machines, every line scrubbed.

use std::io::{self, IsTerminal, Write};
use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use talaria_redact::Redactor;

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// One compact line; in colour if stderr is a terminal.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Why the logs could not be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// The filter cannot be parsed.
    #[error("bad log filter {filter:?}: {problem}; write one like info,talaria=debug")]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The logs of the process were started before.
    #[error("the logs of this process were started already")]
    AlreadyStarted,
    /// The name of a format that does not exist.
    #[error("unknown log format {name:?}; write text or json")]
    Format {
        /// The name as given.
        name: String,
    },
}

/// A writer that scrubs every line.
struct Scrubbed<W>(W);

/// Starts the logs of this process, once. The filter has the form of `RUST_LOG`, for example `info,talaria=debug`.
pub fn init(format: Format, filter: &str) -> Result<(), InitError> {
    let filter = parse_filter(filter)?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Scrubbed(io::stderr));
    match format {
        Format::Text => logs.with_ansi(io::stderr().is_terminal()).compact().try_init(),
        Format::Json => logs.json().flatten_event(true).try_init(),
    }
    .map_err(|_already| InitError::AlreadyStarted)
}

pub(crate) fn parse_filter(filter: &str) -> Result<EnvFilter, InitError> {
    EnvFilter::try_new(filter)
        .map_err(|error| InitError::Filter { filter: filter.to_owned(), problem: error.to_string() })
}

// === impl Format ===

impl FromStr for Format {
    type Err = InitError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(InitError::Format { name: name.to_owned() }),
        }
    }
}

// === impl Scrubbed ===

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Scrubbed<M> {
    type Writer = Scrubbed<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Scrubbed(self.0.make_writer())
    }
}

/// Every event is written with one call, so no secret is split between two calls.
impl<W: Write> Write for Scrubbed<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(Redactor::process().all(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests;
