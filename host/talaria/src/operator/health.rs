//! `talaria health`: the exit code is the answer, for the probe of a container that has no other program.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use talaria_egress::Request;

use super::RunningHost;

/// Kubelet gives up after a second by default; a person waits longer.
const WITHIN: Duration = Duration::from_secs(5);

/// What the host says of itself.
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    ok: bool,
    status: u16,
    report: Value,
}

impl Health {
    pub(crate) async fn ask(host: &RunningHost, ready: bool) -> anyhow::Result<Self> {
        let path = if ready { "/readyz" } else { "/healthz" };
        let request = Request { timeout: Some(WITHIN), ..host.request("GET", path) };
        let (status, report) = host.answer(request).await?;
        Ok(Self { ok: status == 200, status, report })
    }

    pub(crate) fn is_well(&self) -> bool {
        self.ok
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ok {
            true => f.write_str("ok"),
            false => write!(f, "not well ({}): {}", self.status, self.report),
        }
    }
}
