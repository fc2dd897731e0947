//! From the start of the process to the first answer.

use std::time::Instant;

use anyhow::Result;

use crate::gateway::Gateway;
use crate::process::Bridge;
use crate::table::{Row, Target, median};

const STARTS: usize = 10;

/// Measures starts with a warm cache.
pub(crate) async fn ready(bridge: &Bridge) -> Result<Row> {
    let gateway = Gateway::fast().await?;
    bridge.start(&gateway.base_url())?.ready().await?;
    let mut took = Vec::new();
    for _ in 0..STARTS {
        let started = Instant::now();
        let mut server = bridge.start(&gateway.base_url())?;
        server.ready().await?;
        took.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let row = Row::new("start to ready, warm cache", median(&mut took), "ms", Target::Under(100.0));
    Ok(row
        .note(format!("median of {STARTS}, from fork to the card's answer, probe of the upstream included")))
}
