//! The files of the tree, as git knows them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// A file that git tracks, or would.
pub(crate) struct Source {
    /// Relative to the repository, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All text files that are tracked or new, and not ignored.
pub(crate) fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let listed = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
            .current_dir(root())
            .output()
            .expect("git runs");
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let listed = String::from_utf8(listed.stdout).expect("paths are UTF-8");
        let read = |path: &str| {
            // A file that is staged may be gone, and one that is not UTF-8 has no words.
            let text = std::fs::read_to_string(root().join(path)).ok()?;
            Some(Source { path: path.to_owned(), text })
        };
        listed.split('\0').filter(|path| !path.is_empty()).filter_map(read).collect()
    })
}

/// Every line that matches, as `path:line: text`.
pub(crate) fn matches(pattern: &regex::Regex, is_searched: impl Fn(&str) -> bool) -> Vec<String> {
    let searched = sources().iter().filter(|source| is_searched(&source.path));
    searched
        .flat_map(|source| {
            let lines = source.text.lines().enumerate().filter(|(_, line)| pattern.is_match(line));
            lines.map(|(at, line)| format!("{}:{}: {}", source.path, at + 1, line.trim()))
        })
        .collect()
}
