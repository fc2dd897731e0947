//! The process, by the names that every client of Prometheus uses.
//!
//! Read from `/proc` on Linux, in less than a millisecond; elsewhere there are none. The allocator's own numbers are not here:
//! they would cost a library for what the resident memory says already.

use std::fs;

use super::family::{Family, Kind};
use super::page::{Float, Page};
use super::registry::Source;

/// The kernel counts CPU time for `/proc` in hundredths of a second, whatever its own clock.
const TICKS: f64 = 100.0;

static CPU: Family = Family {
    name: "process_cpu_seconds_total",
    kind: Kind::Counter,
    labels: &[],
    help: "CPU time of the process, user and system",
    question: "How much does it compute?",
};
static RESIDENT: Family = Family {
    name: "process_resident_memory_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "Resident memory of the process",
    question: "How much memory does it take?",
};
static VIRTUAL: Family = Family {
    name: "process_virtual_memory_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "Virtual memory of the process; most of it is addresses reserved for guests",
    question: "How many addresses are reserved?",
};
static OPEN_FDS: Family = Family {
    name: "process_open_fds",
    kind: Kind::Gauge,
    labels: &[],
    help: "Open file descriptors",
    question: "Do connections pile up?",
};
static MAX_FDS: Family = Family {
    name: "process_max_fds",
    kind: Kind::Gauge,
    labels: &[],
    help: "The most open file descriptors",
    question: "How many connections can there be?",
};
static START: Family = Family {
    name: "process_start_time_seconds",
    kind: Kind::Gauge,
    labels: &[],
    help: "When the process started, in seconds since 1970",
    question: "Did it restart?",
};
static THREADS: Family = Family {
    name: "process_threads",
    kind: Kind::Gauge,
    labels: &[],
    help: "Threads of the process",
    question: "Do threads pile up?",
};

/// This process.
pub(super) struct Process;

/// The numbers of `/proc/self/stat`.
struct Stat {
    cpu: f64,
    threads: u64,
    virtual_bytes: u64,
    /// After the start of the system.
    started: f64,
}

impl Source for Process {
    fn title(&self) -> &'static str {
        "Process"
    }

    fn families(&self) -> Vec<&'static Family> {
        vec![&CPU, &RESIDENT, &VIRTUAL, &OPEN_FDS, &MAX_FDS, &START, &THREADS]
    }

    fn write(&self, page: &mut Page) {
        let stat = fs::read_to_string("/proc/self/stat").ok().and_then(|text| stat(&text));
        let mut one = |family, value: Option<f64>| {
            if let Some(value) = value {
                page.family(family).value(&[], Float(value));
            }
        };
        one(&CPU, stat.as_ref().map(|stat| stat.cpu));
        one(&RESIDENT, resident());
        one(&VIRTUAL, stat.as_ref().map(|stat| stat.virtual_bytes as f64));
        one(&OPEN_FDS, open_fds());
        one(&MAX_FDS, max_fds());
        one(&START, stat.as_ref().and_then(|stat| Some(boot()? + stat.started)));
        one(&THREADS, stat.as_ref().map(|stat| stat.threads as f64));
    }
}

fn stat(text: &str) -> Option<Stat> {
    // The name of the program, which may have spaces and brackets, is in brackets.
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // The first field after the name is the third of the line.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        cpu: (field(14)? + field(15)?) as f64 / TICKS,
        threads: field(20)?,
        virtual_bytes: field(23)?,
        started: field(22)? as f64 / TICKS,
    })
}

fn resident() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes = line(&text, "VmRSS:")?.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
    Some((kibibytes * 1_024) as f64)
}

/// Linux says the number in the size of the folder since 6.2, and lists them before.
fn open_fds() -> Option<f64> {
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    let count =
        if size > 0 { size } else { fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64 };
    Some(count as f64)
}

fn max_fds() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    // No number is "unlimited".
    let soft = line(&text, "Max open files")?.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
    Some(soft as f64)
}

/// When the system started.
fn boot() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    Some(line(&text, "btime")?.trim().parse::<u64>().ok()? as f64)
}

fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_may_have_brackets() {
        let text =
            "7 (a) b (c) S 1 7 7 0 -1 4194304 1 0 0 0 250 150 0 0 20 0 9 0 12345 4096 2 18446744073709551615";
        let stat = stat(text).unwrap();
        assert_eq!((stat.cpu, stat.threads, stat.virtual_bytes, stat.started), (4.0, 9, 4096, 123.45));
    }

    #[test]
    fn text_that_is_cut_short_has_no_numbers() {
        assert!(stat("7 (a").is_none() && stat("7 (a) S 1").is_none());
    }
}
