//! The cost of durable tasks: the bridge with SQLite, the bridge with its store in memory, and the baseline, alternately.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::gateway::Gateway;
use crate::http1::Ask;
use crate::load::{Load, Rounds};
use crate::process::Bridge;
use crate::table::{Row, Target};

/// Enough connections for writes to share a commit.
const LOAD: Load = Load { connections: 64, length: Duration::from_secs(2), pace: None, ask: Ask::Prompt };
/// Rounds of each of the three.
const ROUNDS: usize = 7;

pub(crate) async fn compare(bridge: &Bridge) -> Result<Vec<Row>> {
    let gateway = Gateway::fast().await?;
    let mut durable = bridge.start_durable(&gateway.base_url())?;
    durable.ready().await.context("the bridge with SQLite")?;
    let mut memory = bridge.start(&gateway.base_url())?;
    memory.ready().await.context("the bridge with its store in memory")?;
    let mut native = bridge.start_baseline(gateway.address)?;
    native.ready().await.context("the baseline")?;
    let servers = [&durable, &memory, &native];
    for server in servers {
        LOAD.put_on(server).await?;
    }
    let mut rounds: [Rounds; 3] = std::array::from_fn(|_| Rounds::default());
    for _ in 0..ROUNDS {
        for (server, rounds) in servers.into_iter().zip(&mut rounds) {
            rounds.add(LOAD.put_on(server).await?);
        }
    }

    let [durable, memory, native] = &rounds;
    let rates = [durable.throughput(), memory.throughput(), native.throughput()];
    let [with_file, in_memory, baseline] = rates;
    let how = format!("{ROUNDS} rounds of {} s each, in turns, 1 KiB prompts", LOAD.length.as_secs());
    Ok(vec![
        Row::new(
            "throughput with SQLite, 64 connections, of memory's",
            with_file / in_memory,
            "",
            Target::AtLeast(0.6),
        )
        .note(format!(
            "{with_file:.0} to {in_memory:.0} turns/s; {how}; processor time of a turn {:.0} to {:.0} µs",
            durable.cpu(),
            memory.cpu(),
        )),
        Row::new(
            "throughput with SQLite, 64 connections, of the baseline's",
            with_file / baseline,
            "",
            Target::AtLeast(0.45),
        )
        .note(format!("{with_file:.0} to {baseline:.0} turns/s; in memory {:.2}", in_memory / baseline)),
    ])
}
