//! A corpus of ordinary code, which replies must carry unchanged and logs nearly so. Each line stands for itself, and all of
//! them mention keys, tokens, passwords or hashes, or contain what could be taken for one.

use std::fs;
use std::path::Path;

use talaria_redact::{Redactor, Replies, ReplyRedactor, shapes};

/// Of a hundred lines, the most that may change by shapes.
const PERCENT: usize = 2;

/// Lines by language, without those that are empty.
fn corpus() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let language = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let kept = text.lines().filter(|line| !line.trim().is_empty());
        lines.extend(kept.map(|line| (language.clone(), line.to_owned())));
    }
    lines
}

#[test]
fn the_corpus_is_large_enough() {
    let corpus = corpus();
    let mut languages: Vec<&str> = corpus.iter().map(|(language, _)| language.as_str()).collect();
    languages.sort_unstable();
    languages.dedup();
    assert!(languages.len() >= 10, "{languages:?}");
    assert!(corpus.len() >= 200, "{} lines", corpus.len());
}

#[test]
fn values_change_no_line_of_ordinary_code() {
    let secrets = ["hunter2hunter2", "correct horse battery", "kX9-pLq2_vT7.wZ4", "0f1e2d3c4b5a6978"];
    let redactor = Redactor::new(secrets);
    let replies = ReplyRedactor::new(redactor.clone(), Replies::Values);
    for (language, line) in corpus() {
        assert_eq!(redactor.values(&line), line, "{language}");
        assert_eq!(replies.text(line.clone()), line, "{language}");
    }
    assert_ne!(redactor.values("a hunter2hunter2"), "a hunter2hunter2", "the redactor knows the secrets");
}

#[test]
fn shapes_change_few_lines_of_ordinary_code() {
    let corpus = corpus();
    let changed: Vec<String> = corpus
        .iter()
        .filter_map(|(language, line)| {
            let redacted = shapes(line);
            (redacted != *line).then(|| format!("{language}: {line}\n  -> {redacted}"))
        })
        .collect();
    println!("{} of {} lines change:\n{}", changed.len(), corpus.len(), changed.join("\n"));
    assert!(changed.len() * 100 <= corpus.len() * PERCENT);
}
