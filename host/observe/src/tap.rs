//! The events of this process, for a command that shows them in its own way instead of as a log.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::logs::{self, InitError};
use crate::scrub::scrub;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Where it comes from; `guest` for what guests write.
    pub target: &'static str,
    /// Its level.
    pub level: tracing::Level,
    /// The sentence, scrubbed.
    pub message: String,
    /// `name=value`, one after the other, scrubbed.
    pub fields: String,
}

/// Gives every event that passes the filter to `heard`, instead of [`logs::init`]. Once in a process. `heard` must not
/// block.
///
/// # Errors
/// Those of [`logs::init`].
pub fn tap(filter: &str, heard: impl Fn(Line) + Send + Sync + 'static) -> Result<(), InitError> {
    let filter = logs::parse_filter(filter)?;
    let tap = tracing_subscriber::registry().with(Tap(heard).with_filter(filter));
    tap.try_init().map_err(|_already| InitError::AlreadyStarted)
}

struct Tap<F>(F);

impl<S: Subscriber, F: Fn(Line) + 'static> Layer<S> for Tap<F> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut said = Said::default();
        event.record(&mut said);
        (self.0)(Line {
            target: event.metadata().target(),
            level: *event.metadata().level(),
            message: scrub(&said.message).into_owned(),
            fields: scrub(&said.fields).into_owned(),
        });
    }
}

#[derive(Default)]
struct Said {
    message: String,
    fields: String,
}

impl Said {
    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if field.name() == "message" {
            let _ = self.message.write_fmt(value);
            return;
        }
        let space = if self.fields.is_empty() { "" } else { " " };
        let _ = write!(self.fields, "{space}{}={value}", field.name());
    }
}

impl Visit for Said {
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
    fn an_event_comes_in_its_parts_and_scrubbed() {
        let lines: Arc<Mutex<Vec<Line>>> = Arc::default();
        let heard = Arc::clone(&lines);
        let tap = tracing_subscriber::registry().with(Tap(move |line| heard.lock().unwrap().push(line)));
        tracing::subscriber::with_default(tap, || {
            tracing::warn!(target: "guest", header = "Bearer abcdefghij", count = 3, "called {}", "it");
        });
        let lines = lines.lock().unwrap();
        let [Line { target, level, message, fields }] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!((*target, *level, message.as_str()), ("guest", tracing::Level::WARN, "called it"));
        assert_eq!(fields, "header=Bearer [REDACTED:bearer_token] count=3");
    }
}
