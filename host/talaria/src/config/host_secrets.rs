//! The environment variables that the configuration names as secrets of this host, which the gateway must not get.
//!
//! Every reference `{ env = "NAME" }` counts, whichever key it belongs to, so that a new key with a secret needs no change
//! here. So do the secrets that executors are granted, in the main file and in the executors folder. An executor that is put
//! into the folder later is not known yet; its secret goes along only if `gateway.env` lists it.

use serde_json::Value;
use talaria_config::Source;
use talaria_executors::config::Folder;
use talaria_hermes::gateway::HostSecrets;

use super::file::File;
use super::workspace::TOKEN;

/// The secrets that these files name.
pub(super) fn host_secrets(file: &File, folder: &Folder) -> HostSecrets {
    let mut secrets = HostSecrets::default();
    secrets.own(TOKEN, "the workspace's token");
    collect(&serde_json::to_value(file).unwrap_or_default(), "", &mut secrets);
    // A mistake in a file of the folder is reported when the executor is loaded.
    for (name, files) in folder.list().unwrap_or_default().executors {
        let source = files.policy.and_then(|path| Source::read(&path).ok().flatten());
        let section: Option<Value> = source.and_then(|source| source.parse_without_schema().ok());
        collect(&section.unwrap_or_default(), &format!("executor.{name}"), &mut secrets);
    }
    secrets
}

fn collect(value: &Value, key: &str, secrets: &mut HostSecrets) {
    match value {
        Value::Object(fields) => {
            if let (1, Some(Value::String(variable))) = (fields.len(), fields.get("env")) {
                secrets.own(variable, key);
            }
            for (name, field) in fields {
                let dot = if key.is_empty() { "" } else { "." };
                collect(field, &format!("{key}{dot}{name}"), secrets);
            }
        }
        Value::Array(items) if key.starts_with("executor.") && key.ends_with(".grant.secrets") => {
            for name in items.iter().filter_map(|item| item.as_str().or_else(|| item.get("name")?.as_str())) {
                secrets.of_executor(name, key);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, &format!("{key}[{index}]"), secrets);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
