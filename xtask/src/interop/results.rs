//! The outcomes of the frameworks: as lines, as a table, and in `docs/interop.md`.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::Line;
use crate::gate::Tally;

/// The columns of the table. An operation that a driver leaves out is not offered by its framework.
const OPERATIONS: [&str; 7] = ["send", "stream", "progress", "turns", "approval", "file", "auth"];
/// The marks around the table in the document.
const BEGIN: &str = "<!-- `TALARIA_BLESS=1 cargo xtask interop --frameworks` writes this table. -->\n";
const END: &str = "<!-- End of the table. -->\n";

/// All outcomes, in the order in which they were reported.
#[derive(Default)]
pub(super) struct Results {
    pub(super) outcomes: Vec<Outcome>,
}

/// The outcome of one operation of one framework.
#[derive(Serialize)]
pub(super) struct Outcome {
    name: &'static str,
    /// With its version, and the way in which it is used if there are several.
    framework: String,
    operation: String,
    seconds: f64,
    error: Option<String>,
    /// Why it is known to fail.
    known: Option<&'static str>,
}

// === impl Outcome ===

impl Outcome {
    pub(super) fn new(name: &'static str, line: Line, known: Option<&'static str>) -> Self {
        let framework = line.label();
        let Line { operation, seconds, error, .. } = line;
        Self { name, framework, operation, seconds, error, known }
    }

    /// The outcome of a framework that could not be installed, or whose driver did not finish.
    pub(super) fn broken(name: &'static str, why: String) -> Self {
        Self {
            name,
            framework: name.into(),
            operation: "run".into(),
            seconds: 0.0,
            error: Some(why),
            known: None,
        }
    }

    fn word(&self) -> &'static str {
        match (&self.error, self.known) {
            (None, None) => "ok",
            (None, Some(_)) => "PASSED",
            (Some(_), Some(_)) => "known",
            (Some(_), None) => "FAILED",
        }
    }

    /// The problem, if this outcome fails the command.
    fn failure(&self) -> Option<String> {
        let Self { framework, operation, error, known, .. } = self;
        match (error, known) {
            (Some(error), None) => Some(format!("{framework}, {operation}:\n{error}")),
            (None, Some(reason)) => {
                Some(format!("{framework}, {operation}: passes, and is listed as failing: {reason}"))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { framework, operation, seconds, .. } = self;
        write!(f, "{:<6}  {framework:<33}  {operation:<9}  {seconds:>5.1} s", self.word())
    }
}

// === impl Results ===

impl Results {
    /// As Markdown: a row for each framework, a column for each operation, and below the reasons of failures.
    pub(super) fn table(&self) -> String {
        let mut table = format!("| framework | {} |\n", OPERATIONS.join(" | "));
        table.push_str(&"|---".repeat(OPERATIONS.len() + 1));
        table.push_str("|\n");
        let mut frameworks: Vec<&str> = Vec::new();
        for outcome in &self.outcomes {
            // The outcomes of two ways of use alternate.
            if !frameworks.contains(&outcome.framework.as_str()) {
                frameworks.push(&outcome.framework);
            }
        }
        let mut reasons: Vec<&str> = Vec::new();
        for label in frameworks {
            let of_framework = || self.outcomes.iter().filter(|outcome| outcome.framework == label);
            let cells = OPERATIONS.map(|operation| {
                match of_framework().find(|outcome| outcome.operation == operation) {
                    None => "–".into(),
                    Some(Outcome { error: None, .. }) => "ok".into(),
                    Some(Outcome { known: None, .. }) => "**fails**".into(),
                    Some(Outcome { known: Some(reason), .. }) => {
                        let at = reasons.iter().position(|known| known == reason).unwrap_or_else(|| {
                            reasons.push(reason);
                            reasons.len() - 1
                        });
                        format!("no ({})", at + 1)
                    }
                }
            });
            let _ = writeln!(table, "| {label} | {} |", cells.join(" | "));
        }
        if !reasons.is_empty() {
            table.push('\n');
        }
        for (at, reason) in reasons.iter().enumerate() {
            let _ = writeln!(table, "{}. {reason}", at + 1);
        }
        table
    }

    /// Puts the table into a document, between its marks.
    pub(super) fn write(&self, file: &Path) -> Result<()> {
        let document = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let parts =
            document.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
        let (before, after) =
            parts.with_context(|| format!("{} lacks the marks around the table", file.display()))?;
        fs::write(file, format!("{before}{BEGIN}\n{}\n{END}{after}", self.table()))
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// Prints the unexpected outcomes, and counts them.
    pub(super) fn judge(&self) -> Tally {
        let failures: Vec<_> = self.outcomes.iter().filter_map(Outcome::failure).collect();
        for failure in &failures {
            eprintln!("\n{failure}");
        }
        Tally { passed: self.outcomes.len() - failures.len(), failed: failures.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(operation: &str, error: Option<&str>, known: Option<&'static str>) -> Outcome {
        let error = error.map(str::to_owned);
        let line = Line {
            client: "one 1.0".into(),
            binding: String::new(),
            operation: operation.into(),
            seconds: 0.1,
            error,
        };
        Outcome::new("one", line, known)
    }

    #[test]
    fn a_row_tells_what_passes_fails_and_is_not_offered() {
        let outcomes = vec![
            outcome("send", None, None),
            outcome("stream", Some("doubled"), Some("it joins everything")),
            outcome("progress", Some("doubled"), Some("it joins everything")),
            outcome("turns", Some("lost"), None),
        ];
        let table = Results { outcomes }.table();
        let row = "| one 1.0 | ok | no (1) | no (1) | **fails** | – | – | – |";
        assert_eq!(table.lines().nth(2), Some(row));
        assert_eq!(table.lines().last(), Some("1. it joins everything"));
    }

    #[test]
    fn a_known_failure_is_none_and_one_that_passes_is_one() {
        let failed = |outcome| Results { outcomes: vec![outcome] }.judge().failed;
        assert_eq!(failed(outcome("send", None, None)), 0);
        assert_eq!(failed(outcome("send", Some("doubled"), Some("its fault"))), 0);
        assert_eq!(failed(outcome("send", Some("doubled"), None)), 1);
        assert_eq!(failed(outcome("send", None, Some("its fault"))), 1);
        assert_eq!(failed(Outcome::broken("one", "no network".into())), 1);
    }

    #[test]
    fn only_what_is_between_the_marks_is_rewritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("doc.md");
        fs::write(&file, format!("before\n{BEGIN}old\n{END}after\n")).unwrap();
        let results = Results { outcomes: vec![outcome("send", None, None)] };
        results.write(&file).unwrap();
        let document = fs::read_to_string(&file).unwrap();
        assert!(document.starts_with("before\n") && document.ends_with("after\n"), "{document}");
        assert!(document.contains(&results.table()) && !document.contains("old"), "{document}");
        fs::write(&file, "nothing").unwrap();
        results.write(&file).unwrap_err();
    }
}
