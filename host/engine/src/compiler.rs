//! Compilation of components, in a process that can be killed.
//!
//! What a compiler takes follows from the shape of the code more than from its size: a component of 358 KiB can make it
//! run for minutes and take gigabytes, and a compiler on a thread cannot be stopped. So the host starts its own binary
//! once more for each compilation. That child bounds its memory, CPU time and output before it reads the first byte, and
//! the host kills it at the deadline. Everything that the compiler allocated is returned to the system when the child
//! ends; on threads of the host, an allocator would keep it (650 MiB after two Python components).
//!
//! The child reads the component from its standard input and writes machine code to its standard output, which is a file
//! in memory without a name. So the code does not pass through the host's heap, and no draft is left on disk if either
//! process is killed. The child has no environment, so it holds no secrets, and inherits no file that the host opened. It
//! ends with its parent. Whatever ends it, the component is refused with the reason, and the next compilation is not
//! affected.
//!
//! The default is to compile on threads of this process, because a library cannot know that the `main` of its program
//! calls [`compile_if_child`]; the binary of the product does. On threads, a compilation that takes too long is refused,
//! but goes on and holds its permit until it returns. Forking without starting a binary is no alternative: a copy of a
//! process with threads may find any lock held for ever.

mod child;

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

pub use child::compile_if_child;

use crate::component::LoadError;
use crate::pool::{Engine, Kind};

/// Where components are compiled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Compiler {
    /// On threads of this process, without a limit of memory. A compilation that takes too long cannot be stopped.
    #[default]
    Threads,
    /// In a child process, which is killed at its limits.
    Process {
        /// A program whose `main` begins with [`compile_if_child`].
        program: PathBuf,
        /// What one compilation may take.
        limits: CompileLimits,
    },
}

/// What one compilation may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileLimits {
    /// The address space of the compiler's process, in bytes. Ignored on threads.
    pub memory: u64,
    /// The size of the machine code, in bytes. Ignored on threads.
    pub code: u64,
    /// The time from the request to the result, which includes the wait for other compilations.
    pub time: Duration,
}

/// Machine code, in a file in memory without a name.
pub(crate) struct Code(File);

/// The niceness of compilers, half of the scale.
const NICE: i32 = 10;
/// The length of the longest error text that is read from a child, in bytes.
const TEXT: u64 = 4 << 10;

// === impl Compiler ===

impl Compiler {
    /// Starts this program once more for each compilation. Its `main` must begin with [`compile_if_child`].
    #[must_use]
    pub fn this_program() -> Self {
        // The kernel resolves this to the running binary, even if its file was replaced or deleted.
        Self::Process { program: "/proc/self/exe".into(), limits: CompileLimits::default() }
    }

    fn time(&self) -> Duration {
        match self {
            Self::Threads => CompileLimits::default().time,
            Self::Process { limits, .. } => limits.time,
        }
    }
}

impl Default for CompileLimits {
    /// A component with a Python interpreter takes 550 MiB on two threads, 800 MiB on eight, and 8 s on two idle cores. Its
    /// machine code has 35 MiB.
    fn default() -> Self {
        Self { memory: 2 << 30, code: 512 << 20, time: Duration::from_secs(120) }
    }
}

// === impl Code ===

impl Code {
    fn new() -> Result<Self, String> {
        let create = |flags| memfd_create("component", MemfdFlags::CLOEXEC | flags);
        // Such a file can be mapped, but not be run as a program. Linux before 6.3 does not know the flag; a hardened
        // system demands it.
        let file = create(MemfdFlags::NOEXEC_SEAL).or_else(|_| create(MemfdFlags::empty()));
        Ok(Self(file.map_err(|error| format!("no file for its code: {error}"))?.into()))
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.0
    }

    /// A path that leads to the file as long as this value lives.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// Compiles a component for a pool of this engine.
pub(crate) async fn compile(engine: &Engine, wasm: &Arc<[u8]>, kind: Kind) -> Result<Code, LoadError> {
    let compiler = engine.compiler();
    let deadline = Instant::now() + compiler.time();
    let waiting = Arc::clone(engine.compiling()).acquire_owned();
    let Ok(Ok(permit)) = timeout_at(deadline, waiting).await else {
        let why = "others that take long are being compiled; try again later";
        return Err(LoadError::Compile(why.into()));
    };
    let compiled = match compiler {
        Compiler::Threads => on_threads(engine, wasm, kind, deadline, permit).await,
        Compiler::Process { program, limits } => {
            // The permit is returned when the child has ended.
            let compiled = in_child(program, *limits, wasm, kind, deadline).await;
            drop(permit);
            compiled
        }
    };
    // The compiler's text may contain names that the component chose.
    compiled.map_err(|why| LoadError::Compile(why.replace(char::is_control, " ")))
}

fn too_long(time: Duration) -> String {
    format!("it took longer than {time:?}")
}

/// Compiles in a child process. Dropping the future kills the child.
async fn in_child(
    program: &Path,
    limits: CompileLimits,
    wasm: &[u8],
    kind: Kind,
    deadline: Instant,
) -> Result<Code, String> {
    let not_started = |error: std::io::Error| format!("the compiler does not start: {error}");
    let code = Code::new()?;
    let mut child = Command::new(program)
        .arg0("talaria")
        .args(child::arguments(limits, kind))
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(code.0.try_clone().map_err(not_started)?)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(not_started)?;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // This fails if the child has ended; its status says why.
            let _ = stdin.write_all(wasm).await;
        }
    };
    let read = async {
        let mut text = Vec::new();
        if let Some(stderr) = stderr {
            let mut stderr = stderr.take(TEXT);
            let _ = stderr.read_to_end(&mut text).await;
            let _ = tokio::io::copy(&mut stderr.into_inner(), &mut tokio::io::sink()).await;
        }
        String::from_utf8_lossy(&text).trim().to_owned()
    };
    let ended = timeout_at(deadline, async { tokio::join!(write, read, child.wait()) }).await;
    match ended {
        Ok(((), text, Ok(status))) => outcome(status, &text, limits).map(|()| code),
        Ok((_, _, Err(error))) => Err(format!("the compiler was lost: {error}")),
        Err(_) => {
            // Waits for the end of the child too.
            if let Err(error) = child.kill().await {
                debug!(%error, "compiler not killed");
            }
            Err(too_long(limits.time))
        }
    }
}

