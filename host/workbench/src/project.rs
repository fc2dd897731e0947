//! `talaria executor new`: writes a project that builds and passes its own test, from files embedded in the binary.
//!
//! A project carries the contract and, for Rust, the SDK. They are copied byte for byte into folders that lie to each other
//! as in this repository, so no path needs rewriting; `docs/decisions/019-projects-contain-the-sdk.md` says why. The name is
//! the only thing that changes in a template. An existing folder is left alone, and a project that cannot be written in
//! full is removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use talaria_executors::ExecutorName;

/// A programming language with a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Rust, with the SDK.
    Rust,
    /// Python, built with componentize-py.
    Python,
    /// JavaScript, built with componentize-js.
    Js,
}

/// A project that was written.
#[derive(Debug, Serialize)]
pub struct Project {
    folder: PathBuf,
    files: Vec<PathBuf>,
}

/// Placeholder for the name, in files and in paths.
const NAME: &str = "{{name}}";
/// Placeholder for the name as Cargo spells it in file names.
const FILE: &str = "{{file}}";

type Files = &'static [(&'static str, &'static str)];

macro_rules! template {
    ($language:literal: $($path:literal from $file:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../templates/", $language, "/", $file)))),*]
    };
}

macro_rules! repository {
    ($($path:literal from $file:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../", $file)))),*]
    };
}

const RUST: Files = template!("rust":
    ".gitignore" from "gitignore",
    "Cargo.toml" from "Cargo.toml.txt",
    "README.md" from "README.md",
    "cassette.toml" from "cassette.toml",
    "src/lib.rs" from "src/lib.rs",
    "{{name}}.toml" from "grant.toml",
);

const PYTHON: Files = template!("python":
    ".gitignore" from "gitignore",
    "README.md" from "README.md",
    "app.py" from "app.py",
    "cassette.toml" from "cassette.toml",
    "requirements.txt" from "requirements.txt",
    "{{name}}.toml" from "grant.toml",
);

const JS: Files = template!("js":
    ".gitignore" from "gitignore",
    "README.md" from "README.md",
    "app.js" from "app.js",
    "build.mjs" from "build.mjs",
    "cassette.toml" from "cassette.toml",
    "package.json" from "package.json",
    "{{name}}.toml" from "grant.toml",
);

/// The contract, copied as it is.
const WIT: Files = repository!(
    "wit/0.1.0/callback.wit" from "wit/0.1.0/callback.wit",
    "wit/0.1.0/config.wit" from "wit/0.1.0/config.wit",
    "wit/0.1.0/control.wit" from "wit/0.1.0/control.wit",
    "wit/0.1.0/events.wit" from "wit/0.1.0/events.wit",
    "wit/0.1.0/http.wit" from "wit/0.1.0/http.wit",
    "wit/0.1.0/log.wit" from "wit/0.1.0/log.wit",
    "wit/0.1.0/span.wit" from "wit/0.1.0/span.wit",
    "wit/0.1.0/state.wit" from "wit/0.1.0/state.wit",
    "wit/0.1.0/tools.wit" from "wit/0.1.0/tools.wit",
    "wit/0.1.0/transcript.wit" from "wit/0.1.0/transcript.wit",
    "wit/0.1.0/types.wit" from "wit/0.1.0/types.wit",
    "wit/0.1.0/world.wit" from "wit/0.1.0/world.wit",
);

/// The SDK, two folders below the project as it is two folders below this repository, and its lock file.
const SDK: Files = repository!(
    "vendor/sdk/Cargo.toml" from "guests/sdk/Cargo.toml",
    "vendor/sdk/src/extents.rs" from "guests/sdk/src/extents.rs",
    "vendor/sdk/src/heap.rs" from "guests/sdk/src/heap.rs",
    "vendor/sdk/src/lib.rs" from "guests/sdk/src/lib.rs",
    "vendor/sdk/src/request.rs" from "guests/sdk/src/request.rs",
    "vendor/sdk/src/testing.rs" from "guests/sdk/src/testing.rs",
    "vendor/sdk/src/wasi.rs" from "guests/sdk/src/wasi.rs",
    "Cargo.lock" from "guests/Cargo.lock",
);

impl Language {
    fn files(self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        let (own, sdk): (Files, Files) = match self {
            Self::Rust => (RUST, SDK),
            Self::Python => (PYTHON, &[]),
            Self::Js => (JS, &[]),
        };
        own.iter().chain(WIT).chain(sdk)
    }
}

/// Writes a project into a new folder of `parent`.
///
/// # Errors
/// If the folder exists or a file cannot be written. Nothing is left behind then.
pub fn write_project(parent: &Path, name: &ExecutorName, language: Language) -> io::Result<Project> {
    let folder = parent.join(name.as_str());
    // Fails if anything of that name exists.
    fs::create_dir(&folder)?;
    let written = language.files().map(|(path, text)| {
        let path = folder.join(path.replace(NAME, name.as_str()));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let text = text.replace(NAME, name.as_str()).replace(FILE, &name.as_str().replace('-', "_"));
        fs::write(&path, text)?;
        Ok(path)
    });
    match written.collect::<io::Result<Vec<_>>>() {
        Ok(files) => Ok(Project { folder, files }),
        Err(error) => {
            let _ = fs::remove_dir_all(&folder);
            Err(error)
        }
    }
}

impl std::fmt::Display for Project {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let folder = self.folder.display();
        write!(f, "wrote {folder}: {} files; go on with {folder}/README.md", self.files.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ExecutorName {
        text.parse().unwrap()
    }

    #[test]
    fn a_project_has_its_name_in_every_file_and_carries_the_contract() {
        for language in [Language::Rust, Language::Python, Language::Js] {
            let parent = tempfile::tempdir().unwrap();
            let project = write_project(parent.path(), &name("my-agent"), language).unwrap();
            for file in &project.files {
                let text = fs::read_to_string(file).unwrap();
                assert!(
                    !text.contains(NAME) && !text.contains(FILE) && !file.to_string_lossy().contains(NAME),
                    "{}",
                    file.display()
                );
            }
            for file in ["README.md", "my-agent.toml", "cassette.toml", "wit/0.1.0/world.wit"] {
                assert!(project.folder.join(file).is_file(), "{language:?} has no {file}");
            }
        }
    }

    /// A file that is added to the contract or the SDK must be added to the lists above.
    #[test]
    fn projects_carry_the_whole_contract_and_sdk() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (folder, files) in [("wit/0.1.0", WIT), ("guests/sdk/src", SDK)] {
            for file in fs::read_dir(root.join(folder)).unwrap() {
                let file = file.unwrap().file_name().into_string().unwrap();
                assert!(files.iter().any(|(path, _)| path.ends_with(&format!("/{file}"))), "{folder}/{file}");
            }
        }
    }

    #[test]
    fn leaves_an_existing_file_alone() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("mine"), "precious").unwrap();
        let error = write_project(parent.path(), &name("mine"), Language::Js).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(parent.path().join("mine")).unwrap(), "precious");
    }
}
