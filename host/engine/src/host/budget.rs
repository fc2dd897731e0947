//! The budget of a turn: how much it may give the host to store or log.
//!
//! One budget covers everything that outlives the call which passes it: events, questions, checkpoints, state, expected
//! replies, spans, log lines, and the answer. Limits for each of them would add up, and a guest would use whichever is
//! cheapest. The cost of an item is that of [`Size`], never less than its fixed part. The number of entries in the
//! task's log is limited besides, because readers, push and the task's snapshot pay for each entry.
//!
//! What exceeds the budget fails with the line that raises it, and costs nothing, so that a smaller event still fits.
//! Spans and log lines cannot fail: they are dropped.
//!
//! A result of up to [`RESULT`] bytes fits in any case: a guest that has used up its budget can still answer, or say
//! why it failed.
//!
//! The budget belongs to a call. A probe, a cancellation and a read of the transcript each have their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Ctx;
use crate::limits::Limits;
use crate::size::Size;
use talaria_egress::DenialKind;

/// The bytes of a result that are free: as many as an event may have.
const RESULT: usize = 1 << 20;

/// What is left of a turn's budget.
pub(crate) struct Budget {
    entries: u32,
    bytes: Bytes,
}

/// The bytes that are left. Clones share them; only one thread takes from them at a time.
#[derive(Clone)]
pub(super) struct Bytes(Arc<AtomicUsize>);

/// Which limit was reached.
#[derive(Debug, PartialEq, Eq)]
enum Over {
    Entries,
    Bytes,
}

impl Budget {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { entries: limits.events, bytes: Bytes(Arc::new(AtomicUsize::new(limits.output_bytes))) }
    }

    /// The bytes, for what takes some of them out of the guest's sight.
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    fn take(&mut self, entries: u32, bytes: usize) -> Result<(), Over> {
        let entries = self.entries.checked_sub(entries).ok_or(Over::Entries)?;
        if !self.bytes.take(bytes) {
            return Err(Over::Bytes);
        }
        self.entries = entries;
        Ok(())
    }
}

// === impl Bytes ===

impl Bytes {
    /// Takes some, if so many are left.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let left = self.0.load(Ordering::Relaxed).checked_sub(bytes);
        left.map(|left| self.0.store(left, Ordering::Relaxed)).is_some()
    }
}

impl Ctx {
    /// Charges the turn for something that adds this number of entries to its task's log, which may be none. The error
    /// has the configuration line that raises the limit.
    pub(super) fn charge(&mut self, entries: u32, size: Size) -> Result<(), String> {
        let Err(over) = self.budget.take(entries, size.cost) else { return Ok(()) };
        let Limits { events, output_bytes, .. } = self.limits;
        let (what, add) = match over {
            Over::Entries => (
                format!("add more than {events} events to a turn"),
                format!("events = {}", events.saturating_mul(2)),
            ),
            Over::Bytes => (
                format!("put out more than {output_bytes} bytes a turn"),
                format!("output = \"{}KiB\"", (output_bytes >> 9).max(1)),
            ),
        };
        Err(match self.shared() {
            Some(shared) => shared.access.deny(DenialKind::Limit, what, &add),
            None => format!("a component may not {what}"),
        })
    }

    /// Charges the call for its result.
    pub(super) fn charge_result(&mut self, size: Size) -> Result<(), String> {
        self.charge(0, Size { cost: size.cost.saturating_sub(RESULT), ..size })
    }

    /// Charges the turn for something that cannot fail. Returns false if it has to be dropped.
    pub(super) fn affords(&mut self, size: Size) -> bool {
        self.budget.take(0, size.cost).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_the_budget_costs_nothing() {
        let mut budget = Budget::new(&Limits { events: 3, output_bytes: 1_000, ..Limits::default() });
        assert_eq!(budget.take(1, 600), Ok(()));
        assert_eq!(budget.take(1, 600), Err(Over::Bytes));
        assert_eq!(budget.take(3, 1), Err(Over::Entries));
        assert_eq!(budget.take(2, 400), Ok(()), "the rest is still there");
        assert_eq!((budget.take(0, 1), budget.take(1, 0)), (Err(Over::Bytes), Err(Over::Entries)));
    }

    /// An answer of 128 Ki tokens of four characters, each emitted on its own, and then returned as a whole.
    #[test]
    fn the_default_budget_lets_a_long_answer_stream_token_by_token() {
        use crate::contract::bindings::talaria::executor::{events, types};
        let mut budget = Budget::new(&Limits::default());
        let token = Size::event(&events::Event::TextDelta("word".into()));
        for _ in 0..128 << 10 {
            assert_eq!(budget.take(1, token.cost), Ok(()));
        }
        let answer = types::Part {
            content: types::Content::Text("word".repeat(128 << 10)),
            media_type: None,
            filename: None,
            metadata: None,
        };
        assert_eq!(budget.take(1, Size::of(0).parts(&[answer]).cost), Ok(()));
        assert!(budget.bytes.take(20 << 20), "with room for artifacts");
    }
}
