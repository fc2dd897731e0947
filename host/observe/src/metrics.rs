//! Metrics for Prometheus.
//!
//! **Promise.** [`Metrics::text`] is what `promtool check metrics` accepts, and in OpenMetrics 1.0 what Prometheus reads; every
//! family has a help text, and a row in `docs/metrics.md` with the question that it answers, which a test holds to this code.
//! Labels are closed sets: enumerations, and the names of configured executors, servers, tools and rules. No id, and no text of
//! a caller or of a component, becomes a label.
//!
//! **Parts.** Each part of the host has a module with its own metrics, which registers them: what is counted (a field of
//! [`Metrics`]), and what others count already and is read when somebody asks (`watch`). So neither the domain nor the wire
//! knows of metrics; the binary connects them through observers.
//!
//! **Cost.** A turn takes no lock and allocates nothing here: what an executor counts is found by its name without a lock
//! (`by_name`), counters and histograms are relaxed atomics. A read takes as long as its text is.
//!
//! **Bounds.** At most 256 executors (`by_name::MOST`) have series of their own; the others share one.
//!
//! Encoded here and not by a crate: docs/decisions/074.

mod build;
mod by_name;
mod closed;
mod docs;
pub mod egress;
pub mod executors;
mod family;
pub mod mailbox;
pub mod memory;
mod number;
mod page;
mod process;
pub mod push;
mod registry;
pub mod requests;
pub mod store;
pub mod tools;
pub mod turns;

use std::sync::Arc;

pub use self::page::Format;
use self::registry::Registry;

/// The metrics of one host. Cheap to clone; all clones share the numbers.
#[derive(Clone)]
pub struct Metrics {
    /// Turns of executors.
    pub turns: Arc<turns::Turns>,
    /// Outbound calls of executors, and what they were denied.
    pub egress: Arc<egress::Egress>,
    /// Executors: their state, their instances, their changes.
    pub executors: Arc<executors::Executors>,
    /// Requests to the A2A port.
    pub requests: Arc<requests::Requests>,
    /// Push notifications.
    pub push: Arc<push::Pushes>,
    /// Replies out of band.
    pub mailbox: Arc<mailbox::Mailbox>,
    /// Calls of tools.
    pub tools: Arc<tools::Tools>,
    /// The store.
    pub store: Arc<store::Store>,
    /// The memory that callers make the host hold.
    pub memory: Arc<memory::Memory>,
    registry: Arc<Registry>,
}

// === impl Metrics ===

impl Metrics {
    /// Creates the metrics of this version of the product, with nothing counted yet.
    #[must_use]
    pub fn new(version: &str) -> Self {
        let mut registry = Registry::default();
        registry.add(build::Build::new(version));
        Self {
            turns: registry.add(turns::Turns::default()),
            egress: registry.add(egress::Egress::default()),
            executors: registry.add(executors::Executors::default()),
            requests: registry.add(requests::Requests::default()),
            push: registry.add(push::Pushes::default()),
            mailbox: registry.add(mailbox::Mailbox::default()),
            tools: registry.add(tools::Tools::default()),
            store: registry.add(store::Store::default()),
            memory: registry.add(memory::Memory::default()),
            registry: {
                registry.add(process::Process);
                Arc::new(registry)
            },
        }
    }

    /// Returns all metrics.
    #[must_use]
    pub fn text(&self, format: Format) -> String {
        self.registry.text(format)
    }

    /// Returns `docs/metrics.md`.
    #[must_use]
    pub fn page(&self) -> String {
        docs::page(&self.registry)
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

#[cfg(test)]
mod tests;
