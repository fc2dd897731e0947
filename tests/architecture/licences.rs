//! Every dependency has a licence that the product may be distributed under.

use crate::metadata::Metadata;

/// Permissive licences without conditions beyond attribution. The same list is in deny.toml.
const ALLOWED: [&str; 8] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

#[test]
fn every_dependency_has_a_licence_of_the_list() {
    let metadata = Metadata::load();
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        let licence = package.license.as_deref().unwrap_or("none");
        if !is_allowed(licence) {
            wrong.push(format!("{} {}: {licence}", package.name, package.version));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_list_is_that_of_cargo_deny() {
    let deny = std::fs::read_to_string(crate::sources::root().join("deny.toml")).expect("deny.toml");
    let start = deny.find("\nallow = [").expect("a list of licences");
    let list = deny[start..].split_once(']').expect("the end of the list").0;
    let listed: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    assert_eq!(listed, ALLOWED);
}

#[test]
fn expressions_are_evaluated() {
    for allowed in ["MIT", "MIT/GPL-3.0", "(GPL-3.0 OR MIT) AND ISC", "Apache-2.0 WITH LLVM-exception OR X"] {
        assert!(is_allowed(allowed), "{allowed}");
    }
    for denied in ["", "GPL-3.0", "MIT AND GPL-3.0", "GPL-3.0 OR (MIT AND AGPL-3.0)", "none"] {
        assert!(!is_allowed(denied), "{denied}");
    }
}

/// Evaluates an SPDX expression: whether a choice of licences from the list fulfils it.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = tokens.as_slice();
    let value = any(&mut rest);
    value && rest.is_empty()
}

fn any(tokens: &mut &[&str]) -> bool {
    let mut value = all(tokens);
    while let Some(rest) = tokens.strip_prefix(&["OR"]) {
        *tokens = rest;
        value |= all(tokens);
    }
    value
}

fn all(tokens: &mut &[&str]) -> bool {
    let mut value = one(tokens);
    while let Some(rest) = tokens.strip_prefix(&["AND"]) {
        *tokens = rest;
        value &= one(tokens);
    }
    value
}

fn one(tokens: &mut &[&str]) -> bool {
    match **tokens {
        ["(", ref rest @ ..] => {
            *tokens = rest;
            let value = any(tokens);
            *tokens = tokens.strip_prefix(&[")"]).unwrap_or(&[]);
            value
        }
        [licence, "WITH", exception, ref rest @ ..] => {
            *tokens = rest;
            ALLOWED.contains(&format!("{licence} WITH {exception}").as_str())
        }
        [licence, ref rest @ ..] => {
            *tokens = rest;
            ALLOWED.contains(&licence)
        }
        [] => false,
    }
}
