//! The bridge and the baseline under the same load, alternately, so that a busy machine affects both.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::gateway::Gateway;
use crate::http1::{Ask, Connection};
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
const FULL: Load = Load { connections: CONNECTIONS, length: ROUND, pace: None, ask: Ask::Prompt };

/// The load on a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Concurrent connections, each with one request at a time.
    pub(crate) connections: u32,
    pub(crate) length: Duration,
    /// Requests per second and connection; `None` sends as fast as answers arrive.
    pub(crate) pace: Option<u32>,
    pub(crate) ask: Ask,
}

/// The result of one round.
pub(crate) struct Round {
    /// Answers per second.
    throughput: f64,
    /// The server's processor time per answer, in microseconds.
    cpu: f64,
    /// The cores that the server got.
    cores: f64,
    /// How often the server's threads had nothing to do, and how often another was due, per answer.
    voluntary: f64,
    involuntary: f64,
    /// The median latency, in milliseconds.
    latency: f64,
    /// The 99th percentile of the latency, in milliseconds.
    slow: f64,
    /// The longest latency, in milliseconds.
    longest: f64,
}

/// The results of all rounds of one kind.
#[derive(Default)]
pub(crate) struct Rounds(Vec<Round>);

/// The servers of the comparison, ready and warm.
struct Servers {
    bridge: Server,
    /// The bridge with one core.
    pinned: Server,
    baseline: Server,
}

pub(crate) async fn compare(bridge: &Bridge) -> Result<Vec<Row>> {
    let gateway = Gateway::fast().await?;
    let servers = Servers::start(bridge, &gateway).await?;
    let [mut ours, mut blank, mut pinned, mut native] = std::array::from_fn(|_| Rounds::default());
    for _ in 0..ROUNDS {
        native.add(FULL.put_on(&servers.baseline).await?);
        ours.add(FULL.put_on(&servers.bridge).await?);
        blank.add(Load { ask: Ask::Blank, ..FULL }.put_on(&servers.bridge).await?);
        pinned.add(FULL.put_on(&servers.pinned).await?);
    }
    let mut rows = vec![throughput(&ours, &native), saturated(&ours, &native), paced(&servers).await?];
    rows.extend(computing(&ours, &blank, &pinned, &native));
    Ok(rows)
}

fn throughput(ours: &Rounds, native: &Rounds) -> Row {
    let (ours, native) = (ours.throughput(), native.throughput());
    let name = "throughput at 16 connections, of the baseline's";
    Row::new(name, ours / native, "", Target::AtLeast(0.55)).note(format!(
        "{ours:.0} to {native:.0} turns/s; {ROUNDS} rounds of {} s each, in turns, 1 KiB prompts; the load and the upstream \
         share the cores",
        ROUND.as_secs()
    ))
}

fn saturated(ours: &Rounds, native: &Rounds) -> Row {
    let (ours, native) = (ours.latency(), native.latency());
    let row = Row::new("added median latency at 16 connections", ours - native, "ms", Target::Under(0.5));
    row.note(format!("{ours:.2} to {native:.2} ms, both saturated: a queue's length, not a turn's work"))
}

async fn paced(servers: &Servers) -> Result<Row> {
    let load = Load { pace: Some(PACE), ..FULL };
    let [mut ours, mut native] = std::array::from_fn(|_| Rounds::default());
    for _ in 0..ROUNDS {
        native.add(load.put_on(&servers.baseline).await?);
        ours.add(load.put_on(&servers.bridge).await?);
    }
    let (ours, native) = (ours.latency(), native.latency());
    let row = Row::plain("added median latency, 16 connections, not saturated", ours - native, "ms");
    Ok(row.note(format!("{ours:.2} to {native:.2} ms at {} turns/s", PACE * CONNECTIONS)))
}

/// What the processor did in the saturated rounds.
fn computing(ours: &Rounds, blank: &Rounds, pinned: &Rounds, native: &Rounds) -> [Row; 6] {
    let cpu = "processor time of a turn, user and kernel";
    [
        Row::plain(cpu, ours.cpu(), "µs").note(format!(
            "{:.0} µs in the baseline; of the process alone, in the saturated rounds",
            native.cpu()
        )),
        Row::new(
            "processor time of a turn, of the baseline's",
            ours.cpu() / native.cpu(),
            "times",
            Target::AtMost(2.3),
        ),
        Row::plain("processor time of a turn without a call", blank.cpu(), "µs")
            .note("a blank prompt, which the guest answers by itself"),
        Row::plain("processor time of a turn, bridge on one core", pinned.cpu(), "µs").note(format!(
            "one worker, {:.0} to {:.0} turns/s with all cores: the rest of a turn's time is workers that take its data from \
             each other",
            pinned.throughput(),
            ours.throughput()
        )),
        Row::neutral("cores that the bridge got, saturated", ours.cores(), "").note(format!(
            "processor time to elapsed time, {:.2} in the baseline; on a busy machine the processor time of a turn is lower, \
             because fewer workers run at once",
            native.cores()
        )),
        Row::plain("context switches of a turn", ours.voluntary() + ours.involuntary(), "").note(format!(
            "{:.2} voluntary, {:.2} not; {:.2} and {:.2} in the baseline",
            ours.voluntary(),
            ours.involuntary(),
            native.voluntary(),
            native.involuntary()
        )),
    ]
}

