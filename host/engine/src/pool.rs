//! Engines, and the slots that instances live in.
//!
//! Two pools, because guests come in two shapes: compiled ones (Rust) have one memory and are cheap, so there are
//! many slots; interpreters (JavaScript, Python) have several memories and dozens of core instances, so there are
//! few. A slot reserves 4 GiB of addresses for each memory it may hold, which is why one pool cannot serve both.
//!
//! The kernel's bound on mappings (`vm.max_map_count`) is the real limit of waiting turns, not memory: six mappings
//! a turn. At the bound every `mmap` of the process fails, so slots are clamped below it, with a warning.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use talaria_egress::Egress;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tracing::{info, warn};
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::cache::Cache;
use crate::contract::bindings;
use crate::host::Ctx;
use crate::session::SessionKeys;

/// How an engine is set up.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Turns at once in guests with one memory.
    pub slots: u32,
    /// Turns at once in guests with an interpreter inside.
    pub scripted_slots: u32,
    /// Where compiled components are kept; none to compile at every start.
    pub cache_dir: Option<PathBuf>,
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
#[error("the WebAssembly engine does not start: {0}; fewer `engine.slots` reserve fewer addresses")]
pub struct EngineError(String);

/// The engine. Cheap to clone; the ticker ends with the last clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
    session_keys: SessionKeys,
}

struct Inner {
    compiled: Pool,
    scripted: Pool,
    cache: Option<Cache>,
    egress: Egress,
    /// Places for guests that compute for longer than a tick.
    computing: Arc<Semaphore>,
    /// Places for compilers.
    compiling: Arc<Semaphore>,
}

pub(crate) struct Pool {
    pub(crate) engine: wasmtime::Engine,
    pub(crate) linker: Linker<Ctx>,
    pub(crate) slots: u32,
}

/// How often a guest that computes lets others run, and is looked at.
const TICK: Duration = Duration::from_millis(10);
/// The largest memory that a grant can give.
const MAX_MEMORY: usize = 256 << 20;
/// Components that are compiled at once. One that was given up still holds its place until the compiler is done with it.
const COMPILERS: usize = 2;
/// Mappings of a turn that waits, and what the rest of the process needs.
const MAPS_A_TURN: u32 = 6;
const MAPS_OF_THE_REST: u32 = 5_000;

/// Slots whose pages are given back at once.
const BATCH: usize = 16;
/// Slots beyond those that turns may take: a batch that is being given back, and the next that is waiting for it. Without them the last
/// free slots could be among these just when a turn begins, and it would be told that there is no room.
const SPARE: u32 = 32;

impl Default for EngineConfig {
    fn default() -> Self {
        Self { slots: 1_000, scripted_slots: 100, cache_dir: None }
    }
}

// === impl Engine ===

impl Engine {
    /// Sets the engine up and starts its ticker.
    ///
    /// # Errors
    /// [`EngineError`] where the pools cannot be reserved.
    pub fn new(config: &EngineConfig, egress: Egress) -> Result<Self, EngineError> {
        let (slots, scripted_slots) = clamp(config, max_map_count());
        let failed = |error: wasmtime::Error| EngineError(format!("{error:#}"));
        // What interpreters need was counted: QuickJS has up to 3 memories, Python up to 38 core instances.
        let compiled = Pool::new(slots, 1, 8).map_err(failed)?;
        let scripted = Pool::new(scripted_slots, 3, 128).map_err(failed)?;
        tick(&[&compiled, &scripted]);
        let cache = config.cache_dir.as_deref().and_then(|folder| {
            Cache::open(folder, &compiled.engine)
                .inspect_err(
                    |error| warn!(%error, "components are compiled at every start: the cache is not safe"),
                )
                .ok()
        });
        // All but one of the runtime's threads.
        let threads = Handle::try_current().map_or(2, |runtime| runtime.metrics().num_workers());
        let computing = Arc::new(Semaphore::new(threads.saturating_sub(1).max(1)));
        let compiling = Arc::new(Semaphore::new(COMPILERS));
        let inner = Arc::new(Inner { compiled, scripted, cache, egress, computing, compiling });
        Ok(Self { inner, session_keys: SessionKeys::default() })
    }

    /// The same engine, for components that are loaded from now on: metadata under these keys sets session variables.
    #[must_use]
    pub fn with_session_keys(self, session_keys: SessionKeys) -> Self {
        Self { session_keys, ..self }
    }

    pub(crate) fn session_keys(&self) -> SessionKeys {
        self.session_keys
    }

