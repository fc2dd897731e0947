//! Writes log events to stderr, as text for people or as JSON for machines, every line scrubbed.
//!
//! An event is one line. Control characters in messages, fields and spans are escaped, those of the host as well as
//! those of guests, so that no text can add a line of its own or move the cursor of a terminal. That is done here, where
//! the formatted line leaves the process, because a rule for each field would be forgotten for the next one. The
//! formatter's colours are the only escape sequences that pass, and only to a terminal. The JSON formatter escapes by
//! itself.

use std::io::{self, IsTerminal, Write};
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use talaria_redact::Redactor;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Dispatch, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::{EnvFilter, Registry};

use crate::one_line::{Colours, one_line};

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// One compact line; in colour if stderr is a terminal, unless the operator wants none.
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
    /// The filter cannot be changed while the process runs.
    #[error(
        "the log filter cannot be changed while the host runs: {0}; give levels by target only, such as \
         info,access=debug, here and to `--log`"
    )]
    Fixed(&'static str),
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

/// A writer that scrubs every line, and keeps it on one line if it is text.
struct Scrubbed<W> {
    to: W,
    /// `None` for JSON.
    text: Option<Colours>,
}

/// The filter of this process, and what changes it.
struct Current {
    text: Mutex<String>,
    /// `None` if it filters by spans.
    targets: Option<Replaceable>,
}

/// Levels by target that can be replaced. Like [`Targets`] itself it answers when a place in the code is first reached, and
/// does nothing when a span is entered or left. `tracing_subscriber::reload` would take a lock there, for all threads.
struct Adjustable(Replaceable);

/// Levels by target, shared by the layer and by what replaces them.
type Replaceable = Arc<ArcSwap<Targets>>;

static CURRENT: OnceLock<Current> = OnceLock::new();

/// Returns the log filter of this process; empty if its logs were not started.
pub fn filter() -> String {
    let text = |current: &Current| current.text.lock().unwrap_or_else(PoisonError::into_inner).clone();
    CURRENT.get().map(text).unwrap_or_default()
}

/// Replaces the log filter of this process.
///
/// # Errors
/// [`InitError::Filter`] if it cannot be parsed; [`InitError::Fixed`] if it, or the one that the logs were started with,
/// filters by spans.
pub fn set_filter(filter: &str) -> Result<(), InitError> {
    let current = CURRENT.get().ok_or(InitError::Fixed("the logs were not started"))?;
    let Some(targets) = by_target(filter) else {
        parse_filter(filter)?;
        return Err(InitError::Fixed("the new one filters by spans"));
    };
    let known = current.targets.as_ref().ok_or(InitError::Fixed("it was started with one by spans"))?;
    // Held, so that the text is that of the last change.
    let mut text = current.text.lock().unwrap_or_else(PoisonError::into_inner);
    known.store(Arc::new(targets));
    tracing::callsite::rebuild_interest_cache();
    filter.clone_into(&mut text);
    Ok(())
}

/// Starts the logs of this process, once. The filter has the form of `RUST_LOG`, for example `info,talaria=debug`. Without
/// `colours` there are none; with them there are if stderr is a terminal.
pub fn init(format: Format, filter: &str, colours: bool) -> Result<(), InitError> {
    let (logs, targets) = dispatch(format, filter, io::stderr, colours && io::stderr().is_terminal())?;
    tracing::dispatcher::set_global_default(logs).map_err(|_already| InitError::AlreadyStarted)?;
    let _ = CURRENT.set(Current { text: Mutex::new(filter.to_owned()), targets });
    Ok(())
}

/// The logs, written to something other than stderr and without colours, for tests of what is logged.
///
/// # Errors
/// [`InitError::Filter`].
pub fn written_to<W: Write + 'static>(
    writer: impl Fn() -> W + Send + Sync + 'static,
    format: Format,
    filter: &str,
) -> Result<Dispatch, InitError> {
    dispatch(format, filter, writer, false).map(|(logs, _)| logs)
}

fn dispatch<W: Write + 'static>(
    format: Format,
    filter: &str,
    to: impl Fn() -> W + Send + Sync + 'static,
    is_terminal: bool,
) -> Result<(Dispatch, Option<Replaceable>), InitError> {
    let (filter, targets) = layer(filter)?;
    let text = if is_terminal { Colours::Keep } else { Colours::Escape };
    let logs = tracing_subscriber::fmt::layer();
    let logs = match format {
        Format::Text => {
            let logs = logs.with_writer(Scrubbed { to, text: Some(text) });
            logs.with_ansi(is_terminal).compact().boxed()
        }
        Format::Json => {
            let logs = logs.with_writer(Scrubbed { to, text: None }).json().flatten_event(true);
            // The innermost span is the last of the list.
            logs.with_current_span(false).boxed()
        }
    };
    Ok((Registry::default().with(filter).with(logs).into(), targets))
}

type Filter = Box<dyn Layer<Registry> + Send + Sync>;

/// What is logged, as a layer. A filter by spans and their fields takes a lock whenever a span is entered or left, which is
/// several times in each turn, and all threads take the same one; so it is used only if there is more in it than targets.
fn layer(filter: &str) -> Result<(Filter, Option<Replaceable>), InitError> {
    match by_target(filter) {
        Some(targets) => {
            let targets = Arc::new(ArcSwap::from_pointee(targets));
            Ok((Adjustable(Arc::clone(&targets)).boxed(), Some(targets)))
        }
        None => Ok((parse_filter(filter)?.boxed(), None)),
    }
}

/// Reads a filter that has levels by target only. `Targets` would take the name of a span in brackets for a target.
fn by_target(filter: &str) -> Option<Targets> {
    filter.parse().ok().filter(|_| !filter.contains('['))
}

pub(crate) fn parse_filter(filter: &str) -> Result<EnvFilter, InitError> {
    EnvFilter::try_new(filter)
        .map_err(|error| InitError::Filter { filter: filter.to_owned(), problem: error.to_string() })
}

// === impl Adjustable ===

impl<S: Subscriber> Layer<S> for Adjustable {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        Layer::<S>::register_callsite(&**self.0.load(), metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: Context<'_, S>) -> bool {
        Layer::<S>::enabled(&**self.0.load(), metadata, context)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Layer::<S>::max_level_hint(&**self.0.load())
    }
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
        Scrubbed { to: self.to.make_writer(), text: self.text }
    }
}

/// Every event is written with one call, so no secret is split between two calls, and only the last character of a call
/// ends a line.
impl<W: Write> Write for Scrubbed<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let scrubbed = Redactor::process().all(&text);
        match self.text {
            None => self.to.write_all(scrubbed.as_bytes())?,
            Some(colours) => {
                let (line, end) = scrubbed.strip_suffix('\n').map_or((&*scrubbed, ""), |line| (line, "\n"));
                self.to.write_all(format!("{}{end}", one_line(line, colours)).as_bytes())?;
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests;
