//! The time to the first piece of a streamed answer, through the bridge and from the upstream itself, alternately.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::gateway::{Gateway, Talk};
use crate::http1::completion;
use crate::process::Bridge;
use crate::stream::Stream;
use crate::table::{Row, Target, median, quantile};

/// The first piece at once, the end a little later, so that they do not arrive together.
const TALK: Talk = Talk { at_once: 1, pieces: 0, period: Duration::from_millis(3), bytes: 0, waits: false };
/// Pairs of connections, and the period of each: far below saturation.
const PAIRS: u32 = 4;
const PERIOD: Duration = Duration::from_millis(40);
const WARM_UP: usize = 50;
const ROUNDS: usize = 300;

/// The times of one pair of connections, in milliseconds.
#[derive(Default)]
struct Times {
    bridge: Vec<f64>,
    upstream: Vec<f64>,
}

pub(crate) async fn event(bridge: &Bridge) -> Result<Row> {
    let gateway = Gateway::talking(TALK).await?;
    let mut server = bridge.start(&gateway.base_url())?;
    server.ready().await?;
    let mut pairs = JoinSet::new();
    for index in 0..PAIRS {
        pairs.spawn(pair(server.address, gateway.address, PERIOD * index / PAIRS));
    }
    let mut all = Times::default();
    while let Some(pair) = pairs.join_next().await {
        let Times { mut bridge, mut upstream } = pair?.with_context(|| server.said())?;
        all.bridge.append(&mut bridge);
        all.upstream.append(&mut upstream);
    }
    let (ours, native) = (median(&mut all.bridge), median(&mut all.upstream));
    let slow = (quantile(&mut all.bridge, 0.99), quantile(&mut all.upstream, 0.99));
    let row = Row::new("added time to the first streamed event", ours - native, "ms", Target::Under(0.6));
    Ok(row.note(format!(
        "{ours:.2} to {native:.2} ms, medians of {} each, in turns, {} turns/s; 99 % under {:.2} to {:.2} ms",
        all.bridge.len(),
        PAIRS * 1_000 / u32::try_from(PERIOD.as_millis())?,
        slow.0,
        slow.1
    )))
}

/// Alternates between the two over kept connections.
async fn pair(bridge: SocketAddr, upstream: SocketAddr, after: Duration) -> Result<Times> {
    let mut ours = Stream::connect(bridge).await?;
    let mut native = Stream::connect(upstream).await?;
    let mut ticks = interval_at(Instant::now() + after, PERIOD / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut times = Times::default();
    for round in 0..WARM_UP + ROUNDS {
        ticks.tick().await;
        let request = completion(true);
        let started = Instant::now();
        native.post("/v1/chat/completions", &request).await?;
        native.first().await?;
        let upstream = started.elapsed();
        native.finish().await?;

        ticks.tick().await;
        let started = Instant::now();
        ours.send().await?;
        ours.first().await?;
        let bridge = started.elapsed();
        ours.finish().await?;
        if round >= WARM_UP {
            times.upstream.push(upstream.as_secs_f64() * 1e3);
            times.bridge.push(bridge.as_secs_f64() * 1e3);
        }
    }
    Ok(times)
}
