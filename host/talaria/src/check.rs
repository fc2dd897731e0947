//! `talaria check`: does everything that `serve` does before its port opens, and reports the result.
//!
//! For each executor the report compares the needs of its component with its grant, and shows the exact line to add for what
//! is missing. A denied need is a warning; whether its turns can succeed is for the probe to say. Of the store the report says
//! whether it can be written and has room, and which host owns it; it may run beside that host, and resumes no turn. Exit code 0 if every
//! executor is ready and the store can be written, 1 if not.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use talaria_store::Owner;

use crate::config::{Config, ExecutorName, StoreUrl};
use talaria_executors::needs::{self, Need};
use talaria_executors::{Executor, LoadedExecutor, Readiness, Table};

/// The report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    config: Option<String>,
    listen: String,
    default: String,
    store: CheckedStore,
    executors: Vec<Checked>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct CheckedStore {
    /// `None` for a store in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    #[serde(flatten)]
    verdict: Verdict,
    /// The host that owns it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
}

#[derive(Debug, Serialize)]
struct Checked {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<Identity>,
    #[serde(flatten)]
    verdict: Verdict,
    /// The executor that takes its turns meanwhile.
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
        let mut warnings = config.warnings.clone();
        warnings.extend(checked.iter().filter_map(Checked::denied));
        for (name, loaded) in executors.loaded() {
            warnings.extend(loaded.warnings.iter().map(|problem| format!("executor {name}: {problem}")));
        }
        Self {
            config: config.file.as_ref().map(|path| path.display().to_string()),
            listen: config.a2a.listen.to_string(),
            default: executors.default_name().as_str().to_owned(),
            store: CheckedStore::new(config),
            executors: checked,
            warnings,
        }
    }

    /// Whether every executor is ready and the store can be written.
    pub(crate) fn is_well(&self) -> bool {
        matches!(self.store.verdict, Verdict::Ready) && self.are_ready()
    }

    fn are_ready(&self) -> bool {
        self.executors.iter().all(|checked| matches!(checked.verdict, Verdict::Ready))
    }
}

/// The executor that takes the turns of this one, if that is another.
fn stand_in(executors: &Table, name: &ExecutorName) -> Option<String> {
    let (other, _) = executors.stand_in(name)?;
    (other != name).then(|| other.as_str().to_owned())
}

impl CheckedStore {
    fn new(config: &Config) -> Self {
        let StoreUrl::Sqlite(path) = &config.store else {
            return Self { file: None, verdict: Verdict::Ready, owner: None };
        };
        let verdict = match talaria_store::try_write(path, &config.sqlite()) {
            Ok(()) => Verdict::Ready,
            Err(error) => Verdict::NotReady(error.to_string()),
        };
        Self { file: Some(path.clone()), verdict, owner: Owner::of(path) }
    }
}

impl fmt::Display for CheckedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}: {}", file.display(), self.verdict)?,
            None => write!(f, "in memory")?,
        }
        match &self.owner {
            Some(owner) => write!(f, "; in use by {owner}"),
            None => Ok(()),
        }
    }
}

impl Checked {
    /// A warning, if a need is denied.
    fn denied(&self) -> Option<String> {
        let missing: Vec<&str> = self.needs.iter().filter_map(Need::missing).collect();
        let (name, count) = (&self.name, missing.len());
        (count > 0)
            .then(|| format!("executor {name} is denied {count} of its needs: add {}", missing.join(", ")))
    }

    fn loaded(config: &Executor, loaded: &LoadedExecutor, stand_in: Option<String>) -> Self {
        let component = loaded.executor.component();
        let description = component.description();
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
            needs: needs::needs(component, loaded.executor.settings(), Some(&config.grant)),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "configuration  {}", self.config.as_deref().unwrap_or("(defaults and environment)"))?;
        writeln!(f, "listen         {}", self.listen)?;
        writeln!(f, "store          {}", self.store)?;
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
            needs::write(f, &checked.needs)?;
        }
        let verdict = match (self.are_ready(), self.is_well()) {
            (true, true) => "all executors are ready",
            (true, false) => "all executors are ready, but the store cannot be written",
            (false, _) => "not all executors are ready",
        };
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
