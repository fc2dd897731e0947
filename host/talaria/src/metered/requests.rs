//! Counts requests to the A2A port.

use talaria_a2a::{Request, RequestObserver};
use talaria_observe::metrics::Metrics;
use talaria_observe::metrics::requests::{Operation, Status, Version};

/// Counts requests.
pub(crate) struct RequestMetrics(pub(crate) Metrics);

impl RequestObserver for RequestMetrics {
    fn answered(&self, request: &Request<'_>) {
        let Request { method, operation, version, status, code, took, .. } = *request;
        let operation = Operation::of(operation, method);
        let status = Status::of(status.as_u16(), code.is_some());
        self.0.requests.answered(operation, Version::named(version), status, took);
    }
}
