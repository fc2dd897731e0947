//! What the kernel says about a process: its processor time, its memory, and how often its threads changed.

use std::fs;
use std::ops::Sub;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The length of a clock tick in `/proc`: Linux has 100 per second.
const TICK_MS: u64 = 10;

/// How often the threads of a process gave a core up.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Switches {
    /// Because they had nothing to do.
    pub(crate) voluntary: u64,
    /// Because another thread was due.
    pub(crate) involuntary: u64,
}

impl Sub for Switches {
    type Output = Self;

    /// A thread that ended takes its count with it, so a difference may be too small.
    fn sub(self, before: Self) -> Self {
        Self {
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }
}

/// The processor time of a process, kernel included.
pub(crate) fn cpu(process: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name may contain anything but ends at the last bracket; fields 12 and 13 after it are the times.
    let (_, numbers) = stat.rsplit_once(')').context("no stat")?;
    let ticks: u64 =
        numbers.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * TICK_MS))
}

/// Resident memory of a process, in KiB.
pub(crate) fn resident(process: u32) -> Result<f64> {
    kibibytes(process, "status", "VmRSS:")
}

/// Proportional memory of a process, in KiB: a page that is mapped many times counts once.
pub(crate) fn proportional(process: u32) -> Result<f64> {
    kibibytes(process, "smaps_rollup", "Pss:")
}

fn kibibytes(process: u32, file: &str, name: &str) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/{file}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// How often the threads of a process gave a core up so far.
pub(crate) fn switches(process: u32) -> Result<Switches> {
    let mut all = Switches::default();
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        // The thread may have ended meanwhile.
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else { continue };
        let count = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse::<u64>().ok()).unwrap_or_default()
        };
        all.voluntary += count("voluntary_ctxt_switches:");
        all.involuntary += count("nonvoluntary_ctxt_switches:");
    }
    Ok(all)
}

/// The cores that this process may use.
#[expect(clippy::cast_precision_loss, reason = "some hundreds at most")]
pub(crate) fn cores() -> f64 {
    thread::available_parallelism().map_or(f64::INFINITY, |cores| cores.get() as f64)
}

/// Runs this on a thread that may use one core only. A process that it starts inherits that.
pub(crate) fn on_one_core<T: Send>(run: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let pinned = || {
        let all = sched_getaffinity(None)?;
        let first = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).context("no core")?;
        let mut one = CpuSet::new();
        one.set(first);
        sched_setaffinity(None, &one)?;
        run()
    };
    thread::scope(|scope| scope.spawn(pinned).join()).map_err(|_| anyhow!("the thread on one core failed"))?
}
