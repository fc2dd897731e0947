//! Executors on the admin server: their state, their changes, and the audit log.
//!
//! Reading needs what the rest of this server needs. Changing always needs the token of `admin.token`, on loopback too:
//! anybody who can swap an executor decides what answers in the agent's name.

use std::error::Error;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::request::Parts;
use hyper::body::Body;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use talaria_budget::Charge;
use talaria_listen::{BodyError, read_body};

use super::reply::{Reply, failure, invalid, ok, read_json, scrub};
use super::{Host, events};
use crate::config::ExecutorName;
use crate::journal::Counts;
use talaria_executors::{
    self as executors, Executors, LoadedExecutor, NotChanged, Table, TableEntry, Taken, Who, needs,
};

/// The largest upload: a component of the largest size, in base64, and its configuration.
const LARGEST: usize = 180 << 20;

/// The longest wait for an upload. The largest one takes so long at 5 Mbit/s.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(300);

/// The number of changes that are shown.
const SHOWN: usize = 1_000;

/// A request's body.
pub(super) trait Upload: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send {}
impl<B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send> Upload for B {}

/// Both files at once.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Both {
    /// In base64.
    component: Option<String>,
    /// The text of the `.toml` file.
    policy: Option<String>,
}

/// A change of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Put,
    Delete,
    Reload,
    Rollback,
    Settings,
}

pub(super) async fn list(host: &Host) -> Reply {
    let table = host.executors.table();
    let mut all = Vec::new();
    for (name, entry) in table.entries() {
        all.push(whole(host, &table, name, entry).await);
    }
    ok(&json!({ "executors": all }))
}

pub(super) async fn one(host: &Host, name: &str) -> Reply {
    let table = host.executors.table();
    let found = name_of(name).and_then(|name| {
        let entry = table.entry(&name).ok_or_else(|| NotChanged::Unknown(name.to_string()))?;
        Ok((name, entry))
    });
    match found {
        Ok((name, entry)) => ok(&whole(host, &table, &name, entry).await),
        Err(error) => not_changed(&error),
    }
}

/// Describes an executor with what it needs, is set to and did.
async fn whole(host: &Host, table: &Table, name: &ExecutorName, entry: &TableEntry) -> Value {
    let mut shown = describe(table, name, entry);
    let versions = host.executors.versions(name).await;
    let counts = host.journal.stats(|stats| stats.of(name.as_str()));
    let Some(fields) = shown.as_object_mut() else { return shown };
    fields.insert("versions".into(), json!(versions));
    let Counts { turns, failed, denied, faults } = counts;
    let counts = json!({ "turns": turns, "failed": failed, "denied": denied, "faults": faults });
    fields.insert("counts".into(), counts);
    let Some(loaded) = entry.current.as_deref().or(entry.waiting.as_deref()) else { return shown };
    let component = loaded.executor.component();
    let needs = needs::needs(component, loaded.executor.settings(), Some(&loaded.config.grant));
    let needs: Vec<Value> = needs.iter().map(|need| need_of(json!(need))).collect();
    let mut settings = json!(loaded.config.settings);
    scrub(&mut settings);
    fields.insert("needs".into(), needs.into());
    fields.insert("settings".into(), settings);
    let schema = serde_json::from_str(&component.description().settings_schema).unwrap_or(Value::Null);
    fields.insert("schema".into(), schema);
    shown
}

/// A need with the line that would grant it.
fn need_of(mut need: Value) -> Value {
    if let Some(fields) = need.as_object_mut()
        && let Some(line) = fields.remove("add")
    {
        fields.insert("line".into(), line);
    }
    need
}

pub(super) async fn audit(executors: &Executors) -> Reply {
    match executors.audit(SHOWN).await {
        Ok(entries) => ok(&json!({ "changes": entries })),
        Err(error) => not_changed(&error),
    }
}

/// Changes an executor on behalf of the token's holder.
pub(super) async fn change(
    host: &Host,
    change: Change,
    name: &str,
    head: &Parts,
    body: impl Upload,
) -> Reply {
    let name = match name_of(name) {
        Ok(name) => name,
        Err(error) => return not_changed(&error),
    };
    let who = Who::Caller("admin".into());
    let executors = &host.executors;
    // Held until the component is loaded: an upload is in memory until then.
    let mut charge = host.turns.budget().nothing();
    let taken = match change {
        Change::Settings => match read_json::<Map<String, Value>>(head, body, host.turns.budget()).await {
            // What this server shows in place of a secret would replace it.
            Ok(settings) if json!(settings).to_string().contains("[REDACTED:") => {
                return invalid("a value is one that was redacted; write the value itself");
            }
            Ok(settings) => executors.configure_with(&name, settings, &who).await,
            Err(reply) => return reply,
        },
        Change::Put => match upload(&head.headers, body, &mut charge).await {
            Ok(upload) => executors.put(&name, upload, &who).await,
            Err(reply) => return reply,
        },
        Change::Reload => executors.reload(&name, &who).await,
        Change::Rollback => executors.rollback(&name, &who).await.map(|()| Taken::Now),
        Change::Delete => match executors.remove(&name, &who).await {
            Ok(()) => {
                events::executors_changed(&host.journal);
                return ok(&json!({ "status": "removed" }));
            }
            Err(error) => Err(error),
        },
    };
    match taken {
        Ok(taken) => {
            events::executors_changed(&host.journal);
            let table = executors.table();
            let state = match taken {
                Taken::Now => "takes turns",
                Taken::WhenReady => "takes turns as soon as its upstream answers",
            };
            let entry = match table.entry(&name) {
                Some(entry) => Some(whole(host, &table, &name, entry).await),
                None => None,
            };
            ok(&json!({ "status": state, "executor": entry }))
        }
        Err(error) => not_changed(&error),
    }
}

