//! A component, loaded: checked, compiled or taken from the cache, linked, and asked who it is.
//!
//! Only `.wasm` is accepted. A precompiled file is machine code, and an operator's folder is no place to take machine
//! code from.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;
use tracing::{debug, warn};
use wasmtime::component::ComponentExportIndex;

use crate::contract::{self, bindings, transcript};
use crate::host::{Ctx, Purpose};
use crate::limits::Limits;
use crate::pool::{Engine, Pool};
use crate::schema::{InvalidSettings, Schema};
use crate::{Description, executor};

/// A component that fits the contract and has said who it is.
pub struct Component {
    pub(crate) engine: Engine,
    pub(crate) pre: bindings::ExecutorPre<Ctx>,
    pub(crate) transcript: Option<transcript::TranscribedPre<Ctx>>,
    /// Where `execute` is: a turn looks at the types of that export and of no other.
    pub(crate) execute: ComponentExportIndex,
    digest: String,
    description: Description,
    schema: Schema,
    wasi_http: bool,
}

/// What happens while a component is loaded, for people who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It is compiled; the first time, or after an upgrade.
    Compiling {
        /// Size of the component.
        bytes: usize,
    },
    /// It was compiled.
    Compiled {
        /// How long it took.
        took: Duration,
    },
}

/// Why a component was refused. The host goes on without it.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Larger than any honest component.
    #[error("it has {bytes} bytes; {MAX_BYTES} are the most")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It would take too long to compile.
    #[error(
        "it would take too long to compile: {functions} functions or more, {code} bytes of them or more, one of {largest} bytes"
    )]
    TooComplex {
        /// Functions counted so far.
        functions: usize,
        /// Their bytes.
        code: usize,
        /// Bytes of the last one.
        largest: usize,
    },
    /// Truncated, a core module, or something else.
    #[error("it is not a component: {0}")]
    NotAComponent(String),
    /// It exports something, but no executor.
    #[error("it is of another world: it does not export talaria:executor/strategy (it exports: {exports})")]
    OtherWorld {
        /// What it exports.
        exports: String,
    },
    /// It was built for another version of the contract.
    #[error(
        "it was built for contract {found} and this host speaks {offered}; rebuild it against wit/{offered}"
    )]
    OtherVersion {
        /// The component's.
        found: String,
        /// The host's.
        offered: String,
    },
    /// It wants something that no host gives.
    #[error(
        "it imports `{import}`, which this host does not offer (built for contract {found}, this host speaks {offered})"
    )]
    UnknownImport {
        /// The import.
        import: String,
        /// The component's version.
        found: String,
        /// The host's.
        offered: String,
    },
    /// Names fit, types do not.
    #[error("its types do not fit the contract {contract}: {0}", contract = crate::CONTRACT)]
    Mismatch(String),
    /// It does not compile, or needs more than a slot has.
    #[error("it does not compile: {0}")]
    Compile(String),
    /// It did not say who it is.
    #[error("`describe` failed: {0}")]
    Describe(String),
}

/// The export that makes a component an executor.
const STRATEGY: &str = "talaria:executor/strategy@0.1.0";
/// The largest component. Python's are 18 MiB.
const MAX_BYTES: usize = 128 << 20;
/// What compiling may take. Python's component takes 8 s on two quiet cores.
const COMPILE: Duration = Duration::from_secs(120);
/// How far compilers give way: half of the scale.
const NICE: i32 = 10;
/// What `describe` may take, an interpreter's start included.
const DESCRIBE: Duration = Duration::from_secs(5);

// === impl Component ===

