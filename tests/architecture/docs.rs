//! The documentation agrees with the code.
//!
//! Links and anchors resolve, every page is in its index, the README stays short, and every metric, every flag and every
//! quoted error text is the code's. Texts are compared with string literals: the guide writes `…` for what the code fills in.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::sources::{Source, root, sources};

/// Shorter fragments of quoted texts are too common to prove anything.
const SHORTEST: usize = 8;
/// Quoted texts that the code composes from parts when it runs.
const COMPOSED: [&str; 6] = [
    "[hermes-agent error",
    "[hermes plugin reply timeout after 600s]",
    "may not call",
    "grant it with egress = [",
    "a task may have 10 push notification configurations",
    "\"draining\": true",
];

fn page(path: &str) -> &'static str {
    let found = sources().iter().find(|source| source.path == path);
    &found.unwrap_or_else(|| panic!("no {path}")).text
}

/// The files below a folder whose paths end so.
fn below(folder: &str, end: &str) -> impl Iterator<Item = &'static Source> {
    sources().iter().filter(move |source| source.path.starts_with(folder) && source.path.ends_with(end))
}

/// The lines outside fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchors that GitHub derives from the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    prose(text)
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// The targets of the links in one line of Markdown that lead to files of this tree.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|link| !link.contains([':', ' ']))
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// Every word that starts with `prefix` and continues with lower-case letters or characters of `more`.
fn words<'a>(text: &'a str, prefix: &'a str, more: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(prefix).map(move |(start, _)| {
        let rest = &text[start + prefix.len()..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && !more.contains(c)).unwrap_or(rest.len());
        &text[start..start + prefix.len() + end]
    })
}

#[test]
fn links_and_anchors_resolve() {
    let mut broken = Vec::new();
    for source in below("", ".md") {
        for link in prose(&source.text).flat_map(links) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => PathBuf::from(&source.path),
                path => normal(&Path::new(&source.path).parent().unwrap().join(path)),
            };
            let is_anchor = || {
                let text = std::fs::read_to_string(root().join(&target));
                text.is_ok_and(|text| anchors(&text).contains(anchor))
            };
            if !root().join(&target).exists() || !(anchor.is_empty() || is_anchor()) {
                broken.push(format!("{}: {link}", source.path));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn every_guide_and_decision_is_in_its_index() {
    for folder in ["docs/", "docs/decisions/"] {
        let index = page(&format!("{folder}README.md"));
        for source in below(folder, ".md") {
            let name = &source.path[folder.len()..];
            let is_page = name != "README.md" && !name.contains('/');
            assert!(!is_page || index.contains(&format!("({name})")), "{folder}README.md lacks {name}");
        }
    }
}

#[test]
fn the_readme_stays_below_a_thousand_words() {
    let count = page("README.md").split_whitespace().count();
    assert!(count < 1_000, "{count} words; move some to the guides in docs/");
}

/// `docs/metrics.md` is generated; what other pages and the examples say of metrics is not. What has the same beginning is a
/// crate.
#[test]
fn every_metric_that_is_mentioned_exists() {
    let metrics: BTreeSet<_> = words(page("docs/metrics.md"), "| `talaria_", MORE).collect();
    assert!(metrics.len() > 30, "docs/metrics.md has no table");
    let manifests =
        below("", "Cargo.toml").flat_map(|source| words(&source.text, "name = \"talaria-", "-0123456789"));
    let crates: BTreeSet<_> =
        manifests.map(|name| name.trim_start_matches("name = \"").replace('-', "_")).collect();
    let is_known = |name: &str| {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let is_metric = |name: &str| metrics.contains(format!("| `{name}").as_str());
        is_metric(name) || base.is_some_and(is_metric) || crates.contains(name)
    };
    let pages = below("docs/", ".md").chain(below("examples/observe/", "")).chain(below("", "README.md"));
    let mentioned =
        pages.flat_map(|source| words(&source.text, "talaria_", MORE).map(|name| (&source.path, name)));
    let wrong: Vec<_> = mentioned.filter(|(_, name)| !is_known(name)).collect();
    assert!(wrong.is_empty(), "no such metrics: {wrong:#?}");
}

/// What the name of a metric or of a crate has beside letters.
const MORE: &str = "_0123456789";

#[test]
fn every_flag_is_documented() {
    let is_help = |source: &&Source| source.path.contains("__help-");
    let help: String =
        below("host/talaria/", ".snap").filter(is_help).map(|source| source.text.as_str()).collect();
    let flags: BTreeSet<_> = words(&help, " --", "-").map(str::trim).collect();
    assert!(flags.contains("--config"), "no golden file has the help");
    for flag in flags.into_iter().filter(|flag| !matches!(*flag, "--" | "---" | "--help" | "--version")) {
        assert!(page("docs/commands.md").contains(flag), "docs/commands.md lacks {flag}");
    }
}

#[test]
fn troubleshooting_quotes_texts_of_the_code() {
    let mut literals = String::new();
    for source in below("host/", ".rs").chain(below("guests/", ".rs")) {
        for line in source.text.lines().map(str::trim_start) {
            // A literal may continue on the next line.
            match line.strip_suffix('\\') {
                Some(begun) => literals.push_str(begun),
                None => literals.extend([line, "\n"]),
            }
        }
    }
    // Texts quote things with backquotes, which the guide cannot inside its own.
    let literals = literals.replace('`', "").replace("\\\"", "\"").replace("{{", "{").replace("}}", "}");
    let mut missing = Vec::new();
    for row in page("docs/troubleshooting.md").lines().filter_map(|line| line.strip_prefix("| ")) {
        let symptom = row.split(" | ").next().unwrap();
        let quoted = symptom.split('`').skip(1).step_by(2).filter(|text| text.contains(' '));
        for fragment in quoted.flat_map(|text| text.split('…')) {
            let fragment = fragment.trim_matches([' ', ',', ';', ':', '?', '(', ')']);
            let is_composed = COMPOSED.iter().any(|composed| fragment.starts_with(composed));
            if fragment.len() >= SHORTEST && !is_composed && !literals.contains(fragment) {
                missing.push(fragment);
            }
        }
    }
    assert!(
        missing.is_empty(),
        "docs/troubleshooting.md quotes what the code lacks:\n{}",
        missing.join("\n")
    );
}
