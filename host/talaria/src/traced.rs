//! Records requests in traces where the binary composes the wire, so that the wire knows no telemetry.

use talaria_a2a::{Request, RequestObserver};
use talaria_telemetry::Telemetry;

/// Records answered requests.
pub(crate) struct RequestSpans(pub(crate) Telemetry);

impl RequestObserver for RequestSpans {
    fn answered(&self, request: &Request<'_>) {
        let Request { method, operation, version, status, code, took, task, trace, .. } = *request;
        if let Some(trace) = trace {
            let status = status.as_u16();
            let answered =
                talaria_telemetry::Request { trace, method, operation, version, status, code, task, took };
            self.0.answered(&answered);
        }
    }
}
