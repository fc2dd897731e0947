//! Measures the store.

use std::time::Duration;

use talaria_observe::metrics::{Metrics, store};
use talaria_store::{Operation, StoreObserver};

/// Measures the calls of the store.
pub(crate) struct StoreMetrics(pub(crate) Metrics);

impl StoreObserver for StoreMetrics {
    fn took(&self, operation: Operation, took: Duration, has_failed: bool) {
        let operation = match operation {
            Operation::Create => store::Operation::Create,
            Operation::Append => store::Operation::Append,
            Operation::Task => store::Operation::Task,
            Operation::Events => store::Operation::Events,
            Operation::Log => store::Operation::Log,
            Operation::List => store::Operation::List,
            Operation::Accepted => store::Operation::Accepted,
            Operation::Recall => store::Operation::Recall,
            Operation::State => store::Operation::State,
            Operation::SetState => store::Operation::SetState,
            Operation::Push => store::Operation::Push,
            Operation::Callback => store::Operation::Callback,
            Operation::Delegation => store::Operation::Delegation,
            Operation::Forget => store::Operation::Forget,
            Operation::Room => store::Operation::Room,
            Operation::Scan => store::Operation::Scan,
        };
        self.0.store.took(operation, took, has_failed);
    }
}
