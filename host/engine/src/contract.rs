//! The contract, `wit/0.1.0`, and the check whether a component fits it.
//!
//! The check reads the names of the component's imports and exports before anything is compiled. A refusal therefore
//! takes microseconds, and its message names the version or the import, which a linker error would not. The check also
//! limits the amount of code: what it refuses needs no compiler, whose own limits are in `compiler`.

use wasmparser::{CanonicalFunction, CanonicalOption, Instance, Parser, Payload};

use crate::component::LoadError;
use crate::pool::Kind;

/// The bindings of the world `executor`, generated from the WIT files, which document them.
pub(crate) mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit/0.1.0",
        world: "executor",
        imports: {
            "talaria:executor/http": async | trappable,
            "talaria:executor/callback": async | trappable,
            "talaria:executor/events.emit": async | trappable,
            "talaria:executor/events.ask": async | trappable,
            "talaria:executor/events.pose": async | trappable,
            "talaria:executor/events.[method]question.wait": async | trappable,
            "talaria:executor/state": async | trappable,
            "talaria:executor/control.sleep": async | trappable,
            "talaria:executor/tools": async | trappable,
            default: trappable,
        },
        exports: { default: async },
        with: {
            "talaria:executor/http.exchange": crate::host::http::Exchange,
            "talaria:executor/callback.pending": crate::host::callback::Pending,
            "talaria:executor/events.question": crate::host::events::Question,
            "talaria:executor/span.span": crate::host::span::Span,
        },
    });
}

/// The bindings of the optional export `transcript`.
pub(crate) mod transcript {
    wasmtime::component::bindgen!({
        path: "../../wit/0.1.0",
        inline: "package talaria:host; world transcribed { export talaria:executor/transcript@0.1.0; }",
        world: "talaria:host/transcribed",
        exports: { default: async },
        with: { "talaria:executor/types": super::bindings::talaria::executor::types },
    });
}

/// The export that makes a component an executor, without its version.
const STRATEGY: &str = "talaria:executor/strategy";
/// The optional export that reads the transcript of an upstream, without its version.
const TRANSCRIPT: &str = "talaria:executor/transcript@";
/// The version of the contract that this host implements.
const VERSION: (u32, u32, u32) = (0, 1, 0);
/// The interfaces that the contract imports.
const IMPORTS: [&str; 10] =
    ["types", "http", "callback", "events", "state", "control", "log", "span", "config", "tools"];
/// The import that calls tools of the host, without its version.
const TOOLS: &str = "talaria:executor/tools@";
/// The WASI import that makes outbound calls.
const WASI_HTTP: &str = "wasi:http/outgoing-handler@";
/// The maximum number of functions in all modules of a component. Interpreters have some ten thousand.
const FUNCTIONS: usize = 200_000;
/// The size of the largest function body. The main loop of an interpreter has some hundred KiB. The time to compile a
/// function grows faster than its size.
const BODY: usize = 1 << 20;
/// The maximum size of all function bodies. Those of a Python interpreter have 10 MiB. Compiling takes some seconds per
/// MiB.
const CODE: usize = 64 << 20;
/// The WASI packages that the host links, at any 0.2 version.
const WASI: [&str; 6] = ["cli", "clocks", "filesystem", "io", "random", "sockets"];

/// The optional features of a component that fits, as its imports and exports show them.
pub(crate) struct Fits {
    /// Whether it imports `wasi:http`.
    pub(crate) wasi_http: bool,
    /// Whether it imports the tools of the host.
    pub(crate) tools: bool,
    /// Whether it exports a transcript.
    pub(crate) transcript: bool,
    pub(crate) kind: Kind,
}

/// Checks the imports, exports and code size of `wasm` against the contract.
pub(crate) fn check(wasm: &[u8]) -> Result<Fits, LoadError> {
    let surface = Surface::read(wasm)?;
    let found = surface.exports.iter().find_map(|name| name.strip_prefix(STRATEGY)).map(|rest| {
        // `rest` is "@0.1.0", or empty if the package has no version.
        rest.strip_prefix('@').unwrap_or("(no version)").to_owned()
    });
    let Some(found) = found else {
        return Err(LoadError::OtherWorld { exports: surface.exports.join(", ") });
    };
    if !fits(&found) {
        return Err(LoadError::OtherVersion { found, offered: version_text(VERSION) });
    }
    let wasi_http = surface.imports.iter().any(|name| name.starts_with(WASI_HTTP));
    let tools = surface.imports.iter().any(|name| name.starts_with(TOOLS));
    let transcript = surface.exports.iter().any(|name| name.starts_with(TRANSCRIPT));
    let kind = surface.kind();
    match surface.imports.into_iter().find(|name| !is_offered(name)) {
        Some(import) => Err(LoadError::UnknownImport { import, found, offered: version_text(VERSION) }),
        None => Ok(Fits { wasi_http, tools, transcript, kind }),
    }
}

/// Returns whether a component of this version runs on this host. It must have the same major and minor version and
/// must not be newer, since a later patch may add functions.
fn fits(version: &str) -> bool {
    parse(version)
        .is_some_and(|(major, minor, patch)| (major, minor) == (VERSION.0, VERSION.1) && patch <= VERSION.2)
}

