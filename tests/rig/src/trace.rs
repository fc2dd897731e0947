//! Records the spans and events of a test, as a subscriber sees them.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

/// Everything that was traced on this thread since [`Trace::start`].
pub struct Trace {
    seen: Arc<Mutex<Seen>>,
    _default: DefaultGuard,
}

#[derive(Default)]
struct Seen {
    spans: Vec<Fields>,
    events: Vec<String>,
}

#[derive(Default)]
struct Fields(Vec<(String, String)>);

struct Watcher {
    seen: Arc<Mutex<Seen>>,
    next: AtomicU64,
}

impl Trace {
    /// Starts recording on this thread, until the value is dropped.
    #[must_use]
    pub fn start() -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let watcher = Watcher { seen: Arc::clone(&seen), next: AtomicU64::new(1) };
        Self { seen, _default: tracing::subscriber::set_default(watcher) }
    }

    /// The attributes of each span of a guest that has this name.
    #[must_use]
    pub fn guest_spans(&self, name: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let named = seen.spans.iter().filter(|span| span.get("otel.name") == Some(name));
        named.map(|span| span.get("attributes").unwrap_or_default().to_owned()).collect()
    }

    /// Every event, which is what a log shows.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        self.seen.lock().unwrap().events.clone()
    }

    /// All spans and events, one a line.
    #[must_use]
    pub fn everything(&self) -> String {
        let seen = self.seen.lock().unwrap();
        let spans = seen.spans.iter().map(|span| format!("{:?}", span.0));
        spans.chain(seen.events.iter().cloned()).collect::<Vec<_>>().join("\n")
    }
}

impl Fields {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name().into(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name().into(), value.into()));
    }
}

impl Subscriber for Watcher {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        self.seen.lock().unwrap().spans.push(fields);
        Id::from_u64(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.seen.lock().unwrap().events.push(format!("{} {:?}", event.metadata().level(), fields.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
