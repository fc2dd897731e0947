//! `cargo xtask hermes`: the executors against the real hermes-agent.
//!
//! One process runs all of these tests, since they share a gateway that takes seconds to start; under a runner that has a
//! process for each test they pass as well, each with a gateway of its own. What they need is installed first, so that its
//! progress is seen; they would do that by themselves otherwise.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

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
    run(cargo()
        .args(["test", "--package", "talaria", "--test", "hermes", "--", "--test-threads", AT_ONCE])
        .args(filter)
        .current_dir(root))
}
