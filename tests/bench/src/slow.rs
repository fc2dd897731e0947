//! Turns beside readers that do not read: 200 streams of tasks that send a lot, each stuck as soon as the kernel's buffers
//! are full. The tasks send in both kinds of rounds; only the readers differ.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::time::{Instant, sleep};

use crate::gateway::{Gateway, Talk};
use crate::http1::{Ask, client};
use crate::load::{Load, Rounds};
use crate::process::{Bridge, Server};
use crate::stream::{self, Stream};
use crate::table::{Row, median};

const READERS: usize = 200;
const TASKS: usize = 4;
/// More at once than the kernel buffers for a reader, then a steady flow that outlasts a round even on a slow machine.
const TALK: Talk = Talk {
    at_once: 300,
    pieces: 3_000,
    period: Duration::from_millis(20),
    bytes: KIB as usize * 1024,
    waits: true,
};
/// The size of an event.
const KIB: u32 = 4;
/// The measured turns: far below saturation.
const LOAD: Load = Load { connections: 16, length: Duration::from_secs(4), pace: Some(20), ask: Ask::Prompt };
const ROUNDS: usize = 5;
/// How long a turn may take to arrive, and a stream to get stuck.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two looks at the kernel's queues.
const LOOK: Duration = Duration::from_millis(500);

/// What the kernel buffers for the peers of a server.
struct Queued {
    bytes: u64,
    connections: usize,
}

pub(crate) async fn readers(bridge: &Bridge) -> Result<Row> {
    let gateway = Gateway::talking(TALK).await?;
    let mut server = bridge.start(&gateway.base_url())?;
    server.ready().await?;
    LOAD.put_on(&server).await?;
    let (mut alone, mut beside) = (Rounds::default(), Rounds::default());
    let mut held = Vec::new();
    for _ in 0..ROUNDS {
        let (tasks, senders) = begin(&server, &gateway).await?;
        gateway.begin();
        until_steady(senders).await?;
        alone.add(LOAD.put_on(&server).await?);
        end(&server, &tasks).await?;

        let (tasks, senders) = begin(&server, &gateway).await?;
        let mut hanging = Vec::new();
        for task in tasks.iter().cycle().take(READERS) {
            let mut reader = Stream::connect_small(server.address).await?;
            reader.subscribe(task).await.with_context(|| server.said())?;
            hanging.push(reader);
        }
        gateway.begin();
        until_steady(senders).await?;
        held.push(stuck(server.address).await?);
        beside.add(LOAD.put_on(&server).await?);
        end(&server, &tasks).await?;
    }
    let (slow, slow_alone) = (beside.slow(), alone.slow());
    let row =
        Row::plain("99th percentile of a turn beside 200 readers that hang", slow / slow_alone, "times");
    Ok(row.note(format!(
        "{slow:.2} to {slow_alone:.2} ms without them, medians {:.2} to {:.2} ms; {ROUNDS} rounds each, in turns, {} turns/s; \
         {TASKS} tasks say {:.0} KiB/s each in both; the kernel holds {:.0} KiB for a reader",
        beside.latency(),
        alone.latency(),
        LOAD.connections * LOAD.pace.unwrap_or_default(),
        f64::from(KIB) / TALK.period.as_secs_f64(),
        median(&mut held),
    )))
}

/// Starts tasks whose turns wait at the upstream. Returns their ids and the streams of their senders.
async fn begin(server: &Server, gateway: &Gateway) -> Result<(Vec<String>, Vec<Stream>)> {
    let mut senders = stream::senders(server, gateway, TASKS).await?;
    let mut tasks = Vec::new();
    for sender in &mut senders {
        tasks.push(sender.task().await?);
    }
    Ok((tasks, senders))
}

/// Waits until the first burst has arrived; then the senders disconnect and nobody reads.
async fn until_steady(senders: Vec<Stream>) -> Result<()> {
    for mut sender in senders {
        let mut left = TALK.at_once;
        while left > 0 {
            let more = sender.marks(|_| left = left.saturating_sub(1)).await?;
            ensure!(more, "a stream ended early");
        }
    }
    Ok(())
}

async fn end(server: &Server, tasks: &[String]) -> Result<()> {
    let client = client(server.address)?;
    for task in tasks {
        client.cancel_task(task).await?;
    }
    Ok(())
}

/// Waits until no reader makes progress. Returns the KiB that the kernel buffers for each.
async fn stuck(server: SocketAddr) -> Result<f64> {
    let give_up = Instant::now() + PATIENCE;
    let mut before = 0;
    while Instant::now() < give_up {
        sleep(LOOK).await;
        let Queued { bytes, connections } = queued(server)?;
        if connections >= READERS && bytes == before {
            #[expect(clippy::cast_precision_loss, reason = "some megabytes")]
            let each = bytes as f64 / connections as f64;
            return Ok(each / 1024.0);
        }
        before = bytes;
    }
    bail!("the readers are not stuck after {PATIENCE:?}")
}

/// Sums the send queues in `/proc/net/tcp`, whose columns are address, peer, state, queues and others.
fn queued(server: SocketAddr) -> Result<Queued> {
    let port = format!(":{:04X}", server.port());
    let mut queued = Queued { bytes: 0, connections: 0 };
    for line in fs::read_to_string("/proc/net/tcp")?.lines() {
        let mut columns = line.split_whitespace().skip(1);
        let ours = columns.next().is_some_and(|address| address.ends_with(&port));
        let bytes = columns.nth(2).and_then(|queues| u64::from_str_radix(queues.split_once(':')?.0, 16).ok());
        if let (true, Some(bytes @ 1..)) = (ours, bytes) {
            queued.bytes += bytes;
            queued.connections += 1;
        }
    }
    Ok(queued)
}
