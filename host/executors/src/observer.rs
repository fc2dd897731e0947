//! Observers of executors: they count what happens to them.

use talaria_egress::DenialKind;
use talaria_engine::Fault;

use crate::audit::What;

/// Sees what happens to executors. The methods must not block.
pub trait ExecutorObserver: Send + Sync + 'static {
    /// A call of a guest, which may be a probe, ended by its own fault.
    fn fault(&self, executor: &str, fault: Fault);

    /// Something was denied to an executor.
    fn denied(&self, executor: &str, what: DenialKind);

    /// A version was loaded, swapped in, refused or taken out of service. Built-in executors count at the start too.
    fn changed(&self, executor: &str, what: What);
}

/// An observer that counts nothing.
impl ExecutorObserver for () {
    fn fault(&self, _: &str, _: Fault) {}

    fn denied(&self, _: &str, _: DenialKind) {}

    fn changed(&self, _: &str, _: What) {}
}
