//! Invariants that show in the sources themselves.

use regex::Regex;

use crate::metadata::Metadata;
use crate::sources::{matches, sources};

#[test]
fn unsafe_is_forbidden_but_in_one_function_of_engine() {
    for (folder, _) in Metadata::load().host_crates().into_iter().filter(|(folder, _)| folder != "engine") {
        let roots = ["lib.rs", "main.rs"].map(|file| format!("host/{folder}/src/{file}"));
        let root = sources().iter().find(|source| roots.contains(&source.path)).expect("a crate root");
        assert!(root.text.contains("#![forbid(unsafe_code)]"), "{} does not forbid unsafe code", root.path);
    }
    let allowed = Regex::new(r"(allow|expect)\(unsafe_code").unwrap();
    let found = matches(&allowed, |path| path.starts_with("host/") && path.ends_with(".rs"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("host/engine/src/component.rs:"), "{found:?}");
}

/// Plugins and skills of a workspace are read, never run.
#[test]
fn the_workspace_starts_no_process() {
    let process = Regex::new(r"process::(\{[^}]*)?\bCommand\b|Command::new\(").unwrap();
    let found = matches(&process, |path| path.starts_with("host/workspace/src/"));
    assert!(found.is_empty(), "{}", found.join("\n"));
}
