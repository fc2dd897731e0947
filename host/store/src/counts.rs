//! How many tasks there are in each state: of an owner, or by how much that changes.

use talaria_turns::State;

/// A number of tasks for each state. A change has negative ones too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts([i64; 8]);

impl Counts {
    pub(crate) fn add(&mut self, state: State, number: i64) {
        // Every state has a place: they are as many as the places.
        if let Some(count) = self.0.get_mut(state as usize) {
            *count += number;
        }
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for (count, number) in self.0.iter_mut().zip(other.0) {
            *count += number;
        }
    }

    /// The tasks in this state; without one, all of them.
    pub(crate) fn of(&self, state: Option<State>) -> usize {
        let count = match state {
            Some(state) => self.0.get(state as usize).copied().unwrap_or_default(),
            None => self.0.iter().sum(),
        };
        usize::try_from(count).unwrap_or_default()
    }

    pub(crate) fn finished(&self) -> usize {
        let terminal = [State::Completed, State::Failed, State::Canceled, State::Rejected];
        terminal.into_iter().map(|state| self.of(Some(state))).sum()
    }
}
