//! Operators' executors: the examples in Rust, Python and JavaScript that `cargo xtask examples` builds.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use talaria_engine::{Component, Engine, EngineConfig};
use talaria_fakes::{FakeGateway, Reply, guest};
use talaria_rig::Rig;

use crate::table::{Row, Target, median, quantile};

/// Measured loads, after the one that compiles.
const LOADS: usize = 9;
/// Warm-up turns and measured turns.
const WARM_UP: usize = 20;
const TURNS: usize = 200;

/// Measures the load from bytes to a described executor, with the machine code in the cache.
pub(crate) async fn loads() -> Result<Vec<Row>> {
    let cache = tempfile::tempdir()?;
    let config = EngineConfig { cache_dir: Some(cache.path().to_owned()), ..EngineConfig::default() };
    let engine = Engine::new(&config, talaria_egress::Egress::new(talaria_egress::Config::default()))?;
    let mut rows = Vec::new();
    for (row, name, most) in [
        ("load from the cache, Rust", "race", 10.0),
        ("load from the cache, Python", "redact", 250.0),
        ("load from the cache, JavaScript", "by-language", 250.0),
    ] {
        let wasm = example(name)?;
        let bytes = wasm.len() >> 10;
        Component::load(&engine, wasm.clone(), |_| ()).await?;
        let mut took = Vec::new();
        for _ in 0..LOADS {
            let (wasm, compiled) = (wasm.clone(), AtomicBool::new(false));
            let started = Instant::now();
            Component::load(&engine, wasm, |_| compiled.store(true, Ordering::Relaxed)).await?;
            took.push(started.elapsed().as_secs_f64() * 1e3);
            ensure!(!compiled.into_inner(), "{name} was not in the cache");
        }
        let row = Row::new(row, median(&mut took), "ms", Target::Under(most));
        rows.push(row.note(format!("median of {LOADS}, {name}, {bytes} KiB: digest, map, link, describe")));
    }
    Ok(rows)
}

/// Measures a buffered turn with an upstream that answers at once; the first row is the reference for the others.
pub(crate) async fn turns() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let gateway = FakeGateway::always(Reply::completion("It is sunny.")).await;
    for (row, name, wasm, settings) in [
        (
            "a turn with a call, Rust (chat-completions)",
            "chat-completions",
            guest("chat-completions"),
            &["base_url"][..],
        ),
        ("a turn with a call, Python (redact)", "redact", example("redact")?, &["base_url"]),
        (
            "a turn with a call, JavaScript (by-language)",
            "by-language",
            example("by-language")?,
            &["english_url", "other_url"],
        ),
    ] {
        let rig = Rig::of(wasm).await;
        let rig = settings.iter().fold(rig, |rig, setting| rig.setting(setting, gateway.base_url()));
        let mut took = Vec::new();
        for round in 0..WARM_UP + TURNS {
            let started = Instant::now();
            let ran = rig.run("What is the weather like in the north?").await;
            let elapsed = started.elapsed();
            ran.result.with_context(|| format!("{name} does not answer"))?;
            if round >= WARM_UP {
                took.push(elapsed.as_secs_f64() * 1e3);
            }
        }
        let slow = quantile(&mut took, 0.99);
        let row = Row::plain(row, median(&mut took), "ms");
        rows.push(row.note(format!(
            "median of {TURNS} in process, one call to an upstream on loopback; 99 % under {slow:.1} ms"
        )));
    }
    Ok(rows)
}

fn example(name: &str) -> Result<Vec<u8>> {
    // `target/PROFILE/talaria-bench`.
    let here = std::env::current_exe()?;
    let target = here.ancestors().nth(2).map_or_else(PathBuf::new, PathBuf::from);
    let path = target.join("examples").join(format!("{name}.wasm"));
    std::fs::read(&path)
        .with_context(|| format!("there is no {}; build it with `cargo xtask examples`", path.display()))
}