impl Component {
    /// Loads a component. `progress` hears of stages that take a while.
    ///
    /// # Errors
    /// [`LoadError`], which says what is wrong with the component.
    pub async fn load(
        engine: &Engine,
        wasm: impl Into<Arc<[u8]>>,
        progress: impl Fn(Stage) + Send,
    ) -> Result<Self, LoadError> {
        let wasm: Arc<[u8]> = wasm.into();
        if wasm.len() > MAX_BYTES {
            return Err(LoadError::TooLarge { bytes: wasm.len() });
        }
        let fits = contract::check(&wasm)?;
        let digest = hex(&Sha256::digest(&wasm));
        let (pool, loaded) = Self::code(engine, &wasm, &digest, progress).await?;
        let mismatch = |error: wasmtime::Error| LoadError::Mismatch(format!("{error:#}"));
        let pre = pool.linker.instantiate_pre(&loaded).map_err(mismatch)?;
        let transcript = fits.transcript.then(|| transcript::TranscribedPre::new(pre.clone()));
        let transcript = transcript.transpose().map_err(mismatch)?;
        let pre = bindings::ExecutorPre::new(pre).map_err(mismatch)?;
        let execute = loaded
            .get_export_index(None, STRATEGY)
            .and_then(|strategy| loaded.get_export_index(Some(&strategy), "execute"))
            .ok_or_else(|| LoadError::Mismatch("it exports no `execute`".into()))?;
        let description = describe(engine, &pool.engine, &pre, fits.transcript).await?;
        let schema = Schema::read(&description.settings_schema)
            .map_err(|why| LoadError::Describe(format!("`settings-schema`: {why}")))?;
        let (engine, wasi_http) = (engine.clone(), fits.wasi_http);
        Ok(Self { engine, pre, transcript, execute, digest, description, schema, wasi_http })
    }

    /// The component's digest, sha256 in hex.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Who the component says it is.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Whether it makes outbound calls by `wasi:http`, beside what it says that it needs.
    #[must_use]
    pub fn uses_wasi_http(&self) -> bool {
        self.wasi_http
    }

    /// Whether it shows what its upstream remembers.
    #[must_use]
    pub fn has_transcript(&self) -> bool {
        self.transcript.is_some()
    }

    /// Settings for an executor of this component: those given, above the defaults of its schema.
    ///
    /// # Errors
    /// [`InvalidSettings`] where they do not fit the schema.
    pub fn settings(&self, given: &Map<String, Value>) -> Result<Map<String, Value>, InvalidSettings> {
        self.schema.settle(given)
    }

    /// The machine code, from the cache or compiled now, in the pool that it fits.
    async fn code<'e>(
        engine: &'e Engine,
        wasm: &Arc<[u8]>,
        digest: &str,
        progress: impl Fn(Stage) + Send,
    ) -> Result<(&'e Pool, wasmtime::component::Component), LoadError> {
        if let Some(path) = engine.cache().and_then(|cache| cache.get(digest)) {
            match place(engine, &Code::File(path)) {
                Ok(placed) => return Ok(placed),
                Err(error) => {
                    debug!(%error, digest, "the cached component does not load; compiling it again")
                }
            }
        }
        progress(Stage::Compiling { bytes: wasm.len() });
        let started = Instant::now();
        let code = compile(engine, wasm, COMPILE).await?;
        progress(Stage::Compiled { took: started.elapsed() });
        let code = match engine.cache().map(|cache| cache.put(digest, &code)) {
            Some(Ok(path)) => Code::File(path),
            Some(Err(error)) => {
                warn!(%error, "a compiled component was not kept; it is compiled again at the next start");
                Code::Bytes(code)
            }
            None => Code::Bytes(code),
        };
        place(engine, &code).map_err(|error| LoadError::Compile(format!("{error:#}")))
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component")
            .field("name", &self.description.name)
            .field("digest", &self.digest)
            .finish()
    }
}

enum Code {
    File(PathBuf),
    Bytes(Vec<u8>),
}

/// Maps the code into the first pool that it fits.
fn place<'e>(
    engine: &'e Engine,
    code: &Code,
) -> wasmtime::Result<(&'e Pool, wasmtime::component::Component)> {
    let [compiled, scripted] = engine.pools();
    match map(&compiled.engine, code) {
        Ok(component) => Ok((compiled, component)),
        Err(_) => Ok((scripted, map(&scripted.engine, code)?)),
    }
}

