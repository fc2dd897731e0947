//! Child processes. An error names the command that failed, together with its output.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The cargo that runs this program, so that a `+toolchain` on the command line applies to every step.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

/// Cargo's target folder; everything else that these commands install is in there too.
pub(crate) fn target(root: &Path) -> Result<PathBuf> {
    let metadata = read(cargo().args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root))?;
    let metadata: Value =
        serde_json::from_str(&metadata).context("the output of cargo metadata is not JSON")?;
    let target = metadata.get("target_directory").and_then(Value::as_str);
    target.map(PathBuf::from).context("the output of cargo metadata has no target folder")
}

/// Runs a command and shows its output as it appears.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", name(command)))?;
    ensure!(status.success(), "{} ended with {status}", name(command));
    Ok(())
}

/// Runs a command for its standard output; its standard error is shown only if it fails.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", name(command)))?;
    ensure!(
        output.status.success(),
        "{} ended with {}: {}",
        name(command),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let text = String::from_utf8(output.stdout)
        .with_context(|| format!("the output of {} is not UTF-8", name(command)))?;
    Ok(text.trim_end().to_owned())
}

/// The program and its first argument: enough to recognise it, without a screen of flags.
fn name(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    match command.get_args().next() {
        Some(verb) => format!("`{program} {}`", verb.to_string_lossy()),
        None => format!("`{program}`"),
    }
}
