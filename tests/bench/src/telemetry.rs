//! The cost of traces: the bridge with every turn recorded and sent to a collector on loopback, and without, alternately.
//!
//! The collector is in this process and throws everything away. It shares the cores with everything else, like the upstream.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use talaria_fakes::ForgetfulCollector;

use crate::gateway::Gateway;
use crate::http1::Ask;
use crate::load::{Load, Rounds};
use crate::process::Bridge;
use crate::table::{Row, Target};

const LOAD: Load = Load { connections: 16, length: Duration::from_secs(2), pace: None, ask: Ask::Prompt };
/// Rounds of each.
const ROUNDS: usize = 7;

pub(crate) async fn compare(bridge: &Bridge) -> Result<Vec<Row>> {
    let (gateway, collector) = (Gateway::fast().await?, ForgetfulCollector::start().await);
    let mut on = bridge.start_traced(&gateway.base_url(), &collector.endpoint())?;
    on.ready().await.context("the bridge with traces")?;
    let mut off = bridge.start(&gateway.base_url())?;
    off.ready().await.context("the bridge without traces")?;
    let servers = [&on, &off];
    for server in servers {
        LOAD.put_on(server).await?;
    }
    let mut rounds: [Rounds; 2] = std::array::from_fn(|_| Rounds::default());
    for _ in 0..ROUNDS {
        for (server, rounds) in servers.into_iter().zip(&mut rounds) {
            rounds.add(LOAD.put_on(server).await?);
        }
    }
    ensure!(collector.taken() > 0, "the collector got nothing");
    let [traced, plain] = &rounds;
    let (with, without) = (traced.throughput(), plain.throughput());
    Ok(vec![
        Row::new("throughput with traces, relative to without", with / without, "", Target::AtLeast(0.95)).note(
            format!(
                "{with:.0} to {without:.0} turns/s; {ROUNDS} rounds of {} s each, in turns; processor time of a turn {:.0} to \
                 {:.0} µs; the collector took {} MiB",
                LOAD.length.as_secs(),
                traced.cpu(),
                plain.cpu(),
                collector.taken() >> 20,
            ),
        ),
    ])
}
