//! `cargo xtask registry`: the registry that everybody runs, as Debian packs it, for the tests of `oci`.
//!
//! It is unpacked into `target/docker-registry`, not installed, so that no root is needed but for `apt-get update` where the
//! package lists are missing. A machine without apt has no such registry, and the one test that uses it says so.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command::{read, target};
use crate::toolchain::apt;

const PACKAGE: &str = "docker-registry";

/// Fetches it, unless it is there.
pub(crate) fn fetch(root: &Path) -> Result<()> {
    let tree = target(root)?.join(PACKAGE);
    if tree.join("usr/bin").join(PACKAGE).is_file() {
        return Ok(());
    }
    let partial = tree.with_extension("partial");
    for stale in [&tree, &partial] {
        if stale.exists() {
            fs::remove_dir_all(stale).with_context(|| format!("cannot clear {}", stale.display()))?;
        }
    }
    fs::create_dir_all(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
    let download = || apt("apt-get", &["download", PACKAGE], &partial);
    download().or_else(|_| apt("apt-get", &["update"], &partial).and_then(|_| download()))?;
    let deb = fs::read_dir(&partial)?.next().context("apt-get downloaded nothing")??;
    read(Command::new("dpkg").arg("-x").arg(deb.path()).arg(&partial))?;
    fs::remove_file(deb.path())?;
    fs::rename(&partial, &tree).with_context(|| format!("cannot move into {}", tree.display()))
}
