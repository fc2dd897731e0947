//! Debian's packages that tests run against, unpacked into folders of the target folder.
//!
//! Nothing is installed, so no root is needed but for `apt-get update` where the package lists are missing. A package that
//! is there is not fetched again. A machine without apt gets none, and the tests that need it say which verb fetches it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command::{read, target};
use crate::toolchain::apt;

/// The registry that everybody runs, for the tests of `oci`.
pub(crate) const REGISTRY: &str = "docker-registry";

/// What makes time run faster for a program, for the test of a workspace over an hour.
pub(crate) const CLOCK: &str = "libfaketime";

/// Fetches a package into the target folder, unless it is there.
pub(crate) fn fetch(package: &str, root: &Path) -> Result<()> {
    let tree = target(root)?.join(package);
    // It is moved there whole.
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
    let download = || apt("apt-get", &["download", package], &partial);
    download().or_else(|_| apt("apt-get", &["update"], &partial).and_then(|_| download()))?;
    let deb = fs::read_dir(&partial)?.next().context("apt-get downloaded nothing")??;
    read(Command::new("dpkg").arg("-x").arg(deb.path()).arg(&partial))?;
    fs::remove_file(deb.path())?;
    fs::rename(&partial, &tree).with_context(|| format!("cannot move into {}", tree.display()))
}
