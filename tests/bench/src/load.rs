//! The bridge and the baseline under the same load, in turns, so that a busy machine hits both.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::gateway::Gateway;
use crate::http1::Connection;
use crate::process::{Bridge, Server};
use crate::table::{Row, Target, median};

/// Connections, each with one request at a time.
const CONNECTIONS: u32 = 16;
/// How often each of the two is measured, and for how long.
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(2);
/// The pace of the rounds that show latency without a queue: far below what either can do, in requests a second of
/// each connection.
const PACE: u32 = 50;

/// What one round showed.
struct Round {
    /// Answers a second.
    throughput: f64,
    /// Time that the server computed for one of them, in microseconds.
    cpu: f64,
    /// Median, in milliseconds.
    latency: f64,
}

/// The rounds of one kind.
#[derive(Default)]
struct Rounds {
    throughput: Vec<f64>,
    cpu: Vec<f64>,
    latency: Vec<f64>,
}

pub(crate) async fn compare(bridge: &Bridge) -> Result<Vec<Row>> {
    let gateway = Gateway::fast().await?;
    let mut ours = bridge.start(&gateway.base_url())?;
    let mut native = bridge.start_baseline(gateway.address)?;
    ours.ready().await.context("the bridge")?;
    native.ready().await.context("the baseline")?;
    for server in [&ours, &native] {
        round(server, WARM_UP, None).await?;
    }

    let [mut bridge, mut baseline, mut paced_bridge, mut paced_baseline] =
        std::array::from_fn(|_| Rounds::default());
    for _ in 0..ROUNDS {
        baseline.add(&round(&native, ROUND, None).await?);
        bridge.add(&round(&ours, ROUND, None).await?);
    }
    for _ in 0..ROUNDS {
        paced_baseline.add(&round(&native, ROUND, Some(PACE)).await?);
        paced_bridge.add(&round(&ours, ROUND, Some(PACE)).await?);
    }

    let cpu = (bridge.cpu(), baseline.cpu());
    let rates = (bridge.throughput(), baseline.throughput());
    let (full, paced) = (bridge.latency(), paced_bridge.latency());
    let (full_native, paced_native) = (baseline.latency(), paced_baseline.latency());
    let how = format!("{ROUNDS} rounds of {} s each, in turns, 1 KiB prompts", ROUND.as_secs());
    Ok(vec![
        Row::new(
            "throughput at 16 connections, of the baseline's",
            rates.0 / rates.1,
            "",
            Target::AtLeast(0.5),
        )
        .note(format!(
            "{:.0} to {:.0} turns/s; {how}; the load and the upstream share the cores",
            rates.0, rates.1
        )),
        Row::new("added median latency at 16 connections", full - full_native, "ms", Target::Under(0.5))
            .note(format!(
                "{full:.2} to {full_native:.2} ms, both saturated: a queue's length, not a turn's work"
            )),
        Row::plain("added median latency, 16 connections, not saturated", paced - paced_native, "ms")
            .note(format!("{paced:.2} to {paced_native:.2} ms at {} turns/s", PACE * CONNECTIONS)),
        Row::plain("processor time of a turn, user and kernel", cpu.0, "µs")
            .note(format!("{:.0} µs in the baseline; of the process alone, in the saturated rounds", cpu.1)),
    ])
}

/// All connections at once, as fast as answers come, or at a pace.
async fn round(server: &Server, length: Duration, pace: Option<u32>) -> Result<Round> {
    let address = server.address;
    let computed = server.cpu()?;
    let end = Instant::now() + length;
    let mut connections = JoinSet::new();
    let period = pace.map(|pace| Duration::from_secs(1) / pace);
    for index in 0..CONNECTIONS {
        // Spread over the period, so that a pace is no burst.
        let ticks = period.map(|period| (period * index / CONNECTIONS, period));
        connections.spawn(client(address, end, ticks));
    }
    let mut latencies = Vec::new();
    while let Some(connection) = connections.join_next().await {
        latencies.append(&mut connection?.with_context(|| server.said())?);
    }
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let turns = latencies.len() as f64;
    let computed = server.cpu()?.saturating_sub(computed);
    Ok(Round {
        throughput: turns / length.as_secs_f64(),
        cpu: computed.as_secs_f64() * 1e6 / turns.max(1.0),
        latency: median(&mut latencies),
    })
}

/// One connection; the latencies of its turns in milliseconds.
async fn client(address: SocketAddr, end: Instant, ticks: Option<(Duration, Duration)>) -> Result<Vec<f64>> {
    let mut connection = Connection::open(address).await?;
    let mut ticks = ticks.map(|(after, period)| {
        let mut ticks = interval_at(Instant::now() + after, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks
    });
    let mut latencies = Vec::new();
    while Instant::now() < end {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        let started = Instant::now();
        connection.turn().await?;
        latencies.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(latencies)
}

// === impl Rounds ===

impl Rounds {
    fn add(&mut self, round: &Round) {
        self.throughput.push(round.throughput);
        self.cpu.push(round.cpu);
        self.latency.push(round.latency);
    }

    fn throughput(&mut self) -> f64 {
        median(&mut self.throughput)
    }

    fn cpu(&mut self) -> f64 {
        median(&mut self.cpu)
    }

    fn latency(&mut self) -> f64 {
        median(&mut self.latency)
    }
}