    pub(crate) fn pools(&self) -> [&Pool; 2] {
        [&self.inner.compiled, &self.inner.scripted]
    }

    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.inner.cache.as_ref()
    }

    pub(crate) fn egress(&self) -> &Egress {
        &self.inner.egress
    }

    pub(crate) fn computing(&self) -> &Arc<Semaphore> {
        &self.inner.computing
    }

    pub(crate) fn compiling(&self) -> &Arc<Semaphore> {
        &self.inner.compiling
    }

    /// Turns that can run at once in guests with one memory, and in guests with an interpreter.
    #[must_use]
    pub fn slots(&self) -> (u32, u32) {
        (self.inner.compiled.slots, self.inner.scripted.slots)
    }
}

// === impl Pool ===

impl Pool {
    fn new(slots: u32, memories: u32, core_instances: u32) -> wasmtime::Result<Self> {
        let reserved = slots + SPARE;
        let mut pooling = PoolingAllocationConfig::new();
        pooling
            .total_component_instances(slots)
            .total_stacks(reserved)
            .total_memories(reserved * memories)
            .max_memories_per_component(memories)
            .total_core_instances(reserved * core_instances)
            .max_core_instances_per_component(core_instances)
            .total_tables(reserved * 4)
            .max_tables_per_component(40)
            .max_memory_size(MAX_MEMORY)
            .max_unused_warm_slots(100)
            .pagemap_scan(Enabled::Auto)
            .linear_memory_keep_resident(256 << 10)
            // Giving pages back one slot at a time costs a fifth of a turn: each time all threads flush their TLBs.
            .table_keep_resident(64 << 10)
            .decommit_batch_size(BATCH);
        let mut config = Config::new();
        config
            .epoch_interruption(true)
            .memory_init_cow(true)
            .max_wasm_stack(512 << 10)
            .async_stack_size(1 << 20)
            .allocation_strategy(InstanceAllocationStrategy::Pooling(pooling));
        let engine = wasmtime::Engine::new(&config)?;
        let mut linker = Linker::new(&engine);
        bindings::Executor::add_to_linker::<_, HasSelf<Ctx>>(&mut linker, |ctx| ctx)?;
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
        Ok(Self { engine, linker, slots })
    }
}

/// One thread ticks for both pools until the last engine is gone.
fn tick(pools: &[&Pool]) {
    let engines: Vec<_> = pools.iter().map(|pool| pool.engine.weak()).collect();
    let ticker = std::thread::Builder::new().name("epoch".into()).spawn(move || {
        loop {
            std::thread::sleep(TICK);
            let alive = engines.iter().filter_map(wasmtime::EngineWeak::upgrade);
            if alive.map(|engine| engine.increment_epoch()).count() == 0 {
                return;
            }
        }
    });
    if let Err(error) = ticker {
        warn!(%error, "no ticker: a guest that spins is not stopped");
    }
}

fn max_map_count() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?.trim().parse().ok()
}

/// Slots that the kernel has mappings for. An interpreter's turn counts as two.
fn clamp(config: &EngineConfig, max_map_count: Option<u32>) -> (u32, u32) {
    let asked = (config.slots.max(1), config.scripted_slots.max(1));
    let Some(limit) = max_map_count else { return asked };
    let room = (limit.saturating_sub(MAPS_OF_THE_REST) / MAPS_A_TURN).max(4);
    let scripted = asked.1.min(room / 4).max(1);
    let compiled = asked.0.min(room - 2 * scripted).max(1);
    if (compiled, scripted) == asked {
        info!(compiled, scripted, "slots for turns");
    } else {
        warn!(
            compiled,
            scripted,
            asked_compiled = asked.0,
            asked_scripted = asked.1,
            "fewer slots than asked for: vm.max_map_count is {limit}; raise it with `sysctl -w vm.max_map_count={}`",
            MAPS_OF_THE_REST + MAPS_A_TURN * (asked.0 + 2 * asked.1)
        );
    }
    (compiled, scripted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_stay_below_the_kernels_mappings() {
        let asked = EngineConfig { slots: 20_000, scripted_slots: 400, cache_dir: None };
        let (compiled, scripted) = clamp(&asked, Some(65_530));
        assert_eq!(scripted, 400);
        assert_eq!(compiled, (65_530 - 5_000) / 6 - 800);
        assert_eq!(clamp(&asked, Some(262_144)), (20_000, 400));
        assert_eq!(clamp(&asked, None), (20_000, 400));
        let (compiled, scripted) = clamp(&asked, Some(1_000));
        assert!(compiled >= 1 && scripted >= 1, "a tiny limit still leaves room for one");
    }
}
