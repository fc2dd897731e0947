//! The result of a trial: as text, a line per step with its calls below; as JSON, one document.

use std::fmt;

use serde::Serialize;

use talaria_engine::Needs;

use crate::timeline::Entry;

/// The result of a trial.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The name of the executor.
    pub executor: String,
    /// Whether every step passed.
    pub passed: bool,
    /// The component; absent if it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<Identity>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The needs that the component declares.
    #[serde(skip)]
    pub(crate) needs: Option<Needs>,
}

/// The identity that the component declares, and its digest.
#[derive(Debug, Serialize)]
pub struct Identity {
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
    /// The contract that it was loaded with.
    pub contract: &'static str,
    /// The SHA-256 of the component, in hex.
    pub digest: String,
}

/// One step of a trial.
#[derive(Debug, Serialize)]
pub struct Step {
    /// `load`, `execute`, `execute (streamed)` or `cancel`.
    pub step: String,
    /// The caller's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Duration in milliseconds.
    pub took_ms: f64,
    /// How the step ended, in short.
    pub outcome: String,
    /// What went wrong; empty if the step passed.
    pub problems: Vec<String>,
    /// What the component called.
    pub calls: Vec<Entry>,
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