/// Says how a compilation ended, from the status of the child and its error text.
fn outcome(status: ExitStatus, text: &str, limits: CompileLimits) -> Result<(), String> {
    let too_large = || format!("it takes more than {} MiB of memory", limits.memory >> 20);
    if let Some(signal) = status.signal() {
        return Err(match Signal::from_named_raw(signal) {
            // An allocation that fails says so and aborts.
            Some(Signal::ABORT) if text.starts_with("memory allocation of") => too_large(),
            Some(Signal::XCPU) => format!("it took more processor time than {:?} allow", limits.time),
            Some(Signal::XFSZ) => format!("its machine code has more than {} bytes", limits.code),
            Some(Signal::KILL) => {
                "the compiler was killed, which the kernel does if the machine is out of memory".into()
            }
            _ => format!("the compiler crashed with signal {signal}: {text}"),
        });
    }
    match status.code() {
        Some(0) => Ok(()),
        Some(child::REFUSED) => Err(text.to_owned()),
        Some(child::OUT_OF_MEMORY) => Err(too_large()),
        code => Err(format!("the compiler ended with code {}: {text}", code.unwrap_or(-1))),
    }
}

/// Compiles on threads of this process with low priority. At the deadline the compiler keeps running, and its result is
/// dropped.
async fn on_threads(
    engine: &Engine,
    wasm: &Arc<[u8]>,
    kind: Kind,
    deadline: Instant,
    permit: OwnedSemaphorePermit,
) -> Result<Code, String> {
    let compiler = engine.pool(kind).engine.clone();
    let bytes = Arc::clone(wasm);
    let mut code = Code::new()?;
    let (done, compiled) = oneshot::channel();
    let work = move || {
        let _permit = permit;
        let compiled = child::threads()
            .and_then(|threads| threads.install(|| compiler.precompile_component(&bytes)))
            .and_then(|bytes| Ok(code.0.write_all(&bytes)?));
        // After the deadline the receiver is gone.
        let _ = done.send(compiled.map(|()| code));
    };
    std::thread::Builder::new()
        .name("compile".into())
        .spawn(work)
        .map_err(|error| format!("no thread: {error}"))?;
    match timeout_at(deadline, compiled).await {
        Ok(Ok(Ok(code))) => Ok(code),
        Ok(Ok(Err(error))) => Err(format!("{error:#}")),
        Ok(Err(_)) => Err("the compiler panicked".into()),
        Err(_) => Err(too_long(engine.compiler().time())),
    }
}

/// Lowers the priority of this thread, and of those that it starts, below that of the threads that serve requests.
fn lower_priority() {
    // On Linux this applies to the calling thread only.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        debug!(%error, "priority of the compiler not lowered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_of_a_compiler_has_a_reason() {
        let limits = CompileLimits { memory: 64 << 20, code: 4096, time: Duration::from_secs(9) };
        let killed = |signal: Signal| ExitStatus::from_raw(signal.as_raw());
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        for (status, text, why) in [
            (
                killed(Signal::ABORT),
                "memory allocation of 8 bytes failed",
                "it takes more than 64 MiB of memory",
            ),
            (killed(Signal::ABORT), "a panic", "the compiler crashed with signal 6: a panic"),
            (killed(Signal::SEGV), "", "the compiler crashed with signal 11: "),
            (killed(Signal::XCPU), "", "it took more processor time than 9s allow"),
            (killed(Signal::XFSZ), "", "its machine code has more than 4096 bytes"),
            (
                killed(Signal::KILL),
                "",
                "the compiler was killed, which the kernel does if the machine is out of memory",
            ),
            (exited(child::REFUSED), "type mismatch", "type mismatch"),
            (exited(child::OUT_OF_MEMORY), "", "it takes more than 64 MiB of memory"),
            (exited(101), "a panic", "the compiler ended with code 101: a panic"),
        ] {
            assert_eq!(outcome(status, text, limits), Err(why.to_owned()), "{status}");
        }
        assert_eq!(outcome(exited(0), "", limits), Ok(()));
    }
}
