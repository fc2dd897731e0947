//! A round trip through a plugin, which answers by callback: the latency that the bridge adds, and the memory of a waiting
//! turn.

use std::time::Duration;

use anyhow::{Context as _, Result};
use talaria_client::{Delivery, Message};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::http1::{Ask, client, prompt};
use crate::load::{Load, Rounds};
use crate::plugin::Plugin;
use crate::process::Bridge;
use crate::table::{Row, Target};

/// Far below saturation, as in the paced rounds of the load.
const PACED: Load =
    Load { connections: 16, length: Duration::from_secs(2), pace: Some(25), ask: Ask::Prompt };
const WARM_UP: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;
/// Concurrent senders of the turns that wait.
const SENDERS: usize = 16;
/// How long all of them may take to arrive at the plugin.
const ARRIVE: Duration = Duration::from_secs(300);
/// How long the process may settle before it is measured.
const SETTLE: Duration = Duration::from_secs(1);

/// Measures the time that the bridge adds to a round trip.
pub(crate) async fn round_trip(bridge: &Bridge) -> Result<Row> {
    let plugin = Plugin::fast().await?;
    let mut ours = bridge.start_plugin(&plugin.inbound_url(), &Settings::default())?;
    let mut native = bridge.start_callback_baseline(plugin.address)?;
    ours.ready().await.context("the bridge")?;
    native.ready().await.context("the baseline")?;
    for server in [&ours, &native] {
        Load { length: WARM_UP, ..PACED }.put_on(server).await?;
    }
    let [mut bridge, mut baseline] = std::array::from_fn(|_| Rounds::default());
    for _ in 0..ROUNDS {
        baseline.add(PACED.put_on(&native).await?);
        bridge.add(PACED.put_on(&ours).await?);
    }
    let (ours, native) = (bridge.latency(), baseline.latency());
    let row = Row::new("added median of a callback round trip", ours - native, "ms", Target::Under(1.0));
    Ok(row.note(format!(
        "{ours:.2} to {native:.2} ms, {ROUNDS} rounds of {} s each, in turns, {} turns/s; processor time {:.0} to {:.0} µs",
        PACED.length.as_secs(),
        PACED.connections * PACED.pace.unwrap_or_default(),
        bridge.cpu(),
        baseline.cpu(),
    )))
}

/// Measures the resident memory of a turn that waits for its callback. No request waits for it.
pub(crate) async fn waiting(bridge: &Bridge, turns: usize) -> Result<Row> {
    let plugin = Plugin::hanging().await?;
    // A slot for scripted components takes the mappings of two turns, and this run has none to spare.
    let more = format!(
        "[engine]\nslots = {turns}\nscripted_slots = 10\n[limits]\nturns = {turns}\ntasks = {turns}\n"
    );
    let concurrency = format!("concurrency = {turns}\n");
    let settings = Settings { more: &more, executor: &concurrency };
    // Compilation leaves memory behind, so the measured process starts with a warm cache.
    bridge.start_plugin(&plugin.inbound_url(), &settings)?.ready().await?;
    let mut server = bridge.start_plugin(&plugin.inbound_url(), &settings)?;
    server.ready().await?;
    sleep(SETTLE).await;
    let (idle, mapped_before) = (server.proportional()?, server.resident()?);

    let mut senders = JoinSet::new();
    for index in 0..SENDERS {
        let many = turns / SENDERS + usize::from(index < turns % SENDERS);
        let client = client(server.address)?;
        senders.spawn(async move {
            for _ in 0..many {
                client.send(&Message::new(prompt()), Delivery::Detached).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent?.with_context(|| server.said())?;
    }
    timeout(ARRIVE, plugin.asked(turns)).await.with_context(|| {
        let arrived = plugin.messages();
        format!("{arrived} of {turns} turns reached the plugin within {ARRIVE:?}: {}", server.said())
    })??;
    sleep(SETTLE).await;
    let (waiting, mapped) = (server.proportional()?, server.resident()?);
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let number = turns as f64;
    let (each, mapped) = ((waiting - idle) / number, (mapped - mapped_before) / number);
    let row =
        Row::new("resident memory of a turn that waits for its callback", each, "KiB", Target::AtMost(80.0));
    Ok(row.note(format!(
        "Pss; VmRSS grows by {mapped:.0} KiB, since it counts the component's file once a turn; {turns} of them, \
         {:.0} MiB in all, with `engine.slots`, `limits.turns` and `concurrency` = {turns}, \
         `engine.scripted_slots` = 10, vm.max_map_count = {}; each takes six mappings",
        waiting / 1024.0,
        std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default().trim(),
    )))
}

/// Configuration beside the plugin's address.
#[derive(Default)]
pub(crate) struct Settings<'a> {
    /// Whole sections.
    pub(crate) more: &'a str,
    /// Lines of the executor's section.
    pub(crate) executor: &'a str,
}
