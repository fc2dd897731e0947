//! `talaria executor`: shows executors and their components without serving, and rolls back an executor of a running host.

mod rollback;

use std::fmt;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Map, Value};
use talaria_egress::Egress;
use talaria_engine::{Component, Engine, EngineConfig};

use crate::config::Config;
use talaria_executors::needs::{self, Need};
use talaria_executors::{ComponentRef, LoadedExecutor, Table};

pub(crate) use rollback::RolledBack;

/// `talaria executor list`
#[derive(Debug, Serialize)]
pub(crate) struct List {
    executors: Vec<Listed>,
}

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    default: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    state: String,
}

/// `talaria executor inspect`
#[derive(Debug, Serialize)]
pub(crate) struct Inspected {
    file: String,
    name: String,
    version: String,
    description: String,
    digest: String,
    contract: &'static str,
    streaming: bool,
    /// Whether it can show the transcript of its upstream.
    transcript: bool,
    /// Whether it calls tools of the host.
    tools: bool,
    settings_schema: Value,
    /// The executor whose grant is compared; `None` if no executor has this component.
    #[serde(skip_serializing_if = "Option::is_none")]
    executor: Option<String>,
    needs: Vec<Need>,
    /// The lines to add if something is missing.
    add: Vec<String>,
}

// === impl List ===

impl List {
    pub(crate) fn new(executors: &Table) -> Self {
        let is_default = |name| executors.default_name() == name;
        let mut listed: Vec<Listed> = executors
            .loaded()
            .map(|(name, loaded)| Listed {
                name: name.as_str().to_owned(),
                default: is_default(name),
                component: Some(loaded.config.component.to_string()),
                version: Some(loaded.executor.component().description().version.clone()),
                digest: Some(loaded.executor.component().digest().to_owned()),
                state: loaded.readiness().to_string(),
            })
            .collect();
        listed.extend(executors.refused().map(|(name, reason)| Listed {
            name: name.as_str().to_owned(),
            default: is_default(name),
            component: None,
            version: None,
            digest: None,
            state: format!("refused: {reason}"),
        }));
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Self { executors: listed }
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.executors.iter().map(|listed| listed.name.len()).max().unwrap_or_default();
        let lines = self.executors.iter().map(|listed| {
            let digest = listed.digest.as_deref().and_then(|digest| digest.get(..12)).unwrap_or("-");
            let version = listed.version.as_deref().unwrap_or("-");
            let default = if listed.default { " (default)" } else { "" };
            format!("{:<width$}  {version:<8}  {digest:<12}  {}{default}", listed.name, listed.state)
        });
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

// === impl Inspected ===

impl Inspected {
    /// Inspects a component, by its file or by the name of an executor, and compares its needs with its grant.
    pub(crate) async fn new(config: &Config, executors: &Table, file: &str) -> anyhow::Result<Self> {
        let path = Path::new(file);
        let is_it = |loaded: &LoadedExecutor| match &loaded.config.component {
            _ if loaded.config.name.as_str() == file => true,
            ComponentRef::File(known) => {
                matches!((known.canonicalize(), path.canonicalize()), (Ok(known), Ok(path)) if known == path)
            }
            component @ (ComponentRef::Builtin(_) | ComponentRef::Oci(_)) => file == component.to_string(),
        };
        if let Some((name, loaded)) = executors.loaded().find(|(_, loaded)| is_it(loaded)) {
            let component = loaded.executor.component();
            let needs = needs::needs(component, loaded.executor.settings(), Some(&loaded.config.grant));
            let mut inspected =
                Self::of(loaded.config.component.to_string(), component, name.as_str(), needs);
            inspected.executor = Some(name.as_str().to_owned());
            return Ok(inspected);
        }
        if let Some((_, reason)) = executors.refused().find(|(name, _)| name.as_str() == file) {
            anyhow::bail!("executor {file} was refused: {reason}");
        }
        let wasm = std::fs::read(path).with_context(|| file.to_owned())?;
        let engine = EngineConfig { slots: 1, scripted_slots: 1, ..config.executors.engine.clone() };
        let engine = Engine::new(&engine, Egress::new(talaria_egress::Config::default()))?;
        let component = Component::load(&engine, wasm, |_| ()).await.with_context(|| file.to_owned())?;
        // Required settings may be absent: no executor is configured yet.
        let settings = component.settings(&Map::new()).unwrap_or_default();
        let needs = needs::needs(&component, &settings, None);
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("NAME");
        Ok(Self::of(file.to_owned(), &component, stem, needs))
    }

    fn of(file: String, component: &Component, executor: &str, needs: Vec<Need>) -> Self {
        let description = component.description();
        Self {
            file,
            name: description.name.clone(),
            version: description.version.clone(),
            description: description.description.clone(),
            digest: component.digest().to_owned(),
            contract: talaria_engine::CONTRACT,
            streaming: description.streaming,
            transcript: component.has_transcript(),
            tools: component.uses_tools(),
            settings_schema: serde_json::from_str(&description.settings_schema).unwrap_or_default(),
            executor: None,
            add: needs::lines(executor, &needs),
            needs,
        }
    }
}

impl fmt::Display for Inspected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "component  {} {}: {}", self.name, self.version, self.description)?;
        writeln!(f, "file       {}", self.file)?;
        writeln!(f, "digest     sha256:{}", self.digest)?;
        writeln!(f, "contract   {}", self.contract)?;
        writeln!(f, "executor   {}", self.executor.as_deref().unwrap_or("(none has it)"))?;
        let offers = [(self.streaming, "deltas"), (self.transcript, "a transcript")];
        let offers: Vec<_> = offers.into_iter().filter_map(|(is, what)| is.then_some(what)).collect();
        if !offers.is_empty() {
            writeln!(f, "offers     {}", offers.join(", "))?;
        }
        if self.tools {
            writeln!(f, "calls      tools of the host, those that `grant.tools` names")?;
        }
        if let Some(Value::Object(settings)) = self.settings_schema.get("properties") {
            for (name, setting) in settings {
                let default = setting.get("default").map(|default| format!("  default {default}"));
                let about = setting.get("description").and_then(Value::as_str).unwrap_or_default();
                writeln!(f, "setting    {name}  {about}{}", default.unwrap_or_default())?;
            }
        }
        writeln!(f, "\nneeds{}", if self.needs.is_empty() { "      nothing" } else { "" })?;
        needs::write(f, &self.needs)?;
        match self.add.is_empty() {
            true => f.write_str("\neverything that it needs is granted"),
            false => write!(f, "\nto grant all of it:\n\n{}", self.add.join("\n")),
        }
    }
}
