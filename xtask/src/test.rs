//! `cargo xtask test`: everything that CI checks, cheapest first.
//!
//! Every step is a cargo command, so that the line which names a failing step is also the way to run it alone. The
//! first failure ends the run: what comes after it costs minutes and would only bury it.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::command::{cargo, run};
use crate::debian;

/// A cargo command that must succeed.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    name: &'static str,
    args: &'static [&'static str],
}

const FORMAT: Step = Step { name: "format", args: &["fmt", "--all", "--check"] };
const GUESTS_FORMAT: Step = Step {
    name: "format of guests",
    args: &["fmt", "--all", "--check", "--manifest-path", "guests/Cargo.toml"],
};
const FUZZ_FORMAT: Step = Step {
    name: "format of fuzz targets",
    args: &["fmt", "--check", "--manifest-path", "tests/fuzz/Cargo.toml"],
};
const GUESTS: Step = Step { name: "guests", args: &["xtask", "guests", "--check"] };
// With the doors that only fuzz targets use.
pub(crate) const LINT: Step = Step {
    name: "lint",
    args: &["clippy", "--workspace", "--all-targets", "--", "--cfg", "fuzzing", "--deny", "warnings"],
};
const NEXTEST: Step = Step { name: "tests", args: &["nextest", "run", "--workspace"] };
const TEST: Step = Step { name: "tests", args: &["test", "--workspace", "--tests"] };
/// nextest has a process for each test, and each of these would start a gateway of its own there.
const NEXTEST_BUT_HERMES: Step =
    Step { name: "tests", args: &["nextest", "run", "--workspace", "-E", "not binary(=hermes)"] };
const HERMES: Step = Step { name: "tests against hermes-agent", args: &["xtask", "hermes"] };
// Long enough for every known input and some thousands of new ones.
const FUZZ: Step = Step { name: "fuzz", args: &["xtask", "fuzz", "--seconds", "3"] };
const DOCTEST: Step = Step { name: "doc tests", args: &["test", "--workspace", "--doc"] };

/// The end-to-end tests load what it builds.
const EXAMPLES: Step = Step { name: "examples", args: &["xtask", "examples"] };
const INTEROP: Step = Step { name: "interop", args: &["xtask", "interop"] };

/// Runs every step, then says how long each took.
pub(crate) fn all(root: &Path) -> Result<()> {
    let start = Instant::now();
    let mut times = Vec::new();
    debian::fetch(debian::REGISTRY, root).context("no docker-registry for the test against a real one")?;
    debian::fetch(debian::CLOCK, root).context("no libfaketime for the test of a workspace over an hour")?;
    let tests = if has_nextest() { &[NEXTEST_BUT_HERMES, HERMES][..] } else { &[TEST] };
    let first = [FORMAT, GUESTS_FORMAT, FUZZ_FORMAT, GUESTS, LINT, EXAMPLES];
    for step in first.iter().chain(tests).chain([&DOCTEST, &INTEROP, &FUZZ]) {
        eprintln!("test: {}", step.name);
        let start = Instant::now();
        run_step(step, root)?;
        times.push((step.name, start.elapsed().as_secs_f64()));
    }
    eprintln!("test: all passed");
    for (name, seconds) in times {
        eprintln!("{seconds:>8.1} s  {name}");
    }
    eprintln!("{:>8.1} s  total", start.elapsed().as_secs_f64());
    Ok(())
}

/// Runs only the tests whose names match, with any further arguments of the runner.
pub(crate) fn matching(filter: &[&str], root: &Path) -> Result<()> {
    let tests = if has_nextest() { NEXTEST } else { TEST };
    run(cargo().args(tests.args).args(filter).current_dir(root))
}

/// Runs one step; its error names the command to repeat it with.
pub(crate) fn run_step(step: &Step, root: &Path) -> Result<()> {
    run(cargo().args(step.args).current_dir(root))
        .with_context(|| format!("{} failed; run it alone with `cargo {}`", step.name, step.args.join(" ")))
}

/// Whether nextest is installed. It runs the tests of all crates side by side.
fn has_nextest() -> bool {
    let found = cargo().args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}