#[expect(unsafe_code, reason = "the code was compiled by this process, or by one of ours: see `cache`")]
fn map(engine: &wasmtime::Engine, code: &Code) -> wasmtime::Result<wasmtime::component::Component> {
    match code {
        // SAFETY: `cache` hands out only files that nobody but us can have written, and `put` writes only what the
        // compiler gave.
        Code::File(path) => unsafe { wasmtime::component::Component::deserialize_file(engine, path) },
        // SAFETY: these bytes come from the compiler, in this process.
        Code::Bytes(bytes) => unsafe { wasmtime::component::Component::deserialize(engine, bytes) },
    }
}

/// Compiles on threads of its own that give way to everything else. A compiler cannot be stopped: one that takes too long
/// is left behind, its result dropped, and it holds its place until it ends. What it may be given is bounded before.
async fn compile(engine: &Engine, wasm: &Arc<[u8]>, within: Duration) -> Result<Vec<u8>, LoadError> {
    let failed = |why: String| LoadError::Compile(why);
    let late = || failed(format!("it took longer than {within:?}"));
    let deadline = tokio::time::Instant::now() + within;
    let waiting = Arc::clone(engine.compiling()).acquire_owned();
    let Ok(Ok(place)) = tokio::time::timeout_at(deadline, waiting).await else {
        return Err(failed("others that take long are being compiled; try again later".into()));
    };
    // Which pool compiles does not matter: they differ in slots, not in code.
    let [compiler, _] = engine.pools().map(|pool| pool.engine.clone());
    let bytes = Arc::clone(wasm);
    let (done, compiled) = oneshot::channel();
    let work = move || {
        let _place = place;
        let threads = rayon::ThreadPoolBuilder::new()
            .thread_name(|_| "compile".into())
            .start_handler(|_| give_way())
            .build()
            .map_err(wasmtime::Error::from);
        // Nobody listens any more after the deadline.
        let _ =
            done.send(threads.and_then(|threads| threads.install(|| compiler.precompile_component(&bytes))));
    };
    std::thread::Builder::new()
        .name("compile".into())
        .spawn(work)
        .map_err(|error| failed(format!("no thread: {error}")))?;
    match tokio::time::timeout_at(deadline, compiled).await {
        Ok(Ok(Ok(code))) => Ok(code),
        Ok(Ok(Err(error))) => Err(failed(format!("{error:#}"))),
        Ok(Err(_)) => Err(failed("the compiler panicked".into())),
        Err(_) => Err(late()),
    }
}

/// Puts this thread behind those that answer callers.
fn give_way() {
    // On Linux this is of the calling thread.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        debug!(%error, "compiling at the same priority as everything else");
    }
}

async fn describe(
    engine: &Engine,
    pool: &wasmtime::Engine,
    pre: &bindings::ExecutorPre<Ctx>,
    transcribed: bool,
) -> Result<Description, LoadError> {
    let limits = Limits { deadline: DESCRIBE, cpu: DESCRIBE, ..Limits::default() };
    let ctx = Ctx::new(Purpose::Describe, &limits, engine.computing());
    let described = executor::call(pool, ctx, limits.deadline, async |store| {
        let instance = pre.instance_pre().instantiate_async(&mut *store).await?;
        // The types of exports are checked here, against an instance.
        let checked = bindings::Executor::new(&mut *store, &instance).and_then(|executor| {
            if transcribed {
                transcript::Transcribed::new(&mut *store, &instance)?;
            }
            Ok(executor)
        });
        match checked {
            Ok(executor) => executor.talaria_executor_strategy().call_describe(store).await.map(Ok),
            Err(error) => Ok(Err(LoadError::Mismatch(format!("{error:#}")))),
        }
    });
    let description = described.await.map_err(|end| LoadError::Describe(end.to_string()))??;
    check(&description).map_err(LoadError::Describe)?;
    Ok(description)
}

fn check(description: &Description) -> Result<(), String> {
    let name = &description.name;
    let valid = !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if !valid {
        return Err(format!("`name` is {name:?}; 1 to 64 characters of a-z, 0-9 and - are allowed"));
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
