//! Finds or installs the programs that the tests need beside the compiler, before the first test.
//!
//! A program that is found is not installed again, so a second run takes a moment and downloads nothing. An installation is
//! announced. Everything but the two compilers below stays in the target folder. A verb that needs only some of the programs
//! calls the same functions for those.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::command::{cargo, run};
use crate::gate::Tally;
use crate::{console, debian, examples, hermes, interop};

/// Provides all programs.
pub(crate) fn everything(root: &Path) -> Result<Tally> {
    nextest()?;
    cpp_compiler()?;
    python()?;
    debian::fetch(debian::REGISTRY, root)
        .context("cannot get docker-registry, which the registry test needs")?;
    debian::fetch(debian::CLOCK, root)
        .context("cannot get libfaketime, which the test of a workspace over an hour needs")?;
    debian::fetch(debian::PROMETHEUS, root)
        .context("cannot get prometheus, which the tests of the metrics need")?;
    hermes::prepare(root)?;
    interop::prepare(root)?;
    examples::prepare(root)?;
    console::prepare(root)?;
    Ok(Tally::default())
}

/// The test runner, with a process for each test and the groups and time limits of `.config/nextest.toml`.
pub(crate) fn nextest() -> Result<()> {
    if works(cargo().args(["nextest", "--version"])) {
        return Ok(());
    }
    eprintln!("installing cargo-nextest (takes minutes)");
    run(cargo().args(["install", "--locked", "cargo-nextest"]))
        .context("cannot install cargo-nextest, which runs the tests")
}

/// libFuzzer is C++. If `CXX` names a compiler, that one is used.
pub(crate) fn cpp_compiler() -> Result<()> {
    if env::var_os("CXX").is_some() || works(Command::new("c++").arg("--version")) {
        return Ok(());
    }
    debian::install("g++").context("libFuzzer needs a C++ compiler; install g++ or clang, or set CXX")
}

/// Python with virtual environments, which are a package of their own on Debian.
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
