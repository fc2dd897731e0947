//! Measurements in this process: a turn without a network, the memory of a waiting turn, and the load of a component.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use talaria_engine::{Component, Engine, EngineConfig, Executor, GrantedTools, Limits, Spec, Wasi};
use talaria_fakes::guest;
use talaria_rig::Rig;
use talaria_store::Memory;
use talaria_turns::{Executor as _, Principal, Scope, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::table::{Row, Target, median, quantile};
use crate::usage::{self, cores};

/// Warm-up turns and measured turns.
const WARM_UP: usize = 500;
const TURNS: usize = 5_000;
/// Loads that are measured.
const LOADS: u8 = 7;
/// Turns that wait at once, as many as an engine has slots, and how long they may take to get there.
const WAITING: u32 = 1_000;
const SETTLE: Duration = Duration::from_secs(2);

/// Measures instantiate, execute and drop: one turn after the other, and on all threads at once.
pub(crate) async fn turns() -> Result<[Row; 2]> {
    let rig = Arc::new(Rig::new("probe").await);
    let mut alone = one_after_the_other(Arc::clone(&rig)).await?;
    let threads = cores();
    let mut together = Vec::new();
    let mut threads_left = threads;
    let mut running = JoinSet::new();
    while threads_left >= 1.0 {
        running.spawn(one_after_the_other(Arc::clone(&rig)));
        threads_left -= 1.0;
    }
    while let Some(took) = running.join_next().await {
        together.append(&mut took??);
    }
    let slow = [&mut alone, &mut together].map(|took| quantile(took, 0.99));
    let [alone, together] = [alone, together].map(|mut took| median(&mut took));
    let row = Row::new("a turn: instantiate, execute, drop", alone, "µs", Target::Under(150.0));
    let row = row.note(format!(
        "median of {TURNS} in process, guest `probe`, verb echo; 99 % under {:.0} µs",
        slow[0]
    ));
    let all = Row::plain("a turn: the same on all threads at once", together, "µs");
    Ok([row, all.note(format!("{threads:.0} threads, {TURNS} each; 99 % under {:.0} µs", slow[1]))])
}

/// Returns the time of each turn in microseconds.
async fn one_after_the_other(rig: Arc<Rig>) -> Result<Vec<f64>> {
    let executor = rig.executor();
    let store: Arc<dyn Store> = Arc::new(Memory::new(1));
    let mut took = Vec::with_capacity(TURNS);
    let never = CancellationToken::new();
    for round in 0..WARM_UP + TURNS {
        let turn = rig.turn("echo hi");
        let (scope, _said) = Scope::new(
            1,
            never.clone(),
            Arc::clone(&store),
            Principal::anyone(),
            turn.context.clone(),
            executor.name(),
        );
        let started = Instant::now();
        let result = executor.execute(turn, scope).await;
        let elapsed = started.elapsed();
        result.context("the probe does not echo")?;
        if round >= WARM_UP {
            took.push(elapsed.as_secs_f64() * 1e6);
        }
    }
    Ok(took)
}

/// Measures the resident memory of the sandbox alone: turns that wait in an import, without connections.
pub(crate) async fn waiting() -> Result<Row> {
    let engine = engine(None)?;
    let component = Component::load(&engine, guest("probe"), |_| ()).await?;
    let executor = Arc::new(Executor::new(Spec {
        name: "probe".into(),
        component: Arc::new(component),
        settings: serde_json::Map::new(),
        access: Arc::default(),
        limits: Limits::default(),
        wasi: Wasi::default(),
        callbacks: None,
        tools: GrantedTools::default(),
    }));
    let rig = Rig::new("probe").await;
    let store: Arc<dyn Store> = Arc::new(Memory::new(1));
    let never = CancellationToken::new();
    let begin = |text: &str| {
        let turn = rig.turn(text);
        let (scope, said) = Scope::new(
            1,
            never.clone(),
            Arc::clone(&store),
            Principal::anyone(),
            turn.context.clone(),
            "probe",
        );
        let executor = Arc::clone(&executor);
        async move { (executor.execute(turn, scope).await, said) }
    };
    // The first turn's set-up must not count.
    begin("echo hi").await.0?;
    let before = usage::proportional(std::process::id())?;
    let mut turns = JoinSet::new();
    for _ in 0..WAITING {
        turns.spawn(begin("sleep 600000"));
    }
    tokio::time::sleep(SETTLE).await;
    let grown = usage::proportional(std::process::id())? - before;
    if let Some(ended) = turns.try_join_next() {
        bail!("a turn ended that should wait: {:?}", ended?.0);
    }
    let row =
        Row::plain("resident memory of a waiting turn, sandbox only", grown / f64::from(WAITING), "KiB");
    Ok(row.note(format!("Pss with {WAITING} turns of the guest `probe` in its verb sleep, no connections")))
}

fn engine(cache_dir: Option<PathBuf>) -> Result<Engine> {
    let config = EngineConfig { cache_dir, ..EngineConfig::default() };
    Ok(Engine::new(&config, talaria_egress::Egress::new(talaria_egress::Config::default()))?)
}

/// Measures the load of components that are not in the cache: check, compile, cache, link, describe.
pub(crate) async fn load() -> Result<Row> {
    let cache = tempfile::tempdir()?;
    let engine = engine(Some(cache.path().to_owned()))?;
    let component = guest("chat-completions");
    let mut took = Vec::new();
    for variant in 0..LOADS {
        let wasm = with_section(&component, variant);
        let compiled = AtomicBool::new(false);
        let started = Instant::now();
        Component::load(&engine, wasm, |_| compiled.store(true, Ordering::Relaxed)).await?;
        took.push(started.elapsed().as_secs_f64() * 1e3);
        ensure!(compiled.into_inner(), "the component was known to the cache");
    }
    let row = Row::new("load of a new component", median(&mut took), "ms", Target::Under(300.0));
    Ok(row.note(format!("median of {LOADS}, chat-completions, {} KiB, empty cache", component.len() / 1024)))
}

/// Returns the component with another digest, by a custom section at its end.
fn with_section(component: &[u8], variant: u8) -> Vec<u8> {
    // Id 0, size 3: a name of one byte and one byte of content.
    [component, &[0, 3, 1, b'v', variant]].concat()
}
