//! `talaria check`: everything that `serve` would do before its port opens, and what came of it.
//!
//! Each executor with what its component says it needs beside what the operator grants, and the exact line to add
//! for what is missing. Exit code 0 if every executor is ready, 1 if one is not.

use std::fmt;

use serde::Serialize;
use talaria_egress::Pattern;
use talaria_engine::fill_in;

use crate::config::{Config, Executor, ExecutorName};
use crate::executors::{Loaded, Readiness, Table};

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    config: Option<String>,
    listen: String,
    default: String,
    executors: Vec<Checked>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Checked {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<Identity>,
    #[serde(flatten)]
    verdict: Verdict,
    /// Who takes its turns as long as it is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    stand_in: Option<String>,
    needs: Vec<Need>,
}

#[derive(Debug, Serialize)]
struct Identity {
    name: String,
    version: String,
    digest: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict", content = "reason")]
enum Verdict {
    Ready,
    NotReady(String),
    Refused(String),
}

#[derive(Debug, Serialize)]
struct Need {
    kind: Kind,
    need: String,
    granted: bool,
    /// What to add to the grant where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    add: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Egress,
    Secret,
    Callbacks,
}

// === impl Report ===

impl Report {
    pub(crate) fn new(config: &Config, executors: &Table) -> Self {
        let mut checked: Vec<Checked> = executors
            .loaded()
            .map(|(name, loaded)| Checked::loaded(&loaded.config, loaded, stand_in(executors, name)))
            .collect();
        checked.extend(executors.refused().map(|(name, reason)| Checked {
            name: name.as_str().to_owned(),
            component: None,
            verdict: Verdict::Refused(reason.to_owned()),
            stand_in: stand_in(executors, name),
            needs: Vec::new(),
        }));
        checked.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            config: config.file.as_ref().map(|path| path.display().to_string()),
            listen: config.a2a.listen.to_string(),
            default: executors.default_name().as_str().to_owned(),
            executors: checked,
            warnings: config.warnings.clone(),
        }
    }

    /// Whether every executor is ready.
    pub(crate) fn is_well(&self) -> bool {
        self.executors.iter().all(|checked| matches!(checked.verdict, Verdict::Ready))
    }
}

/// The name of another executor that takes this one's turns.
fn stand_in(executors: &Table, name: &ExecutorName) -> Option<String> {
    let (other, _) = executors.stand_in(name)?;
    (other != name).then(|| other.as_str().to_owned())
}

impl Checked {
    fn loaded(config: &Executor, loaded: &Loaded, stand_in: Option<String>) -> Self {
        let component = loaded.executor.component();
        let description = component.description();
        let settings = loaded.executor.settings();
        let egress = description.needs.egress.iter().map(|need| match fill_in(need, settings) {
            Ok(pattern) => Need::egress(pattern, &config.grant.egress),
            Err(error) => {
                Need { kind: Kind::Egress, need: need.clone(), granted: false, add: Some(error.to_string()) }
            }
        });
        let secrets = description.needs.secrets.iter().map(|name| Need {
            kind: Kind::Secret,
            granted: config.grant.secrets.is_set(name),
            add: (!config.grant.secrets.names().any(|known| known == name))
                .then(|| format!("secrets = [\"{name}\"]")),
            need: name.clone(),
        });
        let callbacks = description.needs.callbacks.then(|| Need {
            kind: Kind::Callbacks,
            need: "callbacks".into(),
            granted: config.grant.callbacks,
            add: (!config.grant.callbacks).then(|| "callbacks = true".into()),
        });
        Self {
            name: config.name.as_str().to_owned(),
            component: Some(Identity {
                name: description.name.clone(),
                version: description.version.clone(),
                digest: component.digest().to_owned(),
            }),
            verdict: match loaded.readiness() {
                Readiness::Ready => Verdict::Ready,
                Readiness::NotReady(reason) | Readiness::Quarantined(reason) => Verdict::NotReady(reason),
            },
            stand_in,
            needs: egress.chain(secrets).chain(callbacks).collect(),
        }
    }
}

impl Need {
    fn egress(need: String, grant: &[Pattern]) -> Self {
        let granted = need.parse::<Pattern>().is_ok_and(|need| grant.iter().any(|grant| grant.covers(&need)));
        let add = (!granted).then(|| format!("egress = [\"{need}\"]"));
        Self { kind: Kind::Egress, need, granted, add }
    }

    /// In words. A secret that is granted and not set is not an error: the seeds send no key then.
    fn state(&self) -> String {
        match (self.granted, self.kind, &self.add) {
            (true, ..) => "granted".into(),
            (false, Kind::Secret, None) => "granted, not set".into(),
            (false, _, Some(add)) => format!("denied; add {add}"),
            (false, _, None) => "denied".into(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "configuration  {}", self.config.as_deref().unwrap_or("(defaults and environment)"))?;
        writeln!(f, "listen         {}", self.listen)?;
        for warning in &self.warnings {
            writeln!(f, "warning        {warning}")?;
        }
        for checked in &self.executors {
            let default = if checked.name == self.default { " (default)" } else { "" };
            writeln!(f, "\nexecutor {}{default}: {}", checked.name, checked.verdict)?;
            if let Some(other) = &checked.stand_in {
                writeln!(f, "  fallback   {other} takes its turns")?;
            }
            if let Some(Identity { name, version, digest }) = &checked.component {
                writeln!(f, "  component  {name} {version}, sha256:{}", digest.get(..12).unwrap_or(digest))?;
            }
            let width = checked.needs.iter().map(|need| need.need.len()).max().unwrap_or_default();
            for need in &checked.needs {
                let kind = match need.kind {
                    Kind::Egress => "egress",
                    Kind::Secret => "secret",
                    Kind::Callbacks => "callback",
                };
                writeln!(f, "  {kind:<9}  {:<width$}  {}", need.need, need.state())?;
            }
        }
        let verdict = if self.is_well() { "all executors are ready" } else { "not all executors are ready" };
        write!(f, "\n{verdict}")
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::NotReady(reason) => write!(f, "not ready: {reason}"),
            Self::Refused(reason) => write!(f, "refused: {reason}"),
        }
    }
}
