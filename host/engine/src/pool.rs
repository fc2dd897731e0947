//! The engine and its two pools of instance slots.
//!
//! There are two pools because there are two kinds of guests. A compiled guest (Rust) has one memory and is cheap, so
//! its pool has many slots. A guest with an interpreter (JavaScript, Python) has several memories and dozens of core
//! instances, so its pool has few. One pool cannot serve both: a slot reserves 4 GiB of address space for each memory
//! that it may hold. The compiled code differs too: only scripted guests may use the asynchronous calls of the component
//! model, whose bookkeeping takes time in each call of a guest.
//!
//! The number of waiting turns is limited by the kernel's limit on mappings (`vm.max_map_count`) rather than by memory:
//! a turn takes six mappings. At that limit every `mmap` of the process fails, so the engine reduces the number of
//! slots to stay below it and logs a warning.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use talaria_budget::Budget;
use talaria_egress::Egress;
use talaria_redact::{Redactor, Replies, ReplyRedactor};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tracing::{info, warn};
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::cache::Cache;
use crate::compiler::Compiler;
use crate::contract::bindings;
use crate::host::Ctx;
use crate::session::{Claims, SessionKeys};

/// The configuration of an engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The maximum number of concurrent turns in guests with one memory.
    pub slots: u32,
    /// The maximum number of concurrent turns in guests with an interpreter.
    pub scripted_slots: u32,
    /// The folder that caches compiled components. If `None`, components are compiled at every start.
    pub cache_dir: Option<PathBuf>,
    /// Where components are compiled.
    pub compiler: Compiler,
    /// The memory that guests share with everything else that callers make the host hold.
    pub budget: Budget,
}

/// Why the engine could not start.
#[derive(Debug, thiserror::Error)]
#[error("the WebAssembly engine does not start: {0}; fewer `engine.slots` reserve fewer addresses")]
pub struct EngineError(String);

/// The engine. Clones are cheap; the ticker thread ends when the last clone is dropped.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
    session_keys: SessionKeys,
    claims: Claims,
    replies: ReplyRedactor,
}

struct Inner {
    compiled: Pool,
    scripted: Pool,
    cache: Option<Cache>,
    compiler: Compiler,
    egress: Egress,
    budget: Budget,
    /// Permits for guests that compute for longer than a tick.
    computing: Arc<Semaphore>,
    /// Permits for compilations.
    compiling: Arc<Semaphore>,
}

/// The kind of a guest, which decides how it is compiled and the pool that it runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One memory, few core instances, and no asynchronous calls of the component model.
    Compiled,
    /// Everything else.
    Scripted,
}

pub(crate) struct Pool {
    pub(crate) engine: wasmtime::Engine,
    pub(crate) linker: Linker<Ctx>,
    pub(crate) slots: u32,
}

/// How often a computing guest yields to others and has its CPU budget checked.
const TICK: Duration = Duration::from_millis(10);
/// The largest memory limit that a grant can set, in bytes.
const MAX_MEMORY: usize = 256 << 20;
/// The maximum number of concurrent compilations. One that timed out counts until its compiler has ended.
const COMPILERS: usize = 2;
/// The number of mappings that a waiting turn takes.
const MAPS_PER_TURN: u32 = 6;
/// The number of mappings left to the rest of the process.
const MAPS_RESERVED: u32 = 5_000;

/// The number of slots whose pages are returned to the kernel in one batch, at most. Each return makes all threads flush
/// their TLBs; one slot at a time it costs a fifth of a turn.
const BATCH: usize = 16;
/// The memory that a slot in a batch may hold: the default limit of a guest.
const SLOT: usize = 64 << 20;
/// Slots beyond those that turns may take: one batch whose pages are being returned and one that is filling up. Without
/// these, the last free slots could all be in such a batch when a turn begins, and the turn would fail as busy.
const SPARE: u32 = 32;

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            slots: 1_000,
            scripted_slots: 100,
            cache_dir: None,
            compiler: Compiler::default(),
            budget: Budget::unlimited(),
        }
    }
}

