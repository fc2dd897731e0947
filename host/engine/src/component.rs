//! Loading of a component: check it against the contract, compile it or take it from the cache, link it, and call its
//! `describe`.
//!
//! Only `.wasm` is accepted. A precompiled file is machine code, and the host trusts no machine code from an operator's
//! folder.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tracing::{debug, warn};
use wasmtime::component::ComponentExportIndex;

use crate::contract::{self, bindings, transcript};
use crate::host::{Ctx, Purpose};
use crate::limits::Limits;
use crate::pool::{Engine, Kind, Pool};
use crate::schema::{InvalidSettings, Schema};
use crate::{Description, compiler, executor};

/// A loaded component that fits the contract and has described itself.
pub struct Component {
    pub(crate) engine: Engine,
    pub(crate) pre: bindings::ExecutorPre<Ctx>,
    pub(crate) transcript: Option<transcript::TranscribedPre<Ctx>>,
    /// The index of the export `execute`, so that a turn checks the types of that export only.
    pub(crate) execute: ComponentExportIndex,
    digest: String,
    description: Description,
    schema: Schema,
    wasi_http: bool,
    tools: bool,
    /// The size of its memories after it described itself.
    pub(crate) memory: usize,
}

/// A slow stage of loading a component, for progress messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Compilation has started: at the first load, or after an upgrade.
    Compiling {
        /// The size of the component.
        bytes: usize,
    },
    /// Compilation has finished.
    Compiled {
        /// How long it took.
        took: Duration,
    },
}

/// Why a component was refused. The host keeps running without it.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The component is larger than the limit.
    #[error("it has {bytes} bytes; {MAX_BYTES} are the most")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The component has too much code to compile in time.
    #[error(
        "it would take too long to compile: {functions} functions or more, {code} bytes of them or more, one of {largest} bytes"
    )]
    TooComplex {
        /// The number of functions when counting stopped.
        functions: usize,
        /// The size of their bodies.
        code: usize,
        /// The size of the last body.
        largest: usize,
    },
    /// The file is truncated, a core module, or not WebAssembly.
    #[error("it is not a component: {0}")]
    NotAComponent(String),
    /// The component does not export the interface of an executor.
    #[error("it is of another world: it does not export talaria:executor/strategy (it exports: {exports})")]
    OtherWorld {
        /// The names of its exports.
        exports: String,
    },
    /// The component was built for another version of the contract.
    #[error(
        "it was built for contract {found} and this host speaks {offered}; rebuild it against wit/{offered}"
    )]
    OtherVersion {
        /// The version of the component.
        found: String,
        /// The version of the host.
        offered: String,
    },
    /// The component imports something that this host does not offer.
    #[error(
        "it imports `{import}`, which this host does not offer (built for contract {found}, this host speaks {offered})"
    )]
    UnknownImport {
        /// The name of the import.
        import: String,
        /// The version of the component.
        found: String,
        /// The version of the host.
        offered: String,
    },
    /// The names of imports and exports fit the contract, but their types do not.
    #[error("its types do not fit the contract {contract}: {0}", contract = crate::CONTRACT)]
    Mismatch(String),
    /// The component does not compile, or needs more than a slot offers.
    #[error("it does not compile: {0}")]
    Compile(String),
    /// The call of `describe` failed, or its result is invalid.
    #[error("`describe` failed: {0}")]
    Describe(String),
}

/// The export that makes a component an executor.
const STRATEGY: &str = "talaria:executor/strategy@0.1.0";
/// The size of the largest component. A component with a Python interpreter has 18 MiB.
pub(crate) const MAX_BYTES: usize = 128 << 20;
/// The deadline of `describe`, which includes the start of an interpreter.
const DESCRIBE: Duration = Duration::from_secs(5);

// === impl Component ===

