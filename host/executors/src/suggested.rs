//! Settings that a workspace suggests for the executor that takes its turns.
//!
//! A suggestion has an effect or is a warning. It counts if the component has a setting of that name, its value fits the
//! schema, and the operator has not set it. Two kinds of settings are the operator's alone, because others can write the
//! workspace's file: those that decide which calls the executor may make, and with them where its secrets go, and those that
//! the schema marks `readOnly`. A suggestion never keeps an executor from loading.

use serde_json::{Map, Value};
use talaria_engine::refers_to;

/// Adds the suggestions to the given settings, and returns what is wrong with the others, a sentence each. `fits` checks
/// settings against the schema.
pub(crate) fn add(
    suggested: &Map<String, Value>,
    given: &mut Map<String, Value>,
    (schema, egress): (&str, &[String]),
    fits: impl Fn(&Map<String, Value>) -> Result<(), String>,
) -> Vec<String> {
    let schema: Value = serde_json::from_str(schema).unwrap_or_default();
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut wrong = Vec::new();
    for (name, value) in suggested {
        let property = properties.and_then(|properties| properties.get(name));
        let decides_calls = egress.iter().any(|need| refers_to(need, name));
        let is_locked = property.and_then(|property| property.get("readOnly")) == Some(&Value::Bool(true));
        let why = match (property, given.get(name)) {
            (None, _) => "the executor has no such setting".to_owned(),
            (Some(_), Some(set)) if set == value => continue,
            (Some(_), Some(_)) => "the configuration of the host sets another value, which counts".to_owned(),
            (Some(_), None) if decides_calls || is_locked => {
                "only the configuration of the host may set it".to_owned()
            }
            (Some(_), None) => {
                given.insert(name.clone(), value.clone());
                match fits(given) {
                    Ok(()) => continue,
                    Err(why) => {
                        given.remove(name);
                        why
                    }
                }
            }
        };
        wrong.push(format!("`{name}` has no effect: {why}"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_suggestion_has_an_effect_or_is_a_warning() {
        let schema = json!({ "properties": {
            "base_url": { "type": "string" }, "health_url": {}, "history": { "enum": ["auto", "none"] },
            "model": {}, "system_prompt": {}, "commands_from": { "readOnly": true }, "url": {},
        }});
        let egress = ["POST {setting:base_url}/x", "GET {parent:health_url}/y", "GET {origin:other|url}/*"];
        let egress = egress.map(str::to_owned);
        let suggested = json!({
            "url": "http://evil", "base_url": "http://evil", "health_url": "http://evil", "commands_from": ["me"], "history": "some",
            "model": "other", "system_prompt": "be brief", "temprature": 1,
        });
        let mut given = json!({ "model": "mine" }).as_object().cloned().unwrap();
        let fits = |settings: &Map<String, Value>| match settings.get("history") {
            Some(history) if history == "some" => Err("settings.history: not one of auto, none".to_owned()),
            _ => Ok(()),
        };
        let wrong = add(suggested.as_object().unwrap(), &mut given, (&schema.to_string(), &egress), fits);
        assert_eq!(Value::Object(given), json!({ "model": "mine", "system_prompt": "be brief" }));
        assert_eq!(
            wrong,
            [
                "`url` has no effect: only the configuration of the host may set it",
                "`base_url` has no effect: only the configuration of the host may set it",
                "`health_url` has no effect: only the configuration of the host may set it",
                "`commands_from` has no effect: only the configuration of the host may set it",
                "`history` has no effect: settings.history: not one of auto, none",
                "`model` has no effect: the configuration of the host sets another value, which counts",
                "`temprature` has no effect: the executor has no such setting",
            ]
        );
    }
}
