//! The bridge and the baseline under the same load, alternately, so that a busy machine affects both.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::gateway::Gateway;
use crate::http1::Connection;
use crate::process::{Bridge, Server};
use crate::table::{Row, Target, median, quantile};

/// Connections, each with one request at a time.
const CONNECTIONS: u32 = 16;
/// How often each of the two is measured, and for how long.
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(2);
/// The pace of the rounds that measure latency without a queue: requests per second and connection, far below what either
/// server can do.
const PACE: u32 = 50;

/// The load on a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Concurrent connections, each with one request at a time.
    pub(crate) connections: u32,
    pub(crate) length: Duration,
    /// Requests per second and connection; `None` sends as fast as answers arrive.
    pub(crate) pace: Option<u32>,
}

/// The result of one round.
pub(crate) struct Round {
    /// Answers per second.
    throughput: f64,
    /// The server's processor time per answer, in microseconds.
    cpu: f64,
    /// The median latency, in milliseconds.
    latency: f64,
    /// The 99th percentile of the latency, in milliseconds.
    slow: f64,
}

/// The results of all rounds of one kind.
#[derive(Default)]
pub(crate) struct Rounds {
    throughput: Vec<f64>,
    cpu: Vec<f64>,
    latency: Vec<f64>,
    slow: Vec<f64>,
}

pub(crate) async fn compare(bridge: &Bridge) -> Result<Vec<Row>> {
    let gateway = Gateway::fast().await?;
    let mut ours = bridge.start(&gateway.base_url())?;
    let mut native = bridge.start_baseline(gateway.address)?;
    ours.ready().await.context("the bridge")?;
    native.ready().await.context("the baseline")?;
    let full = Load { connections: CONNECTIONS, length: ROUND, pace: None };
    let paced = Load { pace: Some(PACE), ..full };
    for server in [&ours, &native] {
        Load { length: WARM_UP, ..full }.put_on(server).await?;
    }

    let [mut bridge, mut baseline, mut paced_bridge, mut paced_baseline] =
        std::array::from_fn(|_| Rounds::default());
    for _ in 0..ROUNDS {
        baseline.add(&full.put_on(&native).await?);
        bridge.add(&full.put_on(&ours).await?);
    }
    for _ in 0..ROUNDS {
        paced_baseline.add(&paced.put_on(&native).await?);
        paced_bridge.add(&paced.put_on(&ours).await?);
    }

    let cpu = (bridge.cpu(), baseline.cpu());
    let rates = (bridge.throughput(), baseline.throughput());
    let (saturated, paced) = (bridge.latency(), paced_bridge.latency());
    let (saturated_native, paced_native) = (baseline.latency(), paced_baseline.latency());
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
        Row::new(
            "added median latency at 16 connections",
            saturated - saturated_native,
            "ms",
            Target::Under(0.5),
        )
        .note(format!(
            "{saturated:.2} to {saturated_native:.2} ms, both saturated: a queue's length, not a turn's work"
        )),
        Row::plain("added median latency, 16 connections, not saturated", paced - paced_native, "ms")
            .note(format!("{paced:.2} to {paced_native:.2} ms at {} turns/s", PACE * CONNECTIONS)),
        Row::plain("processor time of a turn, user and kernel", cpu.0, "µs")
            .note(format!("{:.0} µs in the baseline; of the process alone, in the saturated rounds", cpu.1)),
    ])
}

// === impl Load ===

impl Load {
    /// Puts the load on a server, on all connections at once.
    pub(crate) async fn put_on(self, server: &Server) -> Result<Round> {
        let Self { connections, length, pace } = self;
        let address = server.address;
        let computed = server.cpu()?;
        let end = Instant::now() + length;
        let mut clients = JoinSet::new();
        let period = pace.map(|pace| Duration::from_secs(1) / pace);
        for index in 0..connections {
            // Spread over the period to avoid bursts.
            let ticks = period.map(|period| (period * index / connections, period));
            clients.spawn(client(address, end, ticks));
        }
        let mut latencies = Vec::new();
        while let Some(client) = clients.join_next().await {
            latencies.append(&mut client?.with_context(|| server.said())?);
        }
        #[expect(clippy::cast_precision_loss, reason = "some thousands")]
        let turns = latencies.len() as f64;
        let computed = server.cpu()?.saturating_sub(computed);
        Ok(Round {
            throughput: turns / length.as_secs_f64(),
            cpu: computed.as_secs_f64() * 1e6 / turns.max(1.0),
            latency: median(&mut latencies),
            slow: quantile(&mut latencies, 0.99),
        })
    }
}

/// Drives one connection. Returns the latencies of its turns in milliseconds.
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

// === impl Round ===

impl Round {
    /// The 99th percentile of the latency, in milliseconds.
    pub(crate) fn slow(&self) -> f64 {
        self.slow
    }
}

// === impl Rounds ===

impl Rounds {
    pub(crate) fn add(&mut self, round: &Round) {
        self.throughput.push(round.throughput);
        self.cpu.push(round.cpu);
        self.latency.push(round.latency);
        self.slow.push(round.slow);
    }

    /// The median over the rounds; so are the values below.
    pub(crate) fn throughput(&mut self) -> f64 {
        median(&mut self.throughput)
    }

    pub(crate) fn cpu(&mut self) -> f64 {
        median(&mut self.cpu)
    }

    pub(crate) fn latency(&mut self) -> f64 {
        median(&mut self.latency)
    }

    pub(crate) fn slow(&mut self) -> f64 {
        median(&mut self.slow)
    }
}