// === impl Engine ===

impl Engine {
    /// Creates an engine and starts its ticker thread.
    ///
    /// # Errors
    /// Returns [`EngineError`] if the address space for the pools cannot be reserved.
    pub fn new(config: &EngineConfig, egress: Egress) -> Result<Self, EngineError> {
        let (slots, scripted_slots) = clamp(config, max_map_count());
        let failed = |error: wasmtime::Error| EngineError(format!("{error:#}"));
        let batch = batch(config.budget.limit());
        let compiled = Pool::new(Kind::Compiled, slots, batch).map_err(failed)?;
        let scripted = Pool::new(Kind::Scripted, scripted_slots, batch).map_err(failed)?;
        tick(&[&compiled, &scripted]);
        let cache = config.cache_dir.as_deref().and_then(|folder| {
            Cache::open(folder, &[&compiled.engine, &scripted.engine])
                .inspect_err(
                    |error| warn!(%error, "components are compiled at every start: the cache is not safe"),
                )
                .ok()
        });
        // All but one of the runtime's threads may run guests that compute.
        let threads = Handle::try_current().map_or(2, |runtime| runtime.metrics().num_workers());
        let computing = Arc::new(Semaphore::new(threads.saturating_sub(1).max(1)));
        let compiling = Arc::new(Semaphore::new(COMPILERS));
        let compiler = config.compiler.clone();
        let budget = config.budget.clone();
        let inner =
            Arc::new(Inner { compiled, scripted, cache, compiler, egress, budget, computing, compiling });
        let replies = ReplyRedactor::new(Redactor::process().clone(), Replies::default());
        Ok(Self { inner, session_keys: SessionKeys::default(), claims: Claims::default(), replies })
    }

    /// Returns this engine with other metadata keys for session variables. They apply to components loaded through it.
    #[must_use]
    pub fn with_session_keys(self, session_keys: SessionKeys) -> Self {
        Self { session_keys, ..self }
    }

    /// Returns this engine with metadata keys that executors see only from callers that are believed.
    #[must_use]
    pub fn with_claims(self, claims: Claims) -> Self {
        Self { claims, ..self }
    }

    /// Returns this engine with another rule for what is redacted in replies, for components loaded through it.
    #[must_use]
    pub fn with_replies(self, replies: Replies) -> Self {
        Self { replies: ReplyRedactor::new(Redactor::process().clone(), replies), ..self }
    }

    pub(crate) fn replies(&self) -> &ReplyRedactor {
        &self.replies
    }

    pub(crate) fn session_keys(&self) -> SessionKeys {
        self.session_keys
    }

    pub(crate) fn claims(&self) -> Claims {
        self.claims
    }

    pub(crate) fn pool(&self, kind: Kind) -> &Pool {
        match kind {
            Kind::Compiled => &self.inner.compiled,
            Kind::Scripted => &self.inner.scripted,
        }
    }

    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.inner.cache.as_ref()
    }

    pub(crate) fn compiler(&self) -> &Compiler {
        &self.inner.compiler
    }

    pub(crate) fn egress(&self) -> &Egress {
        &self.inner.egress
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.inner.budget
    }

    pub(crate) fn computing(&self) -> &Arc<Semaphore> {
        &self.inner.computing
    }

    pub(crate) fn compiling(&self) -> &Arc<Semaphore> {
        &self.inner.compiling
    }

    /// Returns the maximum number of concurrent turns in guests with one memory and in guests with an interpreter.
    #[must_use]
    pub fn slots(&self) -> (u32, u32) {
        (self.inner.compiled.slots, self.inner.scripted.slots)
    }
}

// === impl Kind ===

