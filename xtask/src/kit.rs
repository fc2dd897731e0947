//! What became of the tests of a kit, as a table or as JSON, and whether that is as it must be.
//!
//! A test that fails because of its kit is in a list of known failures, with the reason. Any other failure fails the command,
//! and so does a known one that passes, or an entry that is about no test: then the list must be corrected.

use std::fmt;
use std::io::{self, Write as _};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// A failure that is the kit's fault: the beginning of the run's name, the end of the test's name, the reason.
pub(crate) type Known = (&'static str, &'static str, &'static str);

/// The outcomes of the tests of one run.
#[derive(Default, Deserialize)]
pub(crate) struct Outcomes {
    passed: Vec<Test>,
    failed: Vec<Test>,
    error: Vec<Test>,
    skipped: Vec<Test>,
    xfailed: Vec<Test>,
    xpassed: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    test: String,
    said: String,
}

/// The output of a command.
#[derive(Serialize)]
pub(crate) struct Report {
    runs: Vec<Results>,
    /// The names of the known failures that no test had.
    unknown: Vec<&'static str>,
}

/// The results of one run.
#[derive(Serialize)]
pub(crate) struct Results {
    run: String,
    passed: usize,
    failed: usize,
    skipped: usize,
    xfailed: usize,
    seconds: f64,
    failures: Vec<Failure>,
    /// Tests that passed although they are known to fail.
    mended: Vec<String>,
}

#[derive(Serialize)]
struct Failure {
    test: String,
    /// Why it is known to fail.
    known: Option<&'static str>,
    said: String,
}

// === impl Outcomes ===

impl Outcomes {
    /// The results of the run of this name.
    pub(crate) fn of(self, run: &str, seconds: f64, list: &[Known]) -> Results {
        let mended =
            self.passed.iter().map(|test| &test.test).filter(|test| known(list, run, test).is_some());
        Results {
            run: run.to_owned(),
            mended: mended.cloned().collect(),
            passed: self.passed.len() + self.xpassed.len(),
            skipped: self.skipped.len(),
            xfailed: self.xfailed.len(),
            seconds,
            failed: self.failed.len() + self.error.len(),
            failures: self
                .failed
                .into_iter()
                .chain(self.error)
                .map(|Test { test, said }| Failure { known: known(list, run, &test), test, said })
                .collect(),
        }
    }
}

/// Why a test is known to fail.
fn known(list: &[Known], run: &str, test: &str) -> Option<&'static str> {
    list.iter().find(|(of, name, _)| run.starts_with(of) && test.ends_with(name)).map(|(.., why)| *why)
}

// === impl Report ===

impl Report {
    /// A report of these runs, each of which was judged by this list.
    pub(crate) fn new(runs: Vec<Results>, list: &[Known]) -> Self {
        let is_of = |run: &Results, known: &Known| {
            let mut tests = run.failures.iter().map(|failure| &failure.test).chain(&run.mended);
            run.run.starts_with(known.0) && tests.any(|test| test.ends_with(known.1))
        };
        let about_these = |known: &&Known| runs.iter().any(|run| run.run.starts_with(known.0));
        let unknown =
            list.iter().filter(about_these).filter(|known| !runs.iter().any(|run| is_of(run, known)));
        Self { unknown: unknown.map(|(_, name, _)| *name).collect(), runs }
    }

    /// Prints it. Fails if a test did something else than is known of it.
    pub(crate) fn finish(&self, json: bool) -> Result<()> {
        let text = if json { serde_json::to_string_pretty(self)? } else { self.to_string() };
        writeln!(io::stdout(), "{}", text.trim_end())?;
        self.judge()
    }

    fn judge(&self) -> Result<()> {
        let new =
            self.runs.iter().flat_map(|run| &run.failures).filter(|failure| failure.known.is_none()).count();
        let mended = self.runs.iter().map(|run| run.mended.len()).sum::<usize>();
        ensure!(new == 0, "{new} tests failed that are not known to fail");
        ensure!(mended == 0, "{mended} tests passed that are known to fail: correct the list");
        ensure!(self.unknown.is_empty(), "no test failed that is known as {}", self.unknown.join(", "));
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| kit | passed | failed | skipped | xfail | time |\n|---|---|---|---|---|---|")?;
        for Results { run, passed, failed, skipped, xfailed, seconds, .. } in &self.runs {
            writeln!(f, "| {run} | {passed} | {failed} | {skipped} | {xfailed} | {seconds:.0} s |")?;
        }
        for run in &self.runs {
            for Failure { test, known, said } in &run.failures {
                let name = test.rsplit("::").next().unwrap_or(test);
                match known {
                    Some(known) => writeln!(f, "\n- {}: `{name}`: {known}", run.run)?,
                    None => writeln!(f, "\n- {}: `{test}` failed:\n\n{said}", run.run)?,
                }
            }
            for test in &run.mended {
                writeln!(f, "\n- {}: `{test}` passed, and is known to fail", run.run)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: &str = "a.py::TestCard::test_agent_card_validates_against_schema";
    const LIST: &[Known] =
        &[("1.0", "::test_agent_card_validates_against_schema", "The kit asks for another card.")];

    fn run(name: &str, passed: &[&str], failed: &[&str]) -> Report {
        let tests = |names: &[&str]| {
            names.iter().map(|test| Test { test: (*test).into(), said: "why".into() }).collect::<Vec<_>>()
        };
        let outcomes = Outcomes {
            passed: tests(passed),
            failed: tests(failed),
            skipped: tests(&["s"]),
            ..Outcomes::default()
        };
        Report::new(vec![outcomes.of(name, 1.0, LIST)], LIST)
    }

    #[test]
    fn a_known_failure_passes_and_is_explained() {
        let report = run("1.0, everything on", &["a.py::one"], &[CARD]);
        report.judge().unwrap();
        let text = report.to_string();
        assert!(text.contains("| 1.0, everything on | 1 | 1 | 1 | 0 | 1 s |"), "{text}");
        assert!(text.contains("`test_agent_card_validates_against_schema`: The kit asks"), "{text}");
    }

    #[test]
    fn a_new_failure_fails_and_shows_the_output_of_the_kit() {
        let report = run("1.0, everything on", &[], &["a.py::new"]);
        assert!(report.judge().unwrap_err().to_string().contains("1 tests failed"));
        assert!(report.to_string().contains("`a.py::new` failed:\n\nwhy"));
    }

    #[test]
    fn a_known_failure_of_one_version_is_new_in_another() {
        run("0.3, JSON-RPC, mandatory", &[], &[CARD]).judge().unwrap_err();
        run("0.3, JSON-RPC, mandatory", &[], &[]).judge().unwrap();
    }

    #[test]
    fn a_known_failure_that_passes_or_is_gone_must_leave_the_list() {
        let passed = run("1.0, everything on", &[CARD], &[]).judge().unwrap_err();
        assert!(passed.to_string().contains("correct the list"), "{passed}");
        let gone = run("1.0, everything on", &["a.py::one"], &[]).judge().unwrap_err();
        assert!(gone.to_string().contains("test_agent_card_validates_against_schema"), "{gone}");
    }
}
