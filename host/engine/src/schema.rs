//! Validation of an executor's settings against the schema of its component.
//!
//! A schema comes from the component, so it is untrusted input: its size is limited, and a schema that could take for
//! ever to evaluate is rejected. References may point only to the schema's own definitions, must not form a cycle, and
//! count as if they were expanded. Patterns are matched in linear time. Nothing is fetched.
//!
//! Settings come from the operator. An error names the path of an invalid value but never the value, since it may be a
//! secret that was pasted into the wrong place.

use std::collections::BTreeMap;

use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};

use crate::settings::with_defaults;

/// Settings that do not fit a component's schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.join("; "))]
pub struct InvalidSettings {
    /// The problems, each with the path of the value: `settings.tools[0]: value is not of type "object"`.
    pub problems: Vec<String>,
}

/// A schema that passed all checks.
pub(crate) struct Schema {
    value: Value,
    validator: Validator,
}

/// The size of the largest schema. One setting takes some hundred bytes.
const MAX_BYTES: usize = 64 << 10;
/// The maximum number of values in a schema with its references expanded.
const MAX_VALUES: usize = 20_000;
/// The maximum number of problems in one error.
const MAX_PROBLEMS: usize = 5;
/// The length at which a problem is cut. A problem can quote a long list of allowed values from the schema.
const MAX_PROBLEM: usize = 300;
/// The members of a schema that hold definitions.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// Keywords that change the target of a reference, so that cycles could no longer be found.
const UNSUPPORTED: [&str; 5] = ["$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"];

// === impl Schema ===

impl Schema {
    /// Parses and checks a schema. The error says what is wrong with it.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("it has {} bytes; {MAX_BYTES} are the most", text.len()));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        if !value.is_object() {
            return Err("it is not a JSON object".into());
        }
        let expanded = ExpandedSize { schema: &value, known: BTreeMap::new() }.values(&value)?;
        if expanded > MAX_VALUES {
            return Err(format!("it has more than {MAX_VALUES} values, references written out"));
        }
        let validator = jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex())
            .build(&value)
            .map_err(|error| format!("it is not a JSON Schema: {}", cut(&error.to_string())))?;
        Ok(Self { value, validator })
    }

    /// Fills in the schema's defaults and validates the result.
    pub(crate) fn settle(&self, given: &Map<String, Value>) -> Result<Map<String, Value>, InvalidSettings> {
        let settings = Value::Object(with_defaults(&self.value, given));
        let problems: Vec<String> = self
            .validator
            .iter_errors(&settings)
            .take(MAX_PROBLEMS)
            .map(|error| {
                format!(
                    "settings{}: {}",
                    path(error.instance_path().as_str()),
                    cut(&error.masked().to_string())
                )
            })
            .collect();
        match settings {
            Value::Object(settings) if problems.is_empty() => Ok(settings),
            _ => Err(InvalidSettings { problems }),
        }
    }
}

/// Counts the values of a schema as if its references were expanded.
struct ExpandedSize<'a> {
    schema: &'a Value,
    /// The counts of definitions; `None` while a definition is being counted.
    known: BTreeMap<&'a str, Option<usize>>,
}

