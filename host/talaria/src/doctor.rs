//! `talaria doctor`: diagnoses this machine, and names a fix for each problem.
//!
//! Each check answers one question that an operator would otherwise answer by reading logs, with a finding and a fix.
//! Nothing is changed or started, and every request has a time limit. A running host is recognised by its card, so that its
//! own port does not count as taken. The checks of the gateway are in `talaria_hermes`.
//!
//! Exit code: 0 if nothing is wrong, 2 with warnings, 1 with failures.

mod machine;
mod tool_servers;
mod tool_use;

use std::fmt;

use serde::Serialize;
use talaria_hermes::doctor::{Callback, Finding, Findings, Probe, Subject, Verdict};

use crate::config::{Config, Env};

/// All findings.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    worst: Verdict,
    checks: Vec<Finding>,
}

// === impl Report ===

impl Report {
    /// Runs all checks.
    pub(crate) async fn new(config: &Config, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let (probe, mut findings) = (Probe::new(config.egress.clone()), Findings::default());
        for warning in &config.warnings {
            findings.warn("configuration", warning.clone(), "see docs/configuration.md");
        }
        let gateway = gateway(config, env);
        let gateway_home = gateway.home().map(|home| home.path().to_owned());
        machine::Examination { config, env, gateway_home, probe: &probe, findings: &mut findings }
            .run()
            .await;
        gateway.examine(&probe, &mut findings).await;
        let checks = findings.0;
        Self { worst: checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok), checks }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self.worst {
            Verdict::Ok => 0,
            Verdict::Failure => 1,
            Verdict::Warning => 2,
        }
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|check| check.verdict == verdict).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { name, verdict, text, fix } in &self.checks {
            let mark = match verdict {
                Verdict::Ok => "ok     ",
                Verdict::Warning => "warning",
                Verdict::Failure => "FAILURE",
            };
            writeln!(f, "{mark}  {name}: {text}")?;
            if let Some(fix) = fix {
                writeln!(f, "           fix: {fix}")?;
            }
        }
        let (failures, warnings) = (self.count(Verdict::Failure), self.count(Verdict::Warning));
        let counted = |count: usize, noun| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        let checks = counted(self.checks.len(), "check");
        write!(f, "{checks}, {}, {}", counted(failures, "failure"), counted(warnings, "warning"))
    }
}

/// What the checks of the gateway need from the configuration.
fn gateway<'a>(config: &'a Config, env: &'a dyn Fn(&str) -> Option<String>) -> Subject<'a> {
    let callback = config.callback.as_ref();
    let workspace = config.workspace.as_ref();
    Subject {
        env: Env(env),
        executors: &config.executors,
        supervised: config.gateway.as_ref(),
        callback: callback.map(|callback| Callback {
            listen: callback.listen,
            url: callback.reply_url(callback.listen),
            has_secret: callback.secret.is_some(),
        }),
        tools: config.tools.as_ref().map(|tools| format!("http://{}{}", tools.listen, talaria_mcp::PATH)),
        model: workspace.and_then(|workspace| workspace.assembly.current().workspace.model.clone()),
    }
}
