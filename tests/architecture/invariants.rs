//! ARCHITECTURE.md names, for each invariant, what enforces it; the threat model names, for each defence, its test.
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
    let known = functions();
    let mut wrong = Vec::new();
    let entries: Vec<&str> = list.split("\n- ").skip(1).collect();
    assert!(entries.len() > 20, "the list of invariants was not found");
    for entry in entries {
        let title = entry.lines().next().unwrap_or(entry);
        let tests = tests_named_in(entry);
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

#[test]
fn every_defence_in_the_threat_model_names_a_test_that_exists() {
    let page = sources().iter().find(|source| source.path == "docs/threat-model.md").expect("the page");
    let known = functions();
    let rows = page.text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| wants |"));
    let mut wrong = Vec::new();
    for row in rows {
        let tests = tests_named_in(row);
        if tests.is_empty() || tests.iter().any(|test| !known.contains(test)) {
            wrong.push(row);
        }
    }
    assert!(wrong.is_empty(), "rows without a test, or with one that does not exist:\n{}", wrong.join("\n"));
}

/// The names of all functions of the tree.
fn functions() -> BTreeSet<&'static str> {
    let function = Regex::new(r"\bfn ([a-z0-9_]+)").unwrap();
    let code = sources().iter().filter(|source| source.path.ends_with(".rs"));
    code.flat_map(|source| function.captures_iter(&source.text).filter_map(|found| found.get(1)))
        .map(|name| name.as_str())
        .collect()
}

/// The names of three words or more in a text, which are those of tests; shorter ones are modules and lints.
fn tests_named_in(text: &str) -> Vec<&str> {
    let named = Regex::new(r"`([a-z0-9]+(?:_[a-z0-9]+){2,})`").unwrap();
    named.captures_iter(text).filter_map(|name| Some(name.get(1)?.as_str())).collect()
}
