//! The import `control`: the time left, cancellation, sleep, and the session variables of a turn.

use std::time::Duration;

use tokio::time::Instant;
use wasmtime::Result;

use super::{Ctx, Purpose, unless_cancelled};
use crate::contract::bindings::talaria::executor::control as wit;
use crate::convert;

impl wit::Host for Ctx {
    fn remaining_ms(&mut self) -> Result<u32> {
        Ok(match &self.purpose {
            Purpose::Execute { deadline, .. } => {
                convert::millis(deadline.saturating_duration_since(Instant::now()))
            }
            Purpose::Describe | Purpose::Probe(_) | Purpose::Cancel { .. } => {
                convert::millis(self.limits.deadline)
            }
        })
    }

    fn cancelled(&mut self) -> Result<bool> {
        Ok(self.is_cancelled())
    }

    async fn sleep(&mut self, ms: u32) -> Result<bool> {
        tracing::trace!(target: "import", ms, "control.sleep");
        let slept =
            unless_cancelled(self.scope(), tokio::time::sleep(Duration::from_millis(ms.into()))).await;
        Ok(slept.is_some())
    }

    fn session(&mut self, name: String) -> Result<Option<String>> {
        Ok(self.about().and_then(|about| about.session.get(&name)).map(str::to_owned))
    }
}
