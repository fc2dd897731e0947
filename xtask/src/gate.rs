//! Runs steps one after the other, and prints a table of their times and a count of the tests at the end.
//!
//! The output of a step is shown as it appears. The first step that fails ends the run, because the later ones cost minutes
//! and would bury the failure. The table and the count are printed even then, and the error names the command that runs only
//! that step.

use std::io::{BufRead as _, BufReader, IsTerminal as _, Read, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;
use std::{io, thread};

use anyhow::{Context as _, Result, bail};

/// The number of tests that passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

/// Runs a step and counts its tests.
type Run<'a> = dyn Fn(&Path) -> Result<Tally> + 'a;

/// A step that must pass.
pub(crate) struct Step<'a> {
    pub(crate) name: &'static str,
    /// The command that runs only this step.
    pub(crate) alone: &'static str,
    pub(crate) run: Box<Run<'a>>,
}

/// The result of a step.
struct Row {
    name: &'static str,
    seconds: f64,
    tally: Tally,
}

/// Runs the steps in order, up to the first that fails.
pub(crate) fn run_all(verb: &str, steps: &[Step<'_>], root: &Path) -> Result<()> {
    let start = Instant::now();
    let mut rows = Vec::new();
    let mut failure = None;
    for (at, step) in steps.iter().enumerate() {
        eprintln!("{verb}: {} ({} of {})", step.name, at + 1, steps.len());
        let start = Instant::now();
        let done = (step.run)(root);
        let seconds = start.elapsed().as_secs_f64();
        let tally = done.as_ref().copied().unwrap_or(Tally { passed: 0, failed: 1 });
        rows.push(Row { name: step.name, seconds, tally });
        failure = match done {
            Err(error) => Some(error),
            Ok(Tally { failed: 0, .. }) => continue,
            Ok(Tally { failed, .. }) => Some(anyhow::anyhow!("{failed} failed")),
        }
        .map(|error| error.context(format!("{} failed; run it alone with `{}`", step.name, step.alone)));
        break;
    }
    let steps_left = steps.len() - rows.len();
    io::stdout().write_all(table(&rows, steps_left, start.elapsed().as_secs_f64()).as_bytes())?;
    failure.map_or(Ok(()), Err)
}

/// The table, and below it the total count.
fn table(rows: &[Row], steps_left: usize, seconds: f64) -> String {
    let mut text = String::new();
    let mut all = Tally::default();
    for Row { name, seconds, tally } in rows {
        let result = if tally.failed == 0 { "ok" } else { "FAILED" };
        let counted = match tally {
            Tally { passed: 0, failed: 0 } => String::new(),
            Tally { passed, failed } => format!("{passed} passed, {failed} failed"),
        };
        text.push_str(format!("{seconds:>8.1} s  {result:<6}  {name:<28}  {counted}").trim_end());
        text.push('\n');
        all += *tally;
    }
    if steps_left > 0 {
        text.push_str(&format!("            not run: the {steps_left} steps after it\n"));
    }
    text.push_str(&format!("{seconds:>8.1} s  total\n{} passed, {} failed\n", all.passed, all.failed));
    text
}

/// Runs a command, shows its output, and counts the tests by the summary lines of cargo's test runners.
///
/// # Errors
/// If the command fails without a failed test.
pub(crate) fn count(command: &mut Command) -> Result<Tally> {
    if io::stderr().is_terminal() {
        // cargo would not use colours for a pipe.
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let tally = Mutex::new(Tally::default());
    let (out, err) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        scope.spawn(|| out.map(|out| show(out, &tally)));
        scope.spawn(|| err.map(|err| show(err, &tally)));
    });
    let status = child.wait().context("cannot wait for cargo")?;
    let tally = tally.into_inner().unwrap_or_default();
    if !status.success() && tally.failed == 0 {
        bail!("cargo ended with {status}");
    }
    Ok(tally)
}

/// Shows lines and adds up their summaries.
fn show(from: impl Read, tally: &Mutex<Tally>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let _ = io::stderr().write_all(&line);
        if let Some(counted) = summary(&String::from_utf8_lossy(&line))
            && let Ok(mut tally) = tally.lock()
        {
            *tally += counted;
        }
        line.clear();
    }
}

/// Parses the summary line of nextest or of `cargo test`.
fn summary(line: &str) -> Option<Tally> {
    let line = without_colours(line);
    let counts = match line.split_once("tests run: ").or_else(|| line.split_once("test run: ")) {
        Some((start, counts)) if start.trim_start().starts_with("Summary") => counts,
        _ => line.trim_start().strip_prefix("test result: ")?,
    };
    let mut tally = Tally::default();
    // `61 passed (2 slow)`, `ok. 61 passed`, `1 timed out`
    for count in counts.split([',', ';', '.']) {
        let mut words = count.split_whitespace();
        let Some(number) = words.next().and_then(|number| number.parse::<usize>().ok()) else { continue };
        match words.next() {
            Some("passed") => tally.passed += number,
            Some("failed" | "timed" | "exec") => tally.failed += number,
            _ => {}
        }
    }
    Some(tally)
}

fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, escaped)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = escaped.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    plain
}

// === impl Tally ===

impl Tally {
    /// A number of tests that passed.
    pub(crate) fn passed(passed: usize) -> Self {
        Self { passed, failed: 0 }
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_summary_lines_of_both_runners() {
        for (line, passed, failed) in [
            ("     Summary [   0.520s] 24 tests run: 24 passed, 0 skipped", 24, 0),
            ("     Summary [   0.5s] 1 test run: 1 passed, 7 skipped", 1, 0),
            ("     Summary [  9s] 24 tests run: 20 passed (2 slow), 3 failed, 1 timed out, 5 skipped", 20, 4),
            (
                "\u{1b}[32;1m     Summary\u{1b}[0m [ 9s] \u{1b}[1m2\u{1b}[0m tests run: \u{1b}[1m2\u{1b}[0m passed",
                2,
                0,
            ),
            (
                "test result: ok. 61 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.12s",
                61,
                0,
            ),
            ("test result: FAILED. 60 passed; 1 failed; 0 ignored", 60, 1),
        ] {
            assert_eq!(summary(line), Some(Tally { passed, failed }), "{line}");
        }
        for line in ["24 tests run: what a test printed", "test a::b ... ok", ""] {
            assert_eq!(summary(line), None, "{line}");
        }
    }

    #[test]
    fn a_failure_ends_the_run_and_names_the_step_that_failed() {
        let step = |name, run: fn(&Path) -> Result<Tally>| Step {
            name,
            alone: "cargo xtask one",
            run: Box::new(run),
        };
        let steps = [
            step("first", |_| Ok(Tally::passed(3))),
            step("second", |_| Ok(Tally { passed: 1, failed: 2 })),
            step("third", |_| bail!("must not run")),
        ];
        let error = format!("{:#}", run_all("test", &steps, Path::new(".")).unwrap_err());
        assert_eq!(error, "second failed; run it alone with `cargo xtask one`: 2 failed");
        run_all("test", &steps[..1], Path::new(".")).unwrap();
    }

    #[test]
    fn the_table_ends_with_the_total_count() {
        let row = |name, passed, failed| Row { name, seconds: 1.25, tally: Tally { passed, failed } };
        let text = table(&[row("format", 0, 0), row("tests", 7, 1)], 2, 2.5);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "     1.2 s  ok      format",
                "     1.2 s  FAILED  tests                         7 passed, 1 failed",
                "            not run: the 2 steps after it",
                "     2.5 s  total",
                "7 passed, 1 failed",
            ]
        );
    }
}
