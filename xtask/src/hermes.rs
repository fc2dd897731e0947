//! `cargo xtask hermes`: the executors against the real hermes-agent.
//!
//! One process runs all of these tests, because they share a gateway that takes seconds to start. With a process for each
//! test they pass as well, each with a gateway of its own. The tests would install what they need themselves; this verb does
//! so first, to show the progress.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::command::{cargo, run, target};
use crate::gate::{Tally, count};

/// Concurrent tests. They wait for the gateway most of the time.
const AT_ONCE: &str = "4";

/// Installs hermes-agent into the target folder, where the tests look for it.
pub(crate) fn prepare(root: &Path) -> Result<()> {
    run(Command::new("python3")
        .arg(root.join("tests/hermes/prepare.py"))
        .arg(target(root)?.join("hermes"))
        .stdout(Stdio::null()))
    .context("hermes-agent 0.19 needs python3, 3.11 to 3.13")
}

/// Runs the tests whose names match, or all.
pub(crate) fn test(filter: &[&str], root: &Path) -> Result<Tally> {
    prepare(root)?;
    // With the whole workspace, as everything is built: for one package alone the dependencies would be compiled again with
    // other features.
    let test = ["test", "--workspace", "--test", "hermes", "--", "--test-threads", AT_ONCE];
    count(cargo().args(test).args(filter).current_dir(root))
}
