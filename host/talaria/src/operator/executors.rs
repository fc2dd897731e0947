//! `talaria executor list|status|reload|push|remove` of a running host.

use std::fmt;
use std::path::Path;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use super::{RunningHost, line, text};
use crate::config::ExecutorName;

/// The executors of a running host.
#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    executors: Value,
    /// Where the answer is from.
    host: String,
}

/// One of them.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Shown(Value);

/// What became of a change.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Changed(Value);

impl Listed {
    pub(crate) async fn ask(host: &RunningHost) -> anyhow::Result<Self> {
        let mut answer = host.get("/executors").await?;
        let executors = answer.get_mut("executors").map(Value::take).unwrap_or_default();
        Ok(Self { executors, host: host.url().to_owned() })
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of the host at {}:\n{}", self.host, super::status::table(&self.executors))
    }
}

impl Shown {
    pub(crate) async fn ask(host: &RunningHost, name: &ExecutorName) -> anyhow::Result<Self> {
        Ok(Self(host.get(&format!("/executors/{name}")).await?))
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(shown) = self;
        f.write_str(&super::status::table(&json!([shown])))?;
        let list = |key: &str| shown.get(key).and_then(Value::as_array).into_iter().flatten();
        for need in list("needs") {
            let granted = need.get("granted") == Some(&Value::Bool(true));
            let add = text(need, "/line");
            let state = match (granted, add.is_empty()) {
                (true, _) => "granted".to_owned(),
                (false, true) => "not granted".to_owned(),
                (false, false) => format!("denied; add {}", line(add, 120)),
            };
            write!(f, "\n  needs {} {}: {state}", text(need, "/kind"), line(text(need, "/need"), 120))?;
        }
        for version in list("versions") {
            let is = |key: &str| version.get(key) == Some(&Value::Bool(true));
            let place = match (is("current"), is("previous")) {
                (true, _) => "in service",
                (false, true) => "before",
                (false, false) => "kept",
            };
            let digest = text(version, "/digest");
            write!(
                f,
                "\n  version {} {place}, since {}",
                digest.get(..12).unwrap_or(digest),
                text(version, "/since")
            )?;
        }
        Ok(())
    }
}

impl Changed {
    pub(crate) async fn reload(host: &RunningHost, name: &ExecutorName) -> anyhow::Result<Self> {
        host.send("POST", &format!("/executors/{name}/reload")).await.map(Self)
    }

    pub(crate) async fn remove(host: &RunningHost, name: &ExecutorName) -> anyhow::Result<Self> {
        host.send("DELETE", &format!("/executors/{name}")).await.map(Self)
    }

    /// Uploads a component, its configuration, or both.
    pub(crate) async fn push(
        host: &RunningHost,
        name: &ExecutorName,
        component: Option<&Path>,
        policy: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let read =
            |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let component = component.map(read).transpose()?.map(|bytes| STANDARD.encode(bytes));
        let policy = policy.map(read).transpose()?.map(String::from_utf8).transpose();
        let policy = policy.context("the configuration is not UTF-8 text")?;
        let mut upload = serde_json::Map::new();
        upload.extend(component.map(|component| ("component".to_owned(), component.into())));
        upload.extend(policy.map(|policy| ("policy".to_owned(), policy.into())));
        let body = serde_json::to_vec(&upload)?;
        host.put(&format!("/executors/{name}"), "application/json", body).await.map(Self)
    }
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(answer) = self;
        let executor = answer.get("executor").cloned().unwrap_or_default();
        let version = match text(&executor, "/waiting/version") {
            "" => text(&executor, "/current/version"),
            version => version,
        };
        let name = text(&executor, "/name");
        let of = if name.is_empty() { String::new() } else { format!("{name} {version}: ") };
        write!(f, "{of}{}", text(answer, "/status"))
    }
}