fn is_offered(import: &str) -> bool {
    let (name, version) = import.split_once('@').unwrap_or((import, ""));
    if let Some(interface) = name.strip_prefix("talaria:executor/") {
        return IMPORTS.contains(&interface) && fits(version);
    }
    let Some((package, interface)) = name.strip_prefix("wasi:").and_then(|rest| rest.split_once('/')) else {
        return false;
    };
    let http = package == "http" && ["types", "outgoing-handler"].contains(&interface);
    (WASI.contains(&package) || http)
        && parse(version).is_some_and(|(major, minor, _)| (major, minor) == (0, 2))
}

fn parse(version: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = version.split('.').map(str::parse);
    let mut next = || numbers.next()?.ok();
    let parsed = (next()?, next()?, next()?);
    numbers.next().is_none().then_some(parsed)
}

fn version_text((major, minor, patch): (u32, u32, u32)) -> String {
    format!("{major}.{minor}.{patch}")
}

/// The names of a component's imports and exports, and what it needs of a slot.
struct Surface {
    imports: Vec<String>,
    exports: Vec<String>,
    memories: u32,
    core_instances: u32,
    /// Whether it uses asynchronous calls of the component model.
    asynchronous: bool,
}

impl Surface {
    fn read(wasm: &[u8]) -> Result<Self, LoadError> {
        let malformed = |error: wasmparser::BinaryReaderError| LoadError::NotAComponent(error.to_string());
        if wasm.is_empty() {
            return Err(LoadError::NotAComponent("the file is empty".into()));
        }
        if Parser::is_core_wasm(wasm) {
            return Err(LoadError::NotAComponent(
                "it is a core module; build it for wasm32-wasip2, or wrap it with wasm-component-ld".into(),
            ));
        }
        let mut surface = Self {
            imports: Vec::new(),
            exports: Vec::new(),
            memories: 0,
            core_instances: 0,
            asynchronous: false,
        };
        let mut depth = 0_usize;
        let (mut functions, mut code) = (0_usize, 0_usize);
        for payload in Parser::new(0).parse_all(wasm) {
            match payload.map_err(malformed)? {
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::CodeSectionEntry(body) => {
                    let bytes = body.range().len();
                    (functions, code) = (functions + 1, code.saturating_add(bytes));
                    if bytes > BODY || functions > FUNCTIONS || code > CODE {
                        return Err(LoadError::TooComplex { functions, code, largest: bytes });
                    }
                }
                Payload::MemorySection(section) => {
                    surface.memories = surface.memories.saturating_add(section.count());
                }
                Payload::InstanceSection(section) => {
                    let instances = section.into_iter().filter_map(Result::ok);
                    let instances = instances.filter(|made| matches!(made, Instance::Instantiate { .. }));
                    let count = u32::try_from(instances.count()).unwrap_or(u32::MAX);
                    surface.core_instances = surface.core_instances.saturating_add(count);
                }
                Payload::ComponentCanonicalSection(section) => {
                    let mut functions = section.into_iter().filter_map(Result::ok);
                    surface.asynchronous |= functions.any(|function| is_asynchronous(&function));
                }
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        surface.imports.push(import.map_err(malformed)?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        surface.exports.push(export.map_err(malformed)?.name.name.to_owned());
                    }
                }
                _ => {}
            }
        }
        Ok(surface)
    }

    fn kind(&self) -> Kind {
        let (memories, core_instances) = Kind::Compiled.most();
        let fits = self.memories <= memories && self.core_instances <= core_instances && !self.asynchronous;
        if fits { Kind::Compiled } else { Kind::Scripted }
    }
}

/// Whether a function between a component and its host exists for asynchronous calls only.
fn is_asynchronous(function: &CanonicalFunction) -> bool {
    match function {
        CanonicalFunction::Lift { options, .. } | CanonicalFunction::Lower { options, .. } => {
            options.contains(&CanonicalOption::Async)
        }
        CanonicalFunction::ResourceNew { .. }
        | CanonicalFunction::ResourceDrop { .. }
        | CanonicalFunction::ResourceRep { .. } => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_same_minor_version_unless_it_is_newer() {
        assert!(fits("0.1.0"));
        for other in ["0.1.1", "0.2.0", "1.1.0", "0.1", "0.1.0.0", "", "(no version)"] {
            assert!(!fits(other), "{other}");
        }
    }

    #[test]
    fn offers_only_the_contract_and_wasi() {
        for offered in [
            "talaria:executor/http@0.1.0",
            "wasi:io/streams@0.2.9",
            "wasi:cli/environment@0.2.0",
            "wasi:http/types@0.2.0",
            "wasi:http/outgoing-handler@0.2.3",
        ] {
            assert!(is_offered(offered), "{offered}");
        }
        for other in [
            "talaria:executor/http@0.2.0",
            "talaria:executor/nope@0.1.0",
            "wasi:http/incoming-handler@0.2.0",
            "wasi:http/types@0.3.0",
            "wasi:io/poll@0.3.0",
        ] {
            assert!(!is_offered(other), "{other}");
        }
    }

    /// The bindings are generated from the WIT files; only `IMPORTS` is written by hand and could differ from them.
    #[test]
    fn lists_the_same_imports_as_the_contract() {
        let world = include_str!("../../../wit/0.1.0/world.wit");
        let named: Vec<&str> = world
            .lines()
            .filter_map(|line| line.trim().strip_prefix("import "))
            .map(|name| name.trim_end_matches(';'))
            .collect();
        assert_eq!(named, IMPORTS[1..], "the world imports `types` implicitly, through `use`");
    }
}
