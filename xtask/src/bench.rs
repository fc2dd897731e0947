//! `cargo xtask bench`: the benchmarks, built as what is shipped (profile `dist`). `docs/benchmarks.md` explains them.
//!
//! The part `peers` needs programs of others. They are installed by their pins on the first run, and only if the part is
//! named: a2a-sdk into `target/bench-venv`, and LiteLLM's proxy where `cargo xtask litellm` has it.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::command::{cargo, run, target};
use crate::litellm;
use crate::venv::Venv;

/// Builds the product and its benchmarks, and runs them.
pub(crate) fn run_all(args: &[&str], root: &Path) -> Result<()> {
    let target = target(root)?;
    let build = ["build", "--profile", "dist", "--package", "talaria", "--package", "talaria-bench"];
    run(cargo().args(build).current_dir(root))?;
    // Not by `cargo run`, which would compile the dependencies again with the features of this package alone.
    let mut command = Command::new(target.join("dist/talaria-bench"));
    command.args(args).current_dir(root);
    if names_peers(args) {
        let pins = root.join("tests/bench/peers/a2a_sdk.txt");
        command.arg("--a2a-sdk").arg(Venv::pinned(&target.join("bench-venv"), &pins, "a2a-sdk")?.bin());
        command.arg("--litellm").arg(litellm::install(root)?.bin());
    }
    run(&mut command)
}

/// Whether the part that needs an installation is selected.
fn names_peers(args: &[&str]) -> bool {
    args.windows(2).any(|pair| pair == ["--only", "peers"]) || args.contains(&"--only=peers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_installed_only_if_they_are_named() {
        for (args, expected) in [
            (&[][..], false),
            (&["--only", "load"], false),
            (&["--only", "load", "--only", "peers"], true),
            (&["--only=peers"], true),
        ] {
            assert_eq!(names_peers(args), expected, "{args:?}");
        }
    }
}
