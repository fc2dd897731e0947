//! Words that must not come back, because readers stumble over them.

use regex::Regex;

use crate::sources::matches;

/// Sentences whose subject is missing, and names that only this project knew.
const WORDS: &str = r"\b[Ww]hoever\b|\b(?:it|this|that|which|what|one|post) is none\b|\bno news\b|\b[Ww]ho hangs up\b|\bwhat lies behind\b|\bthe seeds' |\bof the seeds\b|\bSeeds\b";

#[test]
fn words_that_read_like_riddles_do_not_come_back() {
    let words = Regex::new(WORDS).unwrap();
    let is_text = |path: &str| [".rs", ".md", ".toml", ".wit"].iter().any(|end| path.ends_with(end));
    // The seeds of fuzzing are the usual word; a released contract and the record of decisions are not rewritten.
    let is_exempt = |path: &str| {
        ["tests/architecture/", "tests/fuzz/", "docs/decisions/"]
            .iter()
            .any(|folder| path.starts_with(folder))
    };
    let found = matches(&words, |path| is_text(path) && !is_exempt(path));
    assert!(found.is_empty(), "{} lines:\n{}", found.len(), found.join("\n"));
}
