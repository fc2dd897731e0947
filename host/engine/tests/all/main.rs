//! What the engine promises, on real components.

mod cancelled;
mod chat_completions;
mod conformance;
mod contained;
mod contract;
mod loads;
mod reach;
mod runs;