// === impl Servers ===

impl Servers {
    async fn start(bridge: &Bridge, gateway: &Gateway) -> Result<Self> {
        let mut servers = Self {
            bridge: bridge.start(&gateway.base_url())?,
            pinned: bridge.start_on_one_core(&gateway.base_url())?,
            baseline: bridge.start_baseline(gateway.address)?,
        };
        servers.bridge.ready().await.context("the bridge")?;
        servers.pinned.ready().await.context("the bridge on one core")?;
        servers.baseline.ready().await.context("the baseline")?;
        for server in [&servers.bridge, &servers.pinned, &servers.baseline] {
            Load { length: WARM_UP, ..FULL }.put_on(server).await?;
        }
        Ok(servers)
    }
}

// === impl Load ===

impl Load {
    /// Puts the load on a server, on all connections at once.
    pub(crate) async fn put_on(self, server: &Server) -> Result<Round> {
        let Self { connections, length, pace, ask } = self;
        let address = server.address;
        let (computed, switched) = (server.cpu()?, server.switches()?);
        let began = Instant::now();
        let end = began + length;
        let mut clients = JoinSet::new();
        let period = pace.map(|pace| Duration::from_secs(1) / pace);
        for index in 0..connections {
            // Spread over the period to avoid bursts.
            let ticks = period.map(|period| (period * index / connections, period));
            clients.spawn(client(address, end, ticks, ask));
        }
        let mut latencies = Vec::new();
        while let Some(client) = clients.join_next().await {
            latencies.append(&mut client?.with_context(|| server.said())?);
        }
        #[expect(clippy::cast_precision_loss, reason = "some thousands")]
        let turns = latencies.len() as f64;
        let computed = server.cpu()?.saturating_sub(computed).as_secs_f64();
        let switched = server.switches()? - switched;
        #[expect(clippy::cast_precision_loss, reason = "some hundred thousands")]
        let (voluntary, involuntary) = (switched.voluntary as f64, switched.involuntary as f64);
        Ok(Round {
            throughput: turns / length.as_secs_f64(),
            cpu: computed * 1e6 / turns.max(1.0),
            cores: computed / began.elapsed().as_secs_f64(),
            voluntary: voluntary / turns.max(1.0),
            involuntary: involuntary / turns.max(1.0),
            latency: median(&mut latencies),
            slow: quantile(&mut latencies, 0.99),
            longest: quantile(&mut latencies, 1.0),
        })
    }
}

/// Drives one connection. Returns the latencies of its turns in milliseconds.
async fn client(
    address: SocketAddr,
    end: Instant,
    ticks: Option<(Duration, Duration)>,
    ask: Ask,
) -> Result<Vec<f64>> {
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
        connection.ask(ask).await?;
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
    pub(crate) fn add(&mut self, round: Round) {
        self.0.push(round);
    }

    /// The median over the rounds; so are the values below.
    pub(crate) fn throughput(&self) -> f64 {
        self.middle(|round| round.throughput)
    }

    pub(crate) fn cpu(&self) -> f64 {
        self.middle(|round| round.cpu)
    }

    pub(crate) fn cores(&self) -> f64 {
        self.middle(|round| round.cores)
    }

    pub(crate) fn latency(&self) -> f64 {
        self.middle(|round| round.latency)
    }

    pub(crate) fn slow(&self) -> f64 {
        self.middle(|round| round.slow)
    }

    /// The longest latency of all rounds.
    pub(crate) fn longest(&self) -> f64 {
        self.0.iter().map(|round| round.longest).fold(0.0, f64::max)
    }

    fn voluntary(&self) -> f64 {
        self.middle(|round| round.voluntary)
    }

    fn involuntary(&self) -> f64 {
        self.middle(|round| round.involuntary)
    }

    fn middle(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(&mut self.0.iter().map(of).collect::<Vec<_>>())
    }
}
