//! Counts what happens to executors.

use talaria_egress::DenialKind;
use talaria_engine::Fault;
use talaria_executors::{ExecutorObserver, What};
use talaria_observe::metrics::egress::Denial;
use talaria_observe::metrics::{Metrics, executors};

/// Counts faults, denials and changes.
pub(crate) struct ExecutorMetrics(pub(crate) Metrics);

impl ExecutorObserver for ExecutorMetrics {
    fn fault(&self, executor: &str, fault: Fault) {
        let fault = match fault {
            Fault::Trap => executors::Fault::Trap,
            Fault::Memory => executors::Fault::Memory,
            Fault::Cpu => executors::Fault::Cpu,
            Fault::Deadline => executors::Fault::Deadline,
            Fault::Answer => executors::Fault::Answer,
        };
        self.0.executors.fault(executor, fault);
    }

    fn denied(&self, executor: &str, what: DenialKind) {
        let what = match what {
            DenialKind::Egress => Denial::Egress,
            DenialKind::Undeclared => Denial::Undeclared,
            DenialKind::Address => Denial::Address,
            DenialKind::Secret => Denial::Secret,
            DenialKind::Tool => Denial::Tool,
            DenialKind::Callback => Denial::Callback,
            DenialKind::WasiHttp => Denial::WasiHttp,
            DenialKind::Limit => Denial::Limit,
            DenialKind::State => Denial::State,
        };
        self.0.egress.denied(executor, what);
    }

    fn changed(&self, executor: &str, what: What) {
        let change = match what {
            What::Loaded => executors::Change::Loaded,
            What::Swapped => executors::Change::Swapped,
            What::Waiting => executors::Change::Waiting,
            What::Refused => executors::Change::Refused,
            What::RolledBack => executors::Change::RolledBack,
            What::Quarantined => executors::Change::Quarantined,
            What::Removed => executors::Change::Removed,
            // What an operator did elsewhere.
            What::Canceled | What::Answered | What::Retried | What::LogChanged | What::SignInRefused => {
                return;
            }
        };
        self.0.executors.changed(executor, change);
    }
}
