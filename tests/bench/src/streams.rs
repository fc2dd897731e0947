//! A thousand open streams: the memory of a silent one, and how late events are when all of them are busy.
//!
//! Measured twice, because the two ways to a thousand streams load different parts: a few tasks with many readers each,
//! where the bridge mostly writes the same event many times, and one task per stream, where each event also passes from
//! the upstream through a guest into the log.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::gateway::{Gateway, Talk};
use crate::mark;
use crate::process::{Bridge, Server};
use crate::stream::{self, Stream};
use crate::table::{Row, Target, quantile};
use crate::usage;

const STREAMS: usize = 1_000;
/// Tasks in the first case; each has an equal share of the streams.
const TASKS: usize = 10;
/// 20 events a second for 20 seconds.
const TALK: Talk = Talk { at_once: 0, pieces: 400, period: Duration::from_millis(50), bytes: 0, waits: true };
const LATE_MS: f64 = 100.0;
/// How long the last events may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the process may settle before its memory is measured.
const SETTLE: Duration = Duration::from_secs(1);

/// The lateness of events, in milliseconds.
#[derive(Default)]
struct Late {
    /// Relative to the time at which they were due.
    due: Vec<f64>,
    /// The upstream's own share of that.
    upstream: Vec<f64>,
}

pub(crate) async fn open(bridge: &Bridge) -> Result<Vec<Row>> {
    let (idle, few) = few_tasks(bridge).await?;
    Ok(vec![idle, few, many_tasks(bridge).await?])
}

async fn few_tasks(bridge: &Bridge) -> Result<(Row, Row)> {
    let gateway = Gateway::talking(TALK).await?;
    let server = start(bridge, &gateway).await?;
    let mut tasks = Vec::new();
    for mut sender in stream::senders(&server, &gateway, TASKS).await? {
        tasks.push(sender.task().await?);
    }
    sleep(SETTLE).await;
    let before = server.resident()?;
    let mut readers = Vec::new();
    for task in tasks.iter().cycle().take(STREAMS) {
        let mut reader = Stream::connect(server.address).await?;
        reader.subscribe(task).await.with_context(|| server.said())?;
        reader.task().await?;
        readers.push(reader);
    }
    sleep(SETTLE).await;
    #[expect(clippy::cast_precision_loss, reason = "a thousand")]
    let each = (server.resident()? - before) / STREAMS as f64;
    let idle = Row::new("resident memory of an idle stream", each, "KiB", Target::Under(32.0)).note(format!(
        "growth with {STREAMS} subscriptions to {TASKS} tasks that wait, each over a connection of its own"
    ));
    let name = "lateness of events, 1,000 streams of 10 tasks";
    Ok((idle, lateness(name, &server, &gateway, readers).await?))
}

async fn many_tasks(bridge: &Bridge) -> Result<Row> {
    let gateway = Gateway::talking(TALK).await?;
    let server = start(bridge, &gateway).await?;
    let readers = stream::senders(&server, &gateway, STREAMS).await?;
    lateness("lateness of events, 1,000 streams of 1,000 tasks", &server, &gateway, readers).await
}

async fn start(bridge: &Bridge, gateway: &Gateway) -> Result<Server> {
    bridge.start(&gateway.base_url())?.ready().await?;
    let mut server = bridge.start(&gateway.base_url())?;
    server.ready().await?;
    Ok(server)
}

/// Lets the upstream send, reads everything, and returns the lateness.
async fn lateness(
    name: &'static str,
    server: &Server,
    gateway: &Gateway,
    streams: Vec<Stream>,
) -> Result<Row> {
    let expected = streams.len() * usize::try_from(TALK.pieces)?;
    let length = TALK.period * TALK.pieces;
    let began = Instant::now();
    let mut reading = JoinSet::new();
    for stream in streams {
        reading.spawn(read(stream, began + length + PATIENCE));
    }
    let computed = (server.cpu()?, usage::cpu(std::process::id())?);
    gateway.begin();
    let mut all = Late::default();
    while let Some(read) = reading.join_next().await {
        let Late { mut due, mut upstream } = read?.with_context(|| server.said())?;
        all.due.append(&mut due);
        all.upstream.append(&mut upstream);
    }
    let took = began.elapsed().as_secs_f64();
    let cores = |before: Duration, now: Duration| now.saturating_sub(before).as_secs_f64() / took;
    let bridge = cores(computed.0, server.cpu()?);
    let load = cores(computed.1, usage::cpu(std::process::id())?);
    let full = if bridge + load > 0.9 * usage::cores() { ", which is all there is" } else { "" };
    let missing = expected.saturating_sub(all.due.len());
    // Lost events count as later than all others.
    all.due.resize(expected, took * 1e3);

    let (middle, most) = (quantile(&mut all.due, 0.5), quantile(&mut all.due, 1.0));
    let row = Row::new(name, quantile(&mut all.due, 0.99), "ms", Target::Under(LATE_MS));
    Ok(row.note(format!(
        "99th percentile of {expected} events, {:.0}/s on each stream; median {middle:.1}, most {most:.0} ms, {missing} \
         never came; the upstream itself {:.1} ms late; cores: bridge {bridge:.2}, load and upstream {load:.2}{full}",
        1.0 / TALK.period.as_secs_f64(),
        quantile(&mut all.upstream, 0.99),
    )))
}

/// Reads a stream to its end, or until the deadline.
async fn read(mut stream: Stream, until: Instant) -> Result<Late> {
    let mut late = Late::default();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let mut note = |mark: mark::Mark| {
        late.due.push(millis(mark::now().saturating_sub(mark.due)));
        late.upstream.push(millis(mark.sent.saturating_sub(mark.due)));
    };
    while let Ok(more) = timeout_at(until, stream.marks(&mut note)).await
        && more?
    {}
    Ok(late)
}
