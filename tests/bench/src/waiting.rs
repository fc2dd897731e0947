//! Resident memory of the bridge, idle and with a thousand turns that wait for their upstream.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::gateway::Gateway;
use crate::http1::{Ask, Connection};
use crate::process::Bridge;
use crate::table::{Row, Target};

const TURNS: usize = 1_000;
/// How long the turns may take to reach the upstream.
const ARRIVE: Duration = Duration::from_secs(60);
/// How long the process may settle before it is measured.
const SETTLE: Duration = Duration::from_millis(500);

pub(crate) async fn memory(bridge: &Bridge) -> Result<[Row; 2]> {
    let gateway = Gateway::hanging().await?;
    // Compilation leaves memory behind, so the measured process starts with a warm cache.
    bridge.start(&gateway.base_url())?.ready().await?;
    let mut server = bridge.start(&gateway.base_url())?;
    server.ready().await?;
    sleep(SETTLE).await;
    let (idle, idle_shared) = (server.resident()?, server.proportional()?);

    let mut turns = JoinSet::new();
    for _ in 0..TURNS {
        let mut connection = Connection::open(server.address).await.context("a connection to the bridge")?;
        turns.spawn(async move { connection.ask(Ask::Prompt).await });
    }
    let arrived = timeout(ARRIVE, gateway.asked(TURNS)).await;
    arrived.with_context(|| {
        format!(
            "{} of {TURNS} turns reached the upstream within {ARRIVE:?}: {}",
            gateway.turns(),
            server.said()
        )
    })??;
    sleep(SETTLE).await;
    let (waiting, waiting_shared) = (server.resident()?, server.proportional()?);
    if let Some(ended) = turns.try_join_next() {
        ended?.context("a turn ended that should wait")?;
    }

    #[expect(clippy::cast_precision_loss, reason = "a thousand")]
    let (each, mapped) = ((waiting_shared - idle_shared) / TURNS as f64, (waiting - idle) / TURNS as f64);
    let idle =
        Row::new("resident memory, idle", idle / 1024.0, "MiB", Target::Under(60e6 / f64::from(1 << 20)));
    let each = Row::new("resident memory of a waiting turn", each, "KiB", Target::AtMost(90.0));
    Ok([
        idle.note("VmRSS of the bridge after its start, warm cache; the target is 60 MB"),
        each.note(format!(
            "Pss; VmRSS grows by {mapped:.0} KiB, since it counts the component's file once a turn; {TURNS} turns of \
             1 KiB in flight; the buffers of both connections count"
        )),
    ])
}
