//! Components that would exhaust the host while they are compiled, and the processes that compile them.
//!
//! Tests of limits load a component in the test's own process, so that they can set the limits: the test is the host, and
//! the compiler is the real binary.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use talaria_egress::{Config, Egress};
use talaria_engine::{CompileLimits, Compiler, Component, Engine, EngineConfig, LoadError};
use talaria_fakes::{guest, soon};

use crate::bridge::{Bridge, Start};
use crate::examples;
use crate::swap::{Site, get, until};

/// Limits that the tests' components do not reach.
const AMPLE: CompileLimits =
    CompileLimits { memory: 16 << 30, code: 1 << 30, time: Duration::from_secs(280) };
const SIGXCPU: i32 = 24;
const TALARIA: &str = env!("CARGO_BIN_EXE_talaria");

/// An engine without a cache.
fn engine(limits: CompileLimits) -> Engine {
    let compiler = Compiler::Process { program: TALARIA.into(), limits };
    let config = EngineConfig { slots: 4, scripted_slots: 1, compiler, ..EngineConfig::default() };
    Engine::new(&config, Egress::new(Config::default())).unwrap()
}

async fn load(engine: &Engine, wasm: &[u8]) -> Result<Component, LoadError> {
    soon("the load ends", Component::load(engine, wasm, |_| ())).await
}

/// A component with one module, which passes every check that precedes the compiler.
fn component(module: &str) -> Vec<u8> {
    let wasm = wat::parse_str(format!(
        "(component (core module {module}) (component $none) (instance $none (instantiate $none))
            (export \"talaria:executor/strategy@0.1.0\" (instance $none)))"
    ));
    wasm.unwrap()
}

/// A component of a few hundred KiB that takes the compiler minutes and gigabytes: each of its loops may change one of its
/// locals, so the compiler keeps the value of every local at every loop.
fn endless() -> Vec<u8> {
    let locals = "i32 ".repeat(5_000);
    let change =
        |local| format!("loop local.get {local} i32.const 1 i32.add local.tee {local} br_if 0 end\n");
    let loops: String = (0..20_000).map(|number| change(number % 5_000)).collect();
    let wasm = component(&format!("(func (local {locals}) {loops})"));
    assert!(wasm.len() < 400 << 10, "{}", wasm.len());
    wasm
}

/// The processes that were started by this one, and have not been waited for.
fn children(of: u32) -> Vec<u32> {
    let ids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id| stat(*id).is_some_and(|(_, parent)| parent == of)).collect()
}

/// The state and the parent of a process.
fn stat(id: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Waits until a host compiles something. Returns the id of the compiler.
async fn compiler(of: u32) -> u32 {
    let mut found = None;
    until("a component is being compiled", async || {
        let is_compiler = |id: &u32| {
            let arguments = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
            arguments.contains("compile-component")
        };
        found = children(of).into_iter().find(is_compiler);
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// Waits until a process has ended, whether or not its parent knows.
async fn ended(id: u32) {
    until("the compiler ends", async || stat(id).is_none_or(|(state, _)| state == 'Z')).await;
}

/// A line of a process's `/proc/ID/status`, in KiB.
fn kib(id: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of the status");
    line.trim_matches(|char: char| !char.is_ascii_digit()).parse().unwrap()
}

#[tokio::test]
async fn a_component_that_takes_gigabytes_to_compile_is_refused_and_costs_the_host_nothing() {
    let (wasm, me) = (endless(), std::process::id());
    let engine = engine(CompileLimits { memory: 512 << 20, ..AMPLE });
    let before = kib(me, "VmHWM:");
    let error = load(&engine, &wasm).await.unwrap_err();
    assert!(matches!(error, LoadError::Compile(_)), "{error}");
    assert!(error.to_string().contains("it takes more than 512 MiB of memory"), "{error}");
    let grown = kib(me, "VmHWM:") - before;
    assert!(grown < 32 << 10, "the host took {grown} KiB for it");
    assert!(children(me).is_empty(), "no compiler is left");
    load(&engine, &guest("probe")).await.expect("the next one loads");
}

#[tokio::test]
async fn a_component_that_compiles_for_ever_is_stopped_at_the_deadline() {
    let (wasm, me) = (endless(), std::process::id());
    let engine = engine(CompileLimits { time: Duration::from_secs(1), ..AMPLE });
    let error = load(&engine, &wasm).await.unwrap_err();
    assert!(error.to_string().contains("it took longer than 1s"), "{error}");
    assert!(children(me).is_empty(), "no compiler is left");
}

#[tokio::test]
async fn a_component_with_too_much_machine_code_is_refused() {
    let engine = engine(CompileLimits { code: 4096, ..AMPLE });
    let error = load(&engine, &guest("probe")).await.unwrap_err();
    assert!(error.to_string().contains("its machine code has more than 4096 bytes"), "{error}");
}

/// The limit that holds if the host is stopped, and so cannot kill the compiler.
#[test]
fn a_compiler_without_a_host_ends_at_its_limit_of_processor_time() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), endless()).unwrap();
    let status = Command::new(TALARIA)
        .args(["compile-component", &AMPLE.memory.to_string(), &AMPLE.code.to_string(), "1"])
        .stdin(file.reopen().unwrap())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.signal(), Some(SIGXCPU), "{status}");
}

