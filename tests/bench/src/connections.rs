//! The bridge with one connection, and with many: whether a turn stays as cheap when more of them are open.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::gateway::Gateway;
use crate::http1::Ask;
use crate::load::{Load, Rounds};
use crate::process::{Bridge, Server};
use crate::table::{Row, Target};

/// The numbers of connections, each with a row of its own.
const COUNTS: [(u32, &str); 4] = [
    (1, "processor time of a turn, 1 connection"),
    (64, "processor time of a turn, 64 connections"),
    (256, "processor time of a turn, 256 connections"),
    (900, "processor time of a turn, 900 connections"),
];
/// What the throughput with many connections is compared with.
const FEW: u32 = 16;
const MANY: u32 = 900;
const LOAD: Load = Load { connections: FEW, length: Duration::from_secs(2), pace: None, ask: Ask::Prompt };
const ROUNDS: usize = 3;

pub(crate) async fn compare(bridge: &Bridge) -> Result<Vec<Row>> {
    let gateway = Gateway::fast().await?;
    let mut ours = bridge.start(&gateway.base_url())?;
    let mut native = bridge.start_baseline(gateway.address)?;
    ours.ready().await.context("the bridge")?;
    native.ready().await.context("the baseline")?;
    for server in [&ours, &native] {
        LOAD.put_on(server).await?;
    }
    let mut counts = COUNTS.map(|(connections, name)| (connections, name, Rounds::default()));
    let [mut few, mut native_few, mut native_many] = std::array::from_fn(|_| Rounds::default());
    for _ in 0..ROUNDS {
        few.add(with(FEW, &ours).await?);
        for (connections, _, rounds) in &mut counts {
            rounds.add(with(*connections, &ours).await?);
        }
        native_few.add(with(FEW, &native).await?);
        native_many.add(with(MANY, &native).await?);
    }

    let mut rows = Vec::new();
    for (connections, name, rounds) in &counts {
        let (rate, cores) = (rounds.throughput(), rounds.cores());
        rows.push(
            Row::plain(name, rounds.cpu(), "µs").note(format!("{rate:.0} turns/s with {cores:.2} cores")),
        );
        if *connections == MANY {
            let name = "throughput at 900 connections, of that at 16";
            let baseline = native_many.throughput() / native_few.throughput();
            rows.push(Row::new(name, rate / few.throughput(), "", Target::AtLeast(0.8)).note(format!(
                "{rate:.0} to {:.0} turns/s; {baseline:.2} in the baseline: the load and the upstream get slower too",
                few.throughput()
            )));
        }
    }
    Ok(rows)
}

async fn with(connections: u32, server: &Server) -> Result<crate::load::Round> {
    Load { connections, ..LOAD }.put_on(server).await
}
