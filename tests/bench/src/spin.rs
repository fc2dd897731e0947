//! Turns through the bridge beside guests that spin: the median, and the slowest turn, which shows whether a connection
//! ever waits for a guest that computes.
//!
//! The part `hostile` measures the same in one process, without connections.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use talaria_client::{Delivery, Message};
use tokio::time::sleep;

use crate::gateway::Gateway;
use crate::http1::{Ask, client};
use crate::load::{Load, Rounds};
use crate::process::{Bridge, Server};
use crate::table::{Row, Target};

/// Twice the threads of a small machine. They spin for a minute, the default limit, which is longer than all rounds.
const SPINNING: usize = 4;
/// Far below saturation.
const LOAD: Load = Load { connections: 8, length: Duration::from_secs(4), pace: Some(25), ask: Ask::Prompt };
const ROUNDS: usize = 3;
/// How long the guests may take to begin, and the processor time that shows that they did.
const BEGIN: Duration = Duration::from_secs(1);
const BEGUN: Duration = Duration::from_millis(250);

pub(crate) async fn beside(bridge: &Bridge) -> Result<[Row; 2]> {
    let gateway = Gateway::fast().await?;
    let [mut alone, mut beside] = std::array::from_fn(|_| Rounds::default());
    for _ in 0..ROUNDS {
        // A new process for each round, because the guests of the last one cannot be stopped sooner.
        let mut server = bridge.start_attackable(&gateway.base_url())?;
        server.ready().await?;
        Load { length: BEGIN, ..LOAD }.put_on(&server).await?;
        alone.add(LOAD.put_on(&server).await?);
        spin(&server).await.with_context(|| server.said())?;
        beside.add(LOAD.put_on(&server).await?);
    }
    let note = format!(
        "{ROUNDS} rounds of {} turns each, {:.2} ms alone and {:.2} ms at most; {SPINNING} guests spin",
        LOAD.connections * LOAD.pace.unwrap_or_default() * u32::try_from(LOAD.length.as_secs())?,
        alone.latency(),
        alone.longest(),
    );
    let times = beside.latency() / alone.latency();
    Ok([
        Row::new("a turn through the bridge beside guests that spin", times, "times", Target::Under(1.5))
            .note(note),
        Row::plain("the slowest turn beside guests that spin", beside.longest(), "ms")
            .note(format!("the median is {:.2} ms", beside.latency())),
    ])
}

/// Starts the guests.
async fn spin(server: &Server) -> Result<()> {
    let (client, before) = (client(server.address)?, server.cpu()?);
    for _ in 0..SPINNING {
        let message = Message::new("spin").with("talaria/executor", "hostile");
        client.send(&message, Delivery::Detached).await?;
    }
    sleep(BEGIN).await;
    let computed = server.cpu()?.saturating_sub(before);
    ensure!(computed > BEGUN, "the guests do not spin: {computed:?} of processor time in {BEGIN:?}");
    Ok(())
}
