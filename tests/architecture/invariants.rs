//! ARCHITECTURE.md names, for each invariant, what enforces it.
//!
//! A claim that nothing checks is only a hope. Each entry of the list must name a test of this tree, or say that the
//! compiler, a lint or a command enforces it; a test that was renamed or deleted fails here.

use std::collections::BTreeSet;

use regex::Regex;

use crate::sources::sources;

/// What an entry may name instead of a test.
const OTHER: [&str; 3] = ["The compiler:", "clippy's", "`cargo xtask "];

#[test]
fn every_invariant_names_a_check_that_exists() {
    let page = sources().iter().find(|source| source.path == "ARCHITECTURE.md").expect("ARCHITECTURE.md");
    let (_, rest) = page.text.split_once("\n## Invariants\n").expect("the list of invariants");
    let list = rest.split("\n## ").next().unwrap_or(rest);
    let function = Regex::new(r"\bfn ([a-z0-9_]+)").unwrap();
    let known: BTreeSet<&str> = sources()
        .iter()
        .filter(|source| source.path.ends_with(".rs"))
        .flat_map(|source| function.captures_iter(&source.text).filter_map(|found| found.get(1)))
        .map(|name| name.as_str())
        .collect();
    // A name of three words or more is a test's; shorter ones are modules and lints.
    let named = Regex::new(r"`([a-z0-9]+(?:_[a-z0-9]+){2,})`").unwrap();
    let mut wrong = Vec::new();
    let entries: Vec<&str> = list.split("\n- ").skip(1).collect();
    assert!(entries.len() > 20, "the list of invariants was not found");
    for entry in entries {
        let title = entry.lines().next().unwrap_or(entry);
        let tests: Vec<&str> =
            named.captures_iter(entry).filter_map(|name| Some(name.get(1)?.as_str())).collect();
        if tests.is_empty() && !OTHER.iter().any(|other| entry.contains(other)) {
            wrong.push(format!("{title}: names nothing that enforces it"));
        }
        wrong.extend(
            tests
                .iter()
                .filter(|test| !known.contains(**test))
                .map(|test| format!("{title}: there is no test `{test}`")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
