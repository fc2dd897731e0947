//! The child process that compiles one component, and the arguments by which the host starts it.
//!
//! It bounds itself before it reads its input, so that nothing which the component says can come before the limits. A
//! limit that cannot be set ends it: it never compiles without.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::{CompileLimits, lower_priority};
use crate::component::MAX_BYTES;
use crate::pool::Kind;

/// The first argument of a child. It is not a command for users.
const COMMAND: &str = "compile-component";
/// The exit code if the component does not compile; the reason is on standard error.
pub(super) const REFUSED: i32 = 65;
/// The exit code if the compiler noticed that it is out of memory. Mostly it is aborted.
pub(super) const OUT_OF_MEMORY: i32 = 71;
/// The maximum number of threads of a compilation. Each works on one function at a time and reserves 64 MiB of addresses,
/// which count as memory.
const THREADS: usize = 8;

enum Failure {
    /// The component does not compile.
    Component(wasmtime::Error),
    /// The child does not work.
    Child(String),
}

/// The last argument of a child that compiles a scripted guest.
const SCRIPTED: &str = "scripted";

/// Returns the arguments of a child that compiles a guest of this kind with these limits.
pub(super) fn arguments(
    CompileLimits { memory, code, time }: CompileLimits,
    kind: Kind,
) -> impl Iterator<Item = String> {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let limits = [COMMAND.into(), memory.to_string(), code.to_string(), seconds.to_string()];
    limits.into_iter().chain((kind == Kind::Scripted).then(|| SCRIPTED.into()))
}

/// Compiles a component if this process was started for it, by [`Compiler::Process`](crate::Compiler::Process). Returns
/// the code to exit with.
///
/// The `main` of a program that uses that compiler must call this first: before it reads its arguments, and before it
/// starts threads, which would keep their priority.
#[must_use]
pub fn compile_if_child() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let (code, text) = match run(arguments) {
        Ok(()) => return Some(ExitCode::SUCCESS),
        Err(Failure::Component(error)) if error.is::<wasmtime::OutOfMemory>() => {
            (OUT_OF_MEMORY, String::new())
        }
        Err(Failure::Component(error)) => (REFUSED, format!("{error:#}")),
        Err(Failure::Child(why)) => (1, why),
    };
    // Nobody is left to read it if this fails.
    let _ = io::stderr().write_all(text.as_bytes());
    Some(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn run(mut arguments: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let failed = |what: &'static str| move |error: io::Error| Failure::Child(format!("{what}: {error}"));
    let mut number = || arguments.next()?.to_str()?.parse().ok();
    let (Some(memory), Some(code), Some(seconds)) = (number(), number(), number()) else {
        return Err(Failure::Child(format!("{COMMAND} is started by the host only")));
    };
    let limits = CompileLimits { memory, code, time: Duration::from_secs(seconds) };
    let is_scripted = arguments.next().is_some_and(|kind| kind == SCRIPTED);
    let kind = if is_scripted { Kind::Scripted } else { Kind::Compiled };
    confine(limits).map_err(failed("no limits"))?;
    let mut wasm = Vec::new();
    let input = io::stdin().lock().take(MAX_BYTES as u64).read_to_end(&mut wasm);
    input.map_err(failed("no component"))?;
    let engine = wasmtime::Engine::new(&kind.code_settings()).map_err(Failure::Component)?;
    let compiled = threads().and_then(|threads| threads.install(|| engine.precompile_component(&wasm)));
    let code = compiled.map_err(Failure::Component)?;
    // Not `Stdout`, which searches for line feeds.
    let output = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    output.and_then(|mut output| output.write_all(&code)).map_err(failed("no room for its code"))
}

/// Bounds this process, and makes it the first to be killed if the machine is out of memory.
fn confine(CompileLimits { memory, code, time }: CompileLimits) -> io::Result<()> {
    // This follows the thread that started the child, a thread of the host's runtime, which ends with the host.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    limit(Resource::Core, 0, 0)?;
    limit(Resource::As, memory, memory)?;
    limit(Resource::Fsize, code, code)?;
    // The host kills this process at its deadline. This is for a host that is stopped or stuck. At the lower limit the
    // kernel sends a signal that tells the reason, at the upper one it kills.
    let seconds = time.as_secs().max(1) * count_threads() as u64;
    limit(Resource::Cpu, seconds, seconds + 1)?;
    lower_priority();
    // A kernel without this file has no such killer.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}

/// Lowers a limit of this process. A lower one that the operator has set stays.
fn limit(resource: Resource, current: u64, maximum: u64) -> io::Result<()> {
    let allowed = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limits = Rlimit { current: Some(current.min(allowed)), maximum: Some(maximum.min(allowed)) };
    Ok(setrlimit(resource, limits)?)
}

fn count_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |threads| threads.get().min(THREADS))
}

/// Returns the threads of one compilation, with low priority.
pub(super) fn threads() -> wasmtime::Result<rayon::ThreadPool> {
    let threads = rayon::ThreadPoolBuilder::new()
        .num_threads(count_threads())
        .thread_name(|_| "compile".into())
        .start_handler(|_| lower_priority());
    Ok(threads.build()?)
}
