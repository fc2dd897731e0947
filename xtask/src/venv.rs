//! Python environments below `target/`, created if they are missing.
//!
//! An environment is named by a digest of its content, so that a changed pin creates a new one and two checkouts can share a
//! target folder. An incomplete one has no stamp and is created again. A lock lets one process install at a time; a second
//! process finds the finished environment.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::command::read;

/// The oldest Python that the scripts and the kits run on.
pub(crate) const OLDEST: (u32, u32) = (3, 11);
const STAMP: &str = "installed";

/// A Python environment.
pub(crate) struct Venv {
    folder: PathBuf,
}

// === impl Venv ===

impl Venv {
    /// Returns the environment in `home` that `pip install INSTALL` creates. `name` is for its folder and for messages; `pins`
    /// is what its content depends on otherwise.
    pub(crate) fn find(home: &Path, name: &str, install: &[&OsStr], pins: &str) -> Result<Self> {
        Self::since(OLDEST, home, name, install, pins)
    }

    /// The same, for packages that need a newer Python than the rest.
    pub(crate) fn since(
        oldest: (u32, u32),
        home: &Path,
        name: &str,
        install: &[&OsStr],
        pins: &str,
    ) -> Result<Self> {
        let folder = home.join(format!("{}-{}", name.replace(' ', "-"), digest(install, pins)));
        let venv = Self { folder };
        once(home, &venv.folder, || {
            eprintln!("{}: installing {name} …", label(home));
            read(Command::new(python(oldest)?).args(["-m", "venv"]).arg(&venv.folder)).context(
                "cannot create a virtual environment; on Debian this needs the package python3-venv",
            )?;
            let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
            read(venv.python().args(pip).args(install)).map(drop)
        })?;
        Ok(venv)
    }

    /// Returns the environment in `home` with the packages that a file pins, which is named after one of them.
    pub(crate) fn pinned(home: &Path, file: &Path, package: &str) -> Result<Self> {
        let pins = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let is_it = |line: &&str| line.split_once("==").is_some_and(|(name, _)| name == package);
        let pin = pins.lines().find(is_it);
        let pin = pin.with_context(|| format!("{} does not pin {package}", file.display()))?;
        let install = [OsStr::new("-r"), file.as_os_str()];
        Self::find(home, &pin.replace("==", " "), &install, &pins)
    }

    /// The folder of its programs.
    pub(crate) fn bin(&self) -> PathBuf {
        self.folder.join("bin")
    }

    /// Its Python.
    pub(crate) fn python(&self) -> Command {
        Command::new(self.bin().join("python"))
    }
}

/// Runs `install` for a folder in `home`, unless that is done already.
pub(crate) fn once(home: &Path, folder: &Path, install: impl FnOnce() -> Result<()>) -> Result<()> {
    fs::create_dir_all(home).with_context(|| format!("cannot create {}", home.display()))?;
    let lock = File::create(home.join("lock"))?;
    lock.lock().with_context(|| format!("cannot lock {}", home.display()))?;
    let stamp = folder.join(STAMP);
    if stamp.is_file() {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot clear {}", folder.display()))?;
    }
    install()?;
    fs::write(&stamp, "").with_context(|| format!("cannot write {}", stamp.display()))
}

/// A short name for the content.
pub(crate) fn digest(install: &[&OsStr], pins: &str) -> String {
    let mut hash = Sha256::new();
    for arg in install {
        hash.update(arg.as_encoded_bytes());
        hash.update([0]);
    }
    hash.update(pins);
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Finds a Python that is new enough: `python3`, else one with its version in its name, else one of pyenv's.
pub(crate) fn python(oldest: (u32, u32)) -> Result<PathBuf> {
    let (major, minor) = oldest;
    let script = format!("import sys; assert sys.version_info >= ({major}, {minor}), sys.version");
    let is_new_enough = |python: &PathBuf| {
        let found = Command::new(python).args(["-c", &script]).output();
        found.is_ok_and(|found| found.status.success())
    };
    let versioned = (minor..=minor + 2).rev().map(|minor| format!("python{major}.{minor}").into());
    iter::once("python3".into())
        .chain(versioned)
        .chain(of_pyenv())
        .find(is_new_enough)
        .with_context(|| format!("there is no Python {major}.{minor} or newer; install one"))
}

/// All Pythons that pyenv has, whichever one is active.
fn of_pyenv() -> Vec<PathBuf> {
    let root = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| env::home_dir().map(|home| home.join(".pyenv")));
    let versions = root.and_then(|root| fs::read_dir(root.join("versions")).ok());
    versions.into_iter().flatten().flatten().map(|version| version.path().join("bin/python3")).collect()
}

/// The verb that uses an environment.
pub(crate) fn label(home: &Path) -> String {
    home.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn what_was_installed_is_not_installed_again() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("one");
        once(home.path(), &folder, || Ok(fs::create_dir(&folder)?)).unwrap();
        once(home.path(), &folder, || bail!("again")).unwrap();
    }

    #[test]
    fn what_was_left_half_done_is_done_again_from_nothing() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("one");
        once(home.path(), &folder, || {
            fs::create_dir(&folder)?;
            fs::write(folder.join("half"), "")?;
            bail!("the network")
        })
        .unwrap_err();
        once(home.path(), &folder, || Ok(fs::create_dir(&folder)?)).unwrap();
        assert!(!folder.join("half").exists());
    }

    #[test]
    fn another_pin_is_another_environment() {
        assert_ne!(digest(&[OsStr::new("a")], "x==1"), digest(&[OsStr::new("a")], "x==2"));
        assert_ne!(digest(&[OsStr::new("a"), OsStr::new("b")], ""), digest(&[OsStr::new("ab")], ""));
    }
}
