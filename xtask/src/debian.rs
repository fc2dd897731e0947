//! Debian packages: some are unpacked into the target folder, a few are installed.
//!
//! Unpacking needs no root, except for `apt-get update` if the package lists are missing. Lists may be months old and name
//! versions that are gone, so a download that fails is repeated once after an update. What is there already is not downloaded
//! again. A machine without apt gets an error that says what to install.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command::{read, target};

/// The usual OCI registry, for the tests of `oci`.
pub(crate) const REGISTRY: &str = "docker-registry";

/// Prometheus and promtool, for the tests of the metrics.
pub(crate) const PROMETHEUS: &str = "prometheus";

/// libfaketime, which lets time run faster for the test of a workspace over an hour.
pub(crate) const CLOCK: &str = "libfaketime";

/// Unpacks a package into the target folder, unless it is there already.
pub(crate) fn fetch(package: &str, root: &Path) -> Result<()> {
    let tree = target(root)?.join(package);
    // It was renamed there when it was complete.
    if tree.join("usr").is_dir() {
        return Ok(());
    }
    eprintln!("fetching Debian's package {package} into {}", tree.display());
    let partial = tree.with_extension("partial");
    for stale in [&tree, &partial] {
        if stale.exists() {
            fs::remove_dir_all(stale).with_context(|| format!("cannot clear {}", stale.display()))?;
        }
    }
    fs::create_dir_all(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
    with_new_lists(&partial, || apt("apt-get", &["download", package], &partial))?;
    let deb = fs::read_dir(&partial)?.next().context("apt-get downloaded nothing")??;
    read(Command::new("dpkg").arg("-x").arg(deb.path()).arg(&partial))?;
    fs::remove_file(deb.path())?;
    fs::rename(&partial, &tree).with_context(|| format!("cannot move into {}", tree.display()))
}

/// Installs a package, which needs root.
pub(crate) fn install(package: &str) -> Result<()> {
    eprintln!("installing Debian's package {package}");
    let here = Path::new(".");
    with_new_lists(here, || apt("apt-get", &["install", "--yes", "--no-install-recommends", package], here))
        .with_context(|| format!("{package} is missing, and apt-get cannot install it"))
        .map(drop)
}

/// Does something with apt, and if it fails once more after an update of the package lists.
fn with_new_lists(folder: &Path, ask: impl Fn() -> Result<String>) -> Result<String> {
    ask().or_else(|_| apt("apt-get", &["update"], folder).and_then(|_| ask()))
}

/// Runs one of the apt programs in a folder.
pub(crate) fn apt(program: &str, args: &[&str], folder: &Path) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
    read(&mut command)
}
