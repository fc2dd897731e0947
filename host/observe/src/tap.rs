//! The log events of this process, for a command that displays them in its own way.

use std::fmt::{self, Write as _};

use talaria_redact::Redactor;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::logs::{self, InitError};
use crate::one_line::{Colours, one_line};

/// A log event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its target; `guest` for log lines of guests.
    pub target: &'static str,
    /// Its level.
    pub level: tracing::Level,
    /// The message, scrubbed and on one line.
    pub message: String,
    /// The fields as `name=value`, separated by spaces, scrubbed and on one line.
    pub fields: String,
}

/// Passes every event that the filter admits to `on_event`, in place of [`logs::init`]. Once per process. `on_event` must not
/// block.
///
/// # Errors
/// Those of [`logs::init`].
pub fn tap(filter: &str, on_event: impl Fn(Line) + Send + Sync + 'static) -> Result<(), InitError> {
    let filter = logs::parse_filter(filter)?;
    let tap = tracing_subscriber::registry().with(Tap(on_event).with_filter(filter));
    tap.try_init().map_err(|_already| InitError::AlreadyStarted)
}

struct Tap<F>(F);

impl<S: Subscriber, F: Fn(Line) + 'static> Layer<S> for Tap<F> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let redactor = Redactor::process();
        let mut fields = Fields::default();
        event.record(&mut fields);
        (self.0)(Line {
            target: event.metadata().target(),
            level: *event.metadata().level(),
            message: one_line(&redactor.all(&fields.message), Colours::Escape).into_owned(),
            fields: one_line(&redactor.all(&fields.others), Colours::Escape).into_owned(),
        });
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Fields {
    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if field.name() == "message" {
            let _ = self.message.write_fmt(value);
            return;
        }
        let space = if self.others.is_empty() { "" } else { " " };
        let _ = write!(self.others, "{space}{}={value}", field.name());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn an_event_is_passed_on_in_parts_and_scrubbed() {
        let lines: Arc<Mutex<Vec<Line>>> = Arc::default();
        let heard = Arc::clone(&lines);
        let tap = tracing_subscriber::registry().with(Tap(move |line| heard.lock().unwrap().push(line)));
        tracing::subscriber::with_default(tap, || {
            tracing::warn!(target: "guest", header = "Bearer abcdefghij", count = 3, "called {}", "it\nagain");
        });
        let lines = lines.lock().unwrap();
        let [Line { target, level, message, fields }] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!((*target, *level, message.as_str()), ("guest", tracing::Level::WARN, "called it\\nagain"));
        assert_eq!(fields, "header=Bearer [REDACTED:bearer_token] count=3");
    }
}
