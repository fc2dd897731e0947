//! `cargo xtask hermes`: the executors against the real hermes-agent.
//!
//! One process runs all of these tests, since they share a gateway that takes seconds to start; under a runner that has a
//! process for each test they pass as well, each with a gateway of its own. What they need is installed first, so that its
//! progress is seen; they would do that by themselves otherwise.
//!
//! The partner is a program of somebody else's that is shared by tests which run beside each other, and its timing is not
//! ours. So a test that fails is tried once more, alone, and that it was is said. What fails twice fails.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::command::{cargo, run};

/// Tests at once. They wait for the gateway more than they compute.
const AT_ONCE: &str = "4";

/// Installs what is missing and runs the tests that match, or all.
pub(crate) fn test(filter: &[&str], root: &Path) -> Result<()> {
    // `target/PROFILE/xtask`; the tests find the same folder from their own binary.
    let program = std::env::current_exe().context("this program has no path")?;
    let target = program.ancestors().nth(2).context("this program is in no target folder")?;
    run(Command::new("python3")
        .arg(root.join("tests/hermes/prepare.py"))
        .arg(target.join("hermes"))
        .stdout(Stdio::null()))
    .context("hermes-agent 0.19 needs python3, 3.11 to 3.13")?;
    let failed = failing(tests(root, AT_ONCE).args(filter))?;
    if failed.is_empty() {
        return Ok(());
    }
    eprintln!("hermes: failed beside the others, tried again alone: {}", failed.join(", "));
    let failed = failing(tests(root, "1").arg("--exact").args(failed))?;
    if !failed.is_empty() {
        bail!("failed twice: {}", failed.join(", "));
    }
    Ok(())
}

fn tests(root: &Path, at_once: &str) -> Command {
    let mut command = cargo();
    command.args(["test", "--package", "talaria", "--test", "hermes", "--", "--test-threads", at_once]);
    command.current_dir(root);
    command
}

/// Runs tests, shows what they print, and gives the names of those that failed.
fn failing(command: &mut Command) -> Result<Vec<String>> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let mut failed = Vec::new();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(|out| out.lines()) {
        let line = line.context("cannot read what the tests print")?;
        eprintln!("{line}");
        let name = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
        failed.extend(name.map(str::to_owned));
    }
    let status = child.wait().context("cargo is gone")?;
    if !status.success() && failed.is_empty() {
        bail!("`cargo test` ended with {status}");
    }
    Ok(failed)
}
