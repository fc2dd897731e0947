//! The contract, `wit/0.1.0`, and whether a component fits it.
//!
//! Fitness is read off the component's own import and export names before anything is compiled: refusing takes
//! microseconds, and the answer names the version or the import instead of a linker's complaint.

use wasmparser::{Parser, Payload};

use crate::component::LoadError;

/// Generated from the WIT files, where the documentation is.
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

/// The export that a component may have beside it.
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
/// The export of a component that shows what its upstream remembers, without its version.
const TRANSCRIPT: &str = "talaria:executor/transcript@";
/// The contract's version on this side.
const VERSION: (u32, u32, u32) = (0, 1, 0);
/// What the contract imports.
const IMPORTS: [&str; 9] =
    ["types", "http", "callback", "events", "state", "control", "log", "span", "config"];
/// The import that makes outbound calls without the contract.
const WASI_HTTP: &str = "wasi:http/outgoing-handler@";
/// Functions that a component may have, all its modules together. Interpreters have some ten thousand.
const FUNCTIONS: usize = 200_000;
/// The largest function, in bytes of its body. An interpreter's main loop has some hundred KiB, and what compiling one
/// function takes grows faster than its size.
const BODY: usize = 1 << 20;
/// Bytes of all functions. Python's are 10 MiB; it takes some seconds a MiB to compile them.
const CODE: usize = 64 << 20;
/// WASI packages that are linked, at any 0.2 version.
const WASI: [&str; 6] = ["cli", "clocks", "filesystem", "io", "random", "sockets"];

/// What a component that fits says of itself by the names on its outside.
pub(crate) struct Fits {
    /// It brings calls of its own, by `wasi:http`.
    pub(crate) wasi_http: bool,
    /// It shows what its upstream remembers.
    pub(crate) transcript: bool,
}

/// Checks the shape of `wasm` against the contract.
pub(crate) fn check(wasm: &[u8]) -> Result<Fits, LoadError> {
    let surface = Surface::read(wasm)?;
    let found = surface.exports.iter().find_map(|name| name.strip_prefix(STRATEGY)).map(|rest| {
        // "@0.1.0", or nothing where the package has no version.
        rest.strip_prefix('@').unwrap_or("(no version)").to_owned()
    });
    let Some(found) = found else {
        return Err(LoadError::OtherWorld { exports: surface.exports.join(", ") });
    };
    if !fits(&found) {
        return Err(LoadError::OtherVersion { found, offered: version_text(VERSION) });
    }
    let wasi_http = surface.imports.iter().any(|name| name.starts_with(WASI_HTTP));
    let transcript = surface.exports.iter().any(|name| name.starts_with(TRANSCRIPT));
    match surface.imports.into_iter().find(|name| !is_offered(name)) {
        Some(import) => Err(LoadError::UnknownImport { import, found, offered: version_text(VERSION) }),
        None => Ok(Fits { wasi_http, transcript }),
    }
}

/// A component of the same track that is not newer than the host: functions may have been added since.
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

/// The names on the outside of a component.
struct Surface {
    imports: Vec<String>,
    exports: Vec<String>,
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
        let mut surface = Self { imports: Vec::new(), exports: Vec::new() };
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_of_the_track_fits_unless_it_is_newer() {
        assert!(fits("0.1.0"));
        for other in ["0.1.1", "0.2.0", "1.1.0", "0.1", "0.1.0.0", "", "(no version)"] {
            assert!(!fits(other), "{other}");
        }
    }

    #[test]
    fn only_the_contract_and_wasi_are_offered() {
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

    /// The bindings are generated from it, so what remains to keep true is the list of names above.
    #[test]
    fn the_list_of_imports_is_the_contracts() {
        let world = include_str!("../../../wit/0.1.0/world.wit");
        let named: Vec<&str> = world
            .lines()
            .filter_map(|line| line.trim().strip_prefix("import "))
            .map(|name| name.trim_end_matches(';'))
            .collect();
        assert_eq!(named, IMPORTS[1..], "`types` comes along by use");
    }
}