impl Kind {
    /// Returns the most memories and core instances of a guest. Counted in real interpreters: QuickJS has up to 3
    /// memories, Python up to 38 core instances.
    pub(crate) fn most(self) -> (u32, u32) {
        match self {
            Self::Compiled => (1, 8),
            Self::Scripted => (3, 128),
        }
    }

    /// Returns the settings that decide what the compiler emits. An engine with these and without slots, which would
    /// reserve addresses, compiles for the pool.
    pub(crate) fn code_settings(self) -> Config {
        let mut config = Config::new();
        config
            .epoch_interruption(true)
            .memory_init_cow(true)
            .max_wasm_stack(512 << 10)
            .async_stack_size(1 << 20);
        if self == Self::Compiled {
            config.wasm_component_model_async(false).concurrency_support(false);
        }
        config
    }
}

// === impl Pool ===

impl Pool {
    fn new(kind: Kind, slots: u32, batch: usize) -> wasmtime::Result<Self> {
        let (memories, core_instances) = kind.most();
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
            .table_keep_resident(64 << 10)
            .decommit_batch_size(batch);
        let mut config = kind.code_settings();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling));
        let engine = wasmtime::Engine::new(&config)?;
        let mut linker = Linker::new(&engine);
        bindings::Executor::add_to_linker::<_, HasSelf<Ctx>>(&mut linker, |ctx| ctx)?;
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
        Ok(Self { engine, linker, slots })
    }
}

/// Starts the thread that advances the epoch of both pools until the last engine is dropped.
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
        warn!(%error, "epoch ticker not started; a guest that computes for ever will not be stopped");
    }
}

/// Returns how many slots are returned to the kernel at once. A slot in an unfinished batch still has its pages, which are
/// charged to nobody any more; each thread has its own batch. Together they may hold as much as the budget. There are two
/// threads that run turns for each core: a worker, and one of the shared runtime.
fn batch(budget: usize) -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    (budget / SLOT / (2 * threads)).clamp(1, BATCH)
}

fn max_map_count() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?.trim().parse().ok()
}

/// Reduces the configured slots to what the kernel's limit on mappings allows. A turn of an interpreter counts twice.
fn clamp(config: &EngineConfig, max_map_count: Option<u32>) -> (u32, u32) {
    let asked = (config.slots.max(1), config.scripted_slots.max(1));
    let Some(limit) = max_map_count else { return asked };
    let room = (limit.saturating_sub(MAPS_RESERVED) / MAPS_PER_TURN).max(4);
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
            MAPS_RESERVED + MAPS_PER_TURN * (asked.0 + 2 * asked.1)
        );
    }
    (compiled, scripted)
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};

    use super::*;

    #[test]
    fn an_engine_without_slots_compiles_for_a_pool() {
        let hash = |engine: &wasmtime::Engine| {
            let mut hasher = DefaultHasher::new();
            engine.precompile_compatibility_hash().hash(&mut hasher);
            hasher.finish()
        };
        for kind in [Kind::Compiled, Kind::Scripted] {
            let compiler = hash(&wasmtime::Engine::new(&kind.code_settings()).unwrap());
            assert_eq!(compiler, hash(&Pool::new(kind, 1, 1).unwrap().engine));
            assert_eq!(compiler, hash(&Pool::new(kind, 1, BATCH).unwrap().engine));
        }
    }

    #[test]
    fn limits_slots_to_the_kernels_mappings() {
        let asked = EngineConfig { slots: 20_000, scripted_slots: 400, ..EngineConfig::default() };
        let (compiled, scripted) = clamp(&asked, Some(65_530));
        assert_eq!(scripted, 400);
        assert_eq!(compiled, (65_530 - 5_000) / 6 - 800);
        assert_eq!(clamp(&asked, Some(262_144)), (20_000, 400));
        assert_eq!(clamp(&asked, None), (20_000, 400));
        let (compiled, scripted) = clamp(&asked, Some(1_000));
        assert!(compiled >= 1 && scripted >= 1, "even a tiny limit leaves one slot in each pool");
    }
}
