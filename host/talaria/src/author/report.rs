//! What came of a trial: for people a line for each step with its calls below it, for programs one document.

use std::fmt;

use serde::Serialize;

use talaria_engine::Needs;

use super::timeline::Entry;

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) executor: String,
    pub(crate) passed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) component: Option<Identity>,
    pub(crate) steps: Vec<Step>,
    /// What the component says that it needs.
    #[serde(skip)]
    pub(crate) needs: Option<Needs>,
}

/// Who the component says that it is.
#[derive(Debug, Serialize)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) contract: &'static str,
    pub(crate) digest: String,
}

/// One thing that was tried.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    /// `load`, `execute`, `execute (streamed)` or `cancel`.
    pub(crate) step: String,
    /// What the caller said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    pub(crate) took_ms: f64,
    /// How it ended, in short.
    pub(crate) outcome: String,
    /// What is wrong with that; nothing, if it passed.
    pub(crate) problems: Vec<String>,
    pub(crate) calls: Vec<Entry>,
}

// === impl Report ===

impl Report {
    pub(crate) fn new(executor: &str, component: Option<(Identity, Needs)>, steps: Vec<Step>) -> Self {
        let passed = steps.iter().all(|step| step.problems.is_empty());
        let (component, needs) = component.unzip();
        Self { executor: executor.to_owned(), passed, component, steps, needs }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "executor {}", self.executor)?;
        if let Some(Identity { name, version, contract, digest }) = &self.component {
            let digest = digest.get(..12).unwrap_or(digest);
            write!(f, ": {name} {version}, {contract}, sha256:{digest}")?;
        }
        writeln!(f)?;
        for step in &self.steps {
            writeln!(f, "\n{step}")?;
        }
        write!(f, "\n{}", if self.passed { "passed" } else { "failed" })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.problems.is_empty() { "ok" } else { "FAILED" };
        write!(f, "{:<20} {verdict:<7} {:>8.1} ms  {}", self.step, self.took_ms, self.outcome)?;
        for Entry { at_ms, import, args, result } in &self.calls {
            let arrow = if result.is_empty() { "" } else { "  → " };
            write!(f, "\n  {at_ms:>8.1} ms  {import:<17} {args}{arrow}{result}")?;
        }
        for problem in &self.problems {
            write!(f, "\n  problem: {problem}")?;
        }
        Ok(())
    }
}
