//! The memory that callers make the host hold.

use super::family::{Family, Kind};
use super::number::Watched;
use super::page::Page;
use super::registry::Source;

static USED: Family = Family {
    name: "talaria_memory_used_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "Memory that callers make the host hold: requests, responses, tasks that are read, turns and their instances",
    question: "How much do callers take now?",
};
static LIMIT: Family = Family {
    name: "talaria_memory_limit_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "The most memory that callers can make the host hold: half of `limits.memory`",
    question: "How much may they take?",
};
static REFUSED: Family = Family {
    name: "talaria_memory_refused_total",
    kind: Kind::Counter,
    labels: &[],
    help: "Requests, responses, turns and growths of guests that did not fit into memory",
    question: "Does it need more memory?",
};

/// The memory that callers make the host hold.
#[derive(Default)]
pub struct Memory(Watched<Now>);

/// The memory at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    /// Bytes now.
    pub used: usize,
    /// The most.
    pub limit: usize,
    /// What did not fit since the start.
    pub refused: u64,
}

// === impl Memory ===

impl Memory {
    /// Sets the function that reads the memory; it must not block. Only the first call has an effect.
    pub fn watch(&self, read: impl Fn() -> Now + Send + Sync + 'static) {
        self.0.set(read);
    }
}

impl Source for Memory {
    fn title(&self) -> &'static str {
        "Memory"
    }

    fn families(&self) -> Vec<&'static Family> {
        vec![&USED, &LIMIT, &REFUSED]
    }

    fn write(&self, page: &mut Page) {
        let now = self.0.read();
        let mut samples = page.family(&USED);
        now.iter().for_each(|now| samples.value(&[], now.used));
        let mut samples = page.family(&LIMIT);
        now.iter().for_each(|now| samples.value(&[], now.limit));
        let mut samples = page.family(&REFUSED);
        now.iter().for_each(|now| samples.value(&[], now.refused));
    }
}
