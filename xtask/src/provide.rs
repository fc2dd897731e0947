//! What the tests need beside the compiler: found, or installed by name, in this one place and before the first test.
//!
//! Each is looked for first, so a second run takes a moment and downloads nothing. What is installed says so. Everything but
//! the two compilers below stays in the target folder; a verb that needs only some of it provides that by itself, by the
//! same functions.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::command::{cargo, run};
use crate::gate::Tally;
use crate::{debian, examples, hermes, interop};

/// Provides all of it.
pub(crate) fn everything(root: &Path) -> Result<Tally> {
    nextest()?;
    cpp_compiler()?;
    python()?;
    debian::fetch(debian::REGISTRY, root).context("no docker-registry for the test against a real one")?;
    debian::fetch(debian::CLOCK, root).context("no libfaketime for the test of a workspace over an hour")?;
    hermes::prepare(root)?;
    interop::prepare(root)?;
    examples::prepare(root)?;
    Ok(Tally::default())
}

/// The runner of the tests: it has a process for each, and the groups and time limits of `.config/nextest.toml`.
pub(crate) fn nextest() -> Result<()> {
    if works(cargo().args(["nextest", "--version"])) {
        return Ok(());
    }
    eprintln!("installing cargo-nextest (minutes)");
    run(cargo().args(["install", "--locked", "cargo-nextest"]))
        .context("no cargo-nextest to run the tests with")
}

/// libFuzzer is C++. If `CXX` names a compiler, that one is used.
pub(crate) fn cpp_compiler() -> Result<()> {
    if env::var_os("CXX").is_some() || works(Command::new("c++").arg("--version")) {
        return Ok(());
    }
    debian::install("g++").context("libFuzzer needs a C++ compiler; install g++ or clang, or name one in CXX")
}

/// Python with its virtual environments, which Debian has in a package of its own.
fn python() -> Result<()> {
    if works(Command::new("python3").args(["-c", "import ensurepip, venv"])) {
        return Ok(());
    }
    debian::install("python3-venv").context("the tests need Python 3.11 to 3.13 with venv")
}

fn works(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
