//! Swapping an executor under load: whether calls fail, and how much slower they get.
//!
//! A swap is an operator's reload: the host reads the files, takes the component from the cache, describes and probes it,
//! and gives it the turns of the previous version. The load is far below saturation, so that the row shows the swap and not
//! a queue.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{Instant, sleep_until};

use crate::gateway::Gateway;
use crate::http1::{Ask, Connection};
use crate::load::Load;
use crate::process::{Bridge, Server};
use crate::table::{Row, Target};

/// 1,000 turns per second over 20 connections.
const LOAD: Load =
    Load { connections: 20, length: Duration::from_secs(10), pace: Some(50), ask: Ask::Prompt };
/// The number of swaps, spread over the load.
const SWAPS: u32 = 50;
/// The operator's token.
const TOKEN: &str = "bench";

pub(crate) async fn under_load(bridge: &Bridge) -> Result<Row> {
    let gateway = Gateway::fast().await?;
    let (mut server, admin) = bridge.start_swappable(&gateway.base_url(), TOKEN)?;
    server.ready().await?;
    Load { length: Duration::from_secs(2), ..LOAD }.put_on(&server).await?;
    let before = LOAD.put_on(&server).await?;
    let (during, swapped) = tokio::join!(LOAD.put_on(&server), swap(&server, admin));
    // A failed turn ends the measurement, and there is no row.
    let (during, swaps) = (during?, swapped?);
    let (before, during) = (before.slow(), during.slow());
    let row =
        Row::new("slowest turns while swapping, of those before", during / before, "", Target::Under(2.0));
    Ok(row.note(format!(
        "99th percentile {during:.2} to {before:.2} ms at 1,000 turns/s; {SWAPS} swaps in {} s, {swaps:.1} ms each; no \
         call failed",
        LOAD.length.as_secs()
    )))
}

/// Swaps repeatedly. Returns the mean time of a swap in milliseconds.
async fn swap(server: &Server, admin: SocketAddr) -> Result<f64> {
    let mut operator = Connection::open(admin).await?;
    let began = Instant::now();
    let mut spent = Duration::ZERO;
    for index in 0..SWAPS {
        sleep_until(began + LOAD.length * index / SWAPS).await;
        let started = Instant::now();
        operator.reload("mine", TOKEN).await.with_context(|| server.said())?;
        spent += started.elapsed();
    }
    Ok(spent.as_secs_f64() * 1e3 / f64::from(SWAPS))
}
