//! The configuration in effect, as the operator may read it: the file with its defaults, and what the environment and the
//! flags changed. A secret is shown as the place that it comes from, never as its value; a value that was written where no
//! secret belongs is redacted as in a log line.

use serde_json::{Map, Value, json};
use talaria_redact::Redactor;

use super::Config;

impl Config {
    /// The configuration of a host whose A2A server has this address.
    pub(crate) fn shown(&self, url: &str) -> Value {
        let mut shown = self.written.clone();
        mask(&mut shown);
        let mut set = |section: &str, key: &str, value: Value| {
            let Some(sections) = shown.as_object_mut() else { return };
            let section = sections.entry(section).or_insert_with(|| json!({}));
            if let Some(section) = section.as_object_mut() {
                section.insert(key.to_owned(), value);
            }
        };
        set("a2a", "listen", json!(self.a2a.listen));
        set("a2a", "url", json!(url));
        set("a2a", "callers", self.a2a.tokens.iter().map(|token| token.name.as_str()).collect());
        set("admin", "listen", json!(self.admin.listen));
        set("store", "url", json!(self.store.to_string()));
        set("limits", "memory", json!(self.memory.whole));
        set("executors", "default", json!(self.executors.default.as_str()));
        let fixed: Map<String, Value> = (self.executors.fixed.iter())
            .map(|(name, executor)| {
                let shown = json!({
                    "component": executor.component.to_string(),
                    "settings": executor.settings,
                    "secrets": executor.grant.secrets.names().collect::<Vec<_>>(),
                });
                (name.as_str().to_owned(), shown)
            })
            .collect();
        set("executors", "in_effect", fixed.into());
        if let Some(sections) = shown.as_object_mut() {
            sections.insert("file".into(), json!(self.file));
            sections.insert("warnings".into(), json!(self.warnings));
        }
        redact(&mut shown);
        shown
    }
}

/// Replaces references to secrets.
fn mask(value: &mut Value) {
    let reference = value.as_object().filter(|fields| fields.len() == 1).and_then(|fields| {
        match (fields.get("env"), fields.get("file")) {
            (Some(Value::String(name)), None) => Some(format!("env {name}")),
            (None, Some(Value::String(_))) => Some("file".to_owned()),
            _ => None,
        }
    });
    if let Some(place) = reference {
        *value = json!({ "secret": place });
        return;
    }
    match value {
        Value::Array(values) => values.iter_mut().for_each(mask),
        Value::Object(fields) => fields.values_mut().for_each(mask),
        _ => {}
    }
}

fn redact(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let std::borrow::Cow::Owned(clean) = Redactor::process().all(text) {
                *text = clean;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(redact),
        Value::Object(fields) => fields.values_mut().for_each(redact),
        _ => {}
    }
}