/// The open files of a process.
fn open_files(id: u32) -> BTreeSet<u32> {
    let open = fs::read_dir(format!("/proc/{id}/fd")).unwrap();
    open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
}

#[tokio::test]
async fn a_compiler_has_no_secrets_and_no_files_of_the_host() {
    let (wasm, me) = (endless(), std::process::id());
    // The runner of the tests may have left files open for every process that it starts.
    let from_the_runner = open_files(me);
    let file = fs::File::open(TALARIA).unwrap();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let opened = [file.as_raw_fd(), socket.as_raw_fd()].map(|fd| u32::try_from(fd).unwrap());
    let engine = engine(AMPLE);
    let loading = load(&engine, &wasm);
    let look = async {
        let id = compiler(me).await;
        let read = |name: &str| fs::read_to_string(format!("/proc/{id}/{name}")).unwrap();
        until("it has set its limits", async || read("oom_score_adj").trim() == "1000").await;
        assert_eq!(read("environ"), "");
        let open = open_files(id);
        assert!(open.is_subset(&from_the_runner) && opened.iter().all(|fd| !open.contains(fd)), "{open:?}");
        let limits = read("limits");
        for (name, value) in [("Max core file size", 0), ("Max address space", AMPLE.memory)] {
            let line = limits.lines().find(|line| line.starts_with(name)).expect("a limit");
            assert!(line.contains(&format!(" {value} ")), "{line}");
        }
        let niceness = read("stat").rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().to_owned();
        assert_eq!(niceness, "10");
        id
    };
    let id = tokio::select! {
        loaded = loading => panic!("{loaded:?}"),
        id = look => id,
    };
    // The load was dropped.
    ended(id).await;
}

#[tokio::test]
async fn a_compiler_that_is_killed_refuses_one_component_with_the_reason() {
    let (wasm, me) = (endless(), std::process::id());
    let engine = engine(AMPLE);
    let kill = async {
        let id = compiler(me).await;
        assert!(Command::new("kill").args(["-KILL", &id.to_string()]).status().unwrap().success());
    };
    let (loaded, ()) = tokio::join!(load(&engine, &wasm), kill);
    let error = loaded.unwrap_err().to_string();
    assert!(error.contains("the compiler was killed"), "{error}");
    load(&engine, &guest("probe")).await.expect("the next one loads");
}

#[tokio::test]
async fn the_reason_why_a_component_does_not_compile_is_that_of_the_compiler() {
    let error = load(&engine(AMPLE), &component("(func (result i32))")).await.unwrap_err();
    assert!(matches!(error, LoadError::Compile(_)), "{error}");
    assert!(error.to_string().contains("type mismatch: expected i32"), "{error}");
}

#[tokio::test]
async fn a_program_that_is_no_compiler_refuses_every_component() {
    for (program, why) in [
        ("/bin/false", "ended with code 1"),
        ("/nowhere", "does not start"),
        ("/bin/true", "failed to load code"),
    ] {
        let compiler = Compiler::Process { program: program.into(), limits: AMPLE };
        let config = EngineConfig { slots: 4, scripted_slots: 1, compiler, ..EngineConfig::default() };
        let engine = Engine::new(&config, Egress::new(Config::default())).unwrap();
        let error = load(&engine, &guest("probe")).await.unwrap_err();
        assert!(matches!(error, LoadError::Compile(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn no_compiler_outlives_the_host() {
    let ends: [fn(Bridge); 2] = [
        |bridge| {
            bridge.terminate();
            assert_eq!(bridge.end().0, Some(0));
        },
        Bridge::kill,
    ];
    for end in ends {
        let site = Site::new("");
        let bridge = site.up();
        site.put("endless.wasm", endless());
        let id = compiler(bridge.id()).await;
        end(bridge);
        ended(id).await;
    }
}

/// The component with a section that nobody reads, so that it is another one.
fn version(wasm: &[u8], number: u8) -> Vec<u8> {
    [wasm, &[0, 3, 1, b'v', number]].concat()
}

#[tokio::test]
async fn swaps_of_a_large_component_leave_the_host_as_small_as_it_was() {
    let wasm = fs::read(examples::component("redact")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("executors")).unwrap();
    let config = "[executors]\ndefault = \"conformance\"\n[engine]\ncache_dir = \"cache\"\n";
    let bridge = Start::new(folder.path()).config(config).log(&folder.path().join("log")).up();
    let size = || kib(bridge.id(), "RssAnon:");
    let before = size();
    for number in 1..=2 {
        let digest = async || get(&bridge, "/executors/redact").await["current"]["digest"].clone();
        let last = digest().await;
        fs::write(folder.path().join("executors/redact.wasm"), version(&wasm, number)).unwrap();
        until("the version is loaded", async || digest().await != last).await;
    }
    let grown = size().saturating_sub(before);
    assert!(grown < 100 << 10, "{grown} KiB more than the {before} KiB before");
}