/// Reads an upload: a component, its configuration, or both as JSON.
async fn upload(
    headers: &HeaderMap,
    body: impl Upload,
    charge: &mut Charge,
) -> Result<executors::Upload, Reply> {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_known = matches!(media.as_str(), "application/wasm" | "application/toml" | "application/json");
    if !is_known {
        let message = "send the component as application/wasm, its configuration as application/toml, or both as \
                       application/json: {\"component\": BASE64, \"policy\": TEXT}";
        return Err(failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message));
    }
    let bytes = match read_body(body, LARGEST, UPLOAD_TIMEOUT, charge).await {
        Ok(bytes) => bytes,
        Err(BodyError::TooLarge) => {
            let message = format!("the upload has more than {LARGEST} bytes");
            return Err(failure(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", &message));
        }
        Err(BodyError::Full(_)) => {
            let message = "no memory for the upload now; try again later, or raise `limits.memory`";
            return Err(failure(StatusCode::TOO_MANY_REQUESTS, "RESOURCE_EXHAUSTED", message));
        }
        Err(BodyError::TooSlow) => {
            let message = "the upload did not arrive in time";
            return Err(failure(StatusCode::REQUEST_TIMEOUT, "DEADLINE_EXCEEDED", message));
        }
        Err(BodyError::Incomplete) => return Err(invalid("the body did not arrive whole")),
    };
    match media.as_str() {
        "application/wasm" => Ok(executors::Upload { component: Some(bytes.into()), policy: None }),
        "application/toml" => match String::from_utf8(bytes.into()) {
            Ok(text) => Ok(executors::Upload { component: None, policy: Some(text) }),
            Err(_) => Err(invalid("the configuration is not UTF-8 text")),
        },
        _ => {
            let both: Both =
                serde_json::from_slice(&bytes).map_err(|error| invalid(&format!("bad JSON: {error}")))?;
            let component = both.component.map(|text| STANDARD.decode(text)).transpose();
            let component = component.map_err(|_| invalid("`component` is not base64"))?;
            if component.is_none() && both.policy.is_none() {
                return Err(invalid("neither `component` nor `policy` is there"));
            }
            Ok(executors::Upload { component, policy: both.policy })
        }
    }
}

/// Describes an executor for the operator.
fn describe(table: &Table, name: &ExecutorName, entry: &TableEntry) -> Value {
    let stand_in = table.stand_in(name).filter(|(other, _)| *other != name);
    let mut shown = json!({
        "name": name.as_str(),
        "default": name == table.default_name(),
    });
    let mut set = |key: &str, value: Value| {
        if let (Some(shown), false) = (shown.as_object_mut(), value.is_null()) {
            shown.insert(key.to_owned(), value);
        }
    };
    set("current", entry.current.as_deref().map(version).into());
    set("waiting", entry.waiting.as_deref().map(version).into());
    set("refused", entry.refused.as_deref().into());
    set("fallback", entry.fallback.as_ref().map(ExecutorName::as_str).into());
    set("stand_in", stand_in.map(|(other, _)| other.as_str()).into());
    set("fail_mode", json!(entry.current.as_ref().map(|loaded| loaded.config.fail_mode)));
    shown
}

fn version(loaded: &LoadedExecutor) -> Value {
    let component = loaded.executor.component();
    let description = component.description();
    json!({
        "component": description.name,
        "version": description.version,
        "digest": component.digest(),
        "from": loaded.config.component.to_string(),
        "readiness": loaded.readiness(),
    })
}

fn name_of(text: &str) -> Result<ExecutorName, NotChanged> {
    let text = percent_decode_str(text).decode_utf8_lossy();
    text.parse().map_err(|_| NotChanged::Unknown(text.into_owned()))
}

fn not_changed(error: &NotChanged) -> Reply {
    let (status, name) = match error {
        NotChanged::Unknown(_) => (StatusCode::NOT_FOUND, "NOT_FOUND"),
        NotChanged::Refused(_) => (StatusCode::UNPROCESSABLE_ENTITY, "REFUSED"),
        NotChanged::Conflict(_) => (StatusCode::CONFLICT, "CONFLICT"),
        NotChanged::Failed(_) => (StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE"),
    };
    failure(status, name, &error.to_string())
}
