//! What a family of metrics is, for Prometheus and for people.

use super::closed::Closed;

/// A family of metrics.
#[derive(Debug)]
pub(super) struct Family {
    /// The name, as queries use it; a counter's ends in `_total`.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [Label],
    /// What it is: the help text, without a full stop.
    pub(super) help: &'static str,
    /// The question that it answers.
    pub(super) question: &'static str,
}

/// The kind of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

/// A label of a family.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label {
    pub(super) name: &'static str,
    pub(super) values: Values,
}

/// The values that a label has.
#[derive(Debug, Clone, Copy)]
pub(super) enum Values {
    /// These.
    Closed(&'static [&'static str]),
    /// Names that the operator chose, or the product: what kind of names.
    Named(&'static str),
}

/// The label of metrics of one executor.
pub(super) const EXECUTOR: Label = Label::named("executor", "configured executors");

// === impl Family ===

impl Family {
    /// The unit that the name ends with.
    pub(super) fn unit(&self) -> Option<&'static str> {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        ["seconds", "bytes"]
            .into_iter()
            .find(|unit| name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_')))
    }
}

// === impl Kind ===

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

// === impl Label ===

impl Label {
    pub(super) const fn of<L: Closed>(name: &'static str) -> Self {
        Self { name, values: Values::Closed(L::NAMES) }
    }

    pub(super) const fn named(name: &'static str, what: &'static str) -> Self {
        Self { name, values: Values::Named(what) }
    }
}