impl<'a> ExpandedSize<'a> {
    fn values(&mut self, value: &'a Value) -> Result<usize, String> {
        let mut count = 1_usize;
        match value {
            Value::Array(items) => {
                for item in items {
                    count = count.saturating_add(self.values(item)?);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    if UNSUPPORTED.contains(&name.as_str()) {
                        return Err(format!("`{name}` is not supported; write the schema without it"));
                    }
                    count = count.saturating_add(match (name.as_str(), member) {
                        ("$ref", Value::String(reference)) => self.definition(reference)?,
                        _ => self.values(member)?,
                    });
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(count)
    }

    fn definition(&mut self, reference: &'a str) -> Result<usize, String> {
        match self.known.get(reference) {
            Some(Some(count)) => return Ok(*count),
            Some(None) => return Err(format!("the reference {reference:?} leads back to itself")),
            None => {}
        }
        let found = DEFINITIONS.iter().find_map(|definitions| {
            let name = reference.strip_prefix("#/")?.strip_prefix(definitions)?.strip_prefix('/')?;
            self.schema.get(definitions)?.get(name)
        });
        let Some(definition) = found else {
            return Err(format!("the reference {reference:?} does not lead to one of its own `$defs`"));
        };
        self.known.insert(reference, None);
        let count = self.values(definition)?;
        self.known.insert(reference, Some(count));
        Ok(count)
    }
}

/// Formats a JSON pointer as a path such as `.tools[0].name`.
fn path(pointer: &str) -> String {
    pointer.split('/').skip(1).fold(String::new(), |path, step| {
        let step = step.replace("~1", "/").replace("~0", "~");
        match step.bytes().all(|byte| byte.is_ascii_digit()) {
            true => format!("{path}[{step}]"),
            false => format!("{path}.{step}"),
        }
    })
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_PROBLEM)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(schema: Value, settings: Value) -> Vec<String> {
        let schema = Schema::read(&schema.to_string()).unwrap();
        schema.settle(settings.as_object().unwrap()).err().map(|error| error.problems).unwrap_or_default()
    }

    fn rejection(schema: &str) -> String {
        Schema::read(schema).err().expect("rejected")
    }

    #[test]
    fn an_error_names_the_path_of_an_invalid_value_but_not_the_value() {
        let schema = json!({
            "type": "object", "additionalProperties": false, "required": ["base_url"],
            "properties": {
                "base_url": { "type": "string", "pattern": "^https?://" },
                "tools": { "type": "array", "items": { "type": "object", "properties": { "name": { "type": "string" } } } },
                "level": { "enum": ["low", "high"], "default": "low" },
            },
        });
        let found = problems(
            schema.clone(),
            json!({ "base_url": "sk-pasted-into-the-wrong-place", "tools": [{ "name": 7 }], "lvl": 1 }),
        );
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().any(|found| found.starts_with("settings.base_url: ")), "{found:?}");
        assert!(found.iter().any(|found| found.starts_with("settings.tools[0].name: ")), "{found:?}");
        assert!(
            found.iter().any(|found| found.starts_with("settings: ") && found.contains("lvl")),
            "{found:?}"
        );
        assert!(!found.concat().contains("sk-pasted"), "{found:?}");
        assert!(problems(schema.clone(), json!({}))[0].contains("base_url"), "the missing setting is named");
        assert_eq!(problems(schema, json!({ "base_url": "https://h/" })), Vec::<String>::new());
    }

    #[test]
    fn given_settings_override_defaults() {
        let schema = Schema::read(r#"{"properties":{"a":{"default":1},"b":{"default":2}}}"#).unwrap();
        let settings = schema.settle(json!({ "b": 3 }).as_object().unwrap()).unwrap();
        assert_eq!(Value::Object(settings), json!({ "a": 1, "b": 3 }));
    }

    #[test]
    fn references_to_definitions_are_followed() {
        let schema = json!({
            "$defs": { "name": { "type": "string" }, "names": { "type": "array", "items": { "$ref": "#/$defs/name" } } },
            "properties": { "names": { "$ref": "#/$defs/names" } },
        });
        assert_eq!(problems(schema.clone(), json!({ "names": ["a"] })), Vec::<String>::new());
        assert!(problems(schema, json!({ "names": ["a", 1] }))[0].starts_with("settings.names[1]: "));
    }

    #[test]
    fn rejects_malformed_schemas_and_those_that_could_take_for_ever() {
        assert!(rejection(r##"{"$ref":"#"}"##).contains("its own `$defs`"));
        assert!(rejection(r##"{"$defs":{"a":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##).contains("itself"));
        let circle = r##"{"$defs":{"a":{"not":{"$ref":"#/$defs/b"}},"b":{"not":{"$ref":"#/$defs/a"}}}}"##;
        assert!(rejection(circle).contains("itself"));
        let mut laughs = Map::from_iter([("d0".to_owned(), json!({ "type": "object" }))]);
        for n in 1..40 {
            let inner = json!({ "$ref": format!("#/$defs/d{}", n - 1) });
            laughs.insert(format!("d{n}"), json!({ "allOf": [inner, inner] }));
        }
        let laughs = json!({ "$defs": laughs, "$ref": "#/$defs/d39" });
        assert!(rejection(&laughs.to_string()).contains("references written out"));
        assert!(rejection(r#"{"$id":"http://elsewhere/","$ref":"x"}"#).contains("$id"));
        assert!(rejection(r#"{"$ref":"http://127.0.0.1:1/schema.json"}"#).contains("its own"));
        assert!(rejection(&format!(r#"{{"description":"{}"}}"#, "x".repeat(MAX_BYTES))).contains("bytes"));
        assert!(rejection(r#"{"type":"objekt"}"#).contains("not a JSON Schema"));
        assert!(rejection("[]").contains("not a JSON object"));
        assert!(rejection("{").contains("not JSON"));
    }

    #[test]
    fn matches_patterns_in_linear_time() {
        let schema = json!({ "properties": { "a": { "pattern": "^(a+)+$" } } });
        let found = problems(schema, json!({ "a": format!("{}b", "a".repeat(10_000)) }));
        assert_eq!(found.len(), 1);
    }
}
