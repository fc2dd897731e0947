//! The duration of a turn beside attacking guests, compared with the same turn alone.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use talaria_engine::{Executor, Limits};
use talaria_fakes::{FakeGateway, Reply};
use talaria_rig::Rig;
use talaria_store::Memory;
use talaria_turns::{Executor as _, Principal, Scope, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::table::{Row, Target, median, quantile};

/// Measured turns, alone and beside each attack.
const TURNS: usize = 2_000;
/// Concurrent attackers: twice the threads of a small machine.
const ATTACKERS: usize = 4;

/// Measures one row per attack.
pub(crate) async fn beside() -> Result<Vec<Row>> {
    let gateway = FakeGateway::always(Reply::status(200, "text/plain", "ok")).await;
    let url = format!("{}/x", gateway.base_url());
    let probe = Rig::new("probe").await;
    let hostile = Rig::new("hostile").await.setting("base_url", gateway.base_url());
    let unlimited =
        Limits { calls: u32::MAX, events: u32::MAX, output_bytes: usize::MAX, ..Limits::default() };
    let hostile = hostile.limits(unlimited);
    // Warm up.
    turns(&probe, TURNS / 4).await?;
    let (alone, _) = turns(&probe, TURNS).await?;
    let attacks = [
        ("a turn beside guests that spin", "spin".to_owned()),
        ("a turn beside guests that flood the log", "log 1000000000".to_owned()),
        ("a turn beside guests that flood with events", "emit 1000000000".to_owned()),
        ("a turn beside guests that flood with calls", format!("calls 1000000000 {url}")),
    ];
    let mut rows = Vec::new();
    for (name, attack) in attacks {
        let mut attackers = JoinSet::new();
        for _ in 0..ATTACKERS {
            let (running, mut said) = hostile.begin(hostile.turn(&attack));
            attackers.spawn(async move {
                let read = async { while said.recv().await.is_some() {} };
                let _ = tokio::join!(running, read);
            });
        }
        let (now, slow) = turns(&probe, TURNS).await?;
        attackers.abort_all();
        while attackers.join_next().await.is_some() {}
        let row = Row::new(name, now / alone, "x", Target::Under(1.5));
        rows.push(row.note(format!(
            "medians of {TURNS}: {now:.0} µs beside {ATTACKERS}, {alone:.0} µs alone; 99 % under {slow:.0} µs"
        )));
    }
    Ok(rows)
}

/// Runs turns, each on a task of its own as in the bridge. Returns the median and the 99th percentile in µs.
async fn turns(rig: &Rig, count: usize) -> Result<(f64, f64)> {
    let executor: Arc<Executor> = Arc::new(rig.executor());
    let store: Arc<dyn Store> = Arc::new(Memory::new(1));
    let mut took = Vec::with_capacity(count);
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let turn = rig.turn("echo hi");
        let never = CancellationToken::new();
        let context = turn.context.clone();
        let (scope, said) =
            Scope::new(1, never, Arc::clone(&store), Principal::anyone(), context, executor.name());
        let executor = Arc::clone(&executor);
        tasks.spawn(async move {
            let _said = said;
            let started = Instant::now();
            let result = executor.execute(turn, scope).await;
            (started.elapsed(), result.map(drop))
        });
        let (elapsed, result) = tasks.join_next().await.context("no turn")??;
        result.context("the probe does not echo")?;
        took.push(elapsed.as_secs_f64() * 1e6);
    }
    let slow = quantile(&mut took, 0.99);
    Ok((median(&mut took), slow))
}