impl Component {
    /// Loads a component. `progress` is called at each slow stage.
    ///
    /// # Errors
    /// Returns [`LoadError`] if the component is refused.
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
        let (pool, loaded) = Self::code(engine, &wasm, &digest, fits.kind, progress).await?;
        let mismatch = |error: wasmtime::Error| LoadError::Mismatch(format!("{error:#}"));
        let pre = pool.linker.instantiate_pre(&loaded).map_err(mismatch)?;
        let transcript = fits.transcript.then(|| transcript::TranscribedPre::new(pre.clone()));
        let transcript = transcript.transpose().map_err(mismatch)?;
        let pre = bindings::ExecutorPre::new(pre).map_err(mismatch)?;
        let execute = loaded
            .get_export_index(None, STRATEGY)
            .and_then(|strategy| loaded.get_export_index(Some(&strategy), "execute"))
            .ok_or_else(|| LoadError::Mismatch("it exports no `execute`".into()))?;
        let (description, memory) = describe(engine, &pool.engine, &pre, fits.transcript).await?;
        let schema = Schema::read(&description.settings_schema)
            .map_err(|why| LoadError::Describe(format!("`settings-schema`: {why}")))?;
        let (engine, wasi_http, tools) = (engine.clone(), fits.wasi_http, fits.tools);
        Ok(Self { engine, pre, transcript, execute, digest, description, schema, wasi_http, tools, memory })
    }

    /// Returns the SHA-256 digest of the component, in hex.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the description that the component gave of itself.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns whether the component imports `wasi:http`, and so may make outbound calls beyond its declared needs.
    #[must_use]
    pub fn uses_wasi_http(&self) -> bool {
        self.wasi_http
    }

    /// Returns whether the component can call tools of the host.
    #[must_use]
    pub fn uses_tools(&self) -> bool {
        self.tools
    }

    /// Returns whether the component exports a transcript of its upstream.
    #[must_use]
    pub fn has_transcript(&self) -> bool {
        self.transcript.is_some()
    }

    /// Returns the settings of an executor of this component: the given ones, with the schema's defaults for the rest.
    ///
    /// # Errors
    /// Returns [`InvalidSettings`] if they do not fit the schema.
    pub fn settings(&self, given: &Map<String, Value>) -> Result<Map<String, Value>, InvalidSettings> {
        self.schema.settle(given)
    }

    /// Returns the machine code, cached or newly compiled, together with the pool that it fits.
    async fn code<'e>(
        engine: &'e Engine,
        wasm: &Arc<[u8]>,
        digest: &str,
        kind: Kind,
        progress: impl Fn(Stage) + Send,
    ) -> Result<(&'e Pool, wasmtime::component::Component), LoadError> {
        if let Some(path) = engine.cache().and_then(|cache| cache.get(digest)) {
            match map_into_pool(engine, &path) {
                Ok(placed) => return Ok(placed),
                Err(error) => {
                    debug!(%error, digest, "cached component does not load; compiling it again")
                }
            }
        }
        let mut kind = kind;
        loop {
            progress(Stage::Compiling { bytes: wasm.len() });
            let started = Instant::now();
            let code = compiler::compile(engine, wasm, kind).await?;
            progress(Stage::Compiled { took: started.elapsed() });
            let cached = engine.cache().map(|cache| cache.put(digest, code.file()));
            let path = match cached {
                Some(Ok(path)) => path,
                Some(Err(error)) => {
                    warn!(%error, "compiled component not cached; will compile again at the next start");
                    code.path()
                }
                None => code.path(),
            };
            match map_into_pool(engine, &path) {
                Ok(placed) => return Ok(placed),
                // It needs more of a slot than its sections show, such as tables.
                Err(_) if kind == Kind::Compiled => kind = Kind::Scripted,
                Err(error) => return Err(LoadError::Compile(format!("{error:#}"))),
            }
        }
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

/// Maps the code into the pool that it was compiled for.
fn map_into_pool<'e>(
    engine: &'e Engine,
    code: &Path,
) -> wasmtime::Result<(&'e Pool, wasmtime::component::Component)> {
    let [compiled, scripted] = [Kind::Compiled, Kind::Scripted].map(|kind| engine.pool(kind));
    match map(&compiled.engine, code) {
        Ok(component) => Ok((compiled, component)),
        Err(_) => Ok((scripted, map(&scripted.engine, code)?)),
    }
}

#[expect(unsafe_code, reason = "the code was compiled by this program under this user; see `cache`")]
fn map(engine: &wasmtime::Engine, code: &Path) -> wasmtime::Result<wasmtime::component::Component> {
    // SAFETY: the file has no name, or `cache` returned it, which returns only files that no other user can have written.
    // Only the output of a compiler that has ended is in it, and nobody writes to it any more.
    unsafe { wasmtime::component::Component::deserialize_file(engine, code) }
}

async fn describe(
    engine: &Engine,
    pool: &wasmtime::Engine,
    pre: &bindings::ExecutorPre<Ctx>,
    transcribed: bool,
) -> Result<(Description, usize), LoadError> {
    let limits = Limits { deadline: DESCRIBE, cpu: DESCRIBE, ..Limits::default() };
    let ctx = Ctx::new(Purpose::Describe, &limits, engine.computing(), engine.budget());
    let described = executor::call(pool, ctx, limits.deadline, async |store| {
        let instance = pre.instance_pre().instantiate_async(&mut *store).await?;
        // The types of exports can only be checked against an instance.
        let checked = bindings::Executor::new(&mut *store, &instance).and_then(|executor| {
            if transcribed {
                transcript::Transcribed::new(&mut *store, &instance)?;
            }
            Ok(executor)
        });
        match checked {
            Ok(executor) => {
                let description = executor.talaria_executor_strategy().call_describe(&mut *store).await?;
                Ok(Ok((description, store.data().memory.used())))
            }
            Err(error) => Ok(Err(LoadError::Mismatch(format!("{error:#}")))),
        }
    });
    let (description, memory) = described.await.map_err(|end| LoadError::Describe(end.to_string()))??;
    check(&description).map_err(LoadError::Describe)?;
    Ok((description, memory))
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
