//! The schema of a component's settings, and whether settings fit it.
//!
//! A schema comes from the component, so it is input like any other: bounded in size, and refused where reading it could
//! take for ever. References lead only to its own definitions, in no circle, and are counted as if they were written out;
//! patterns are matched in linear time; nothing is fetched. Settings are the operator's: what does not fit is told with
//! the path of the value and without the value, since a key that was pasted into the wrong place is a secret all the same.

use std::collections::BTreeMap;

use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};

use crate::settings::with_defaults;

/// Settings that do not fit a component's schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.join("; "))]
pub struct InvalidSettings {
    /// Each with the path of the value: `settings.tools[0]: value is not of type "object"`.
    pub problems: Vec<String>,
}

/// A schema that can be used.
pub(crate) struct Schema {
    value: Value,
    validator: Validator,
}

/// The longest schema. One setting takes some hundred bytes.
const MAX_BYTES: usize = 64 << 10;
/// Values in a schema, references written out.
const MAX_VALUES: usize = 20_000;
/// Problems that are told at once.
const MAX_PROBLEMS: usize = 5;
/// The longest problem. Schemas put lists of allowed values into them.
const MAX_PROBLEM: usize = 300;
/// Where definitions may be.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// Keywords that make a reference lead elsewhere than it says.
const ELSEWHERE: [&str; 5] = ["$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"];

// === impl Schema ===

impl Schema {
    /// Reads a schema; the error says what is wrong with it.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("it has {} bytes; {MAX_BYTES} are the most", text.len()));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        if !value.is_object() {
            return Err("it is not a JSON object".into());
        }
        let written_out = Written { schema: &value, known: BTreeMap::new() }.values(&value)?;
        if written_out > MAX_VALUES {
            return Err(format!("it has more than {MAX_VALUES} values, references written out"));
        }
        let validator = jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex())
            .build(&value)
            .map_err(|error| format!("it is not a JSON Schema: {}", cut(&error.to_string())))?;
        Ok(Self { value, validator })
    }

    /// Settings with the schema's defaults below them, if they fit it.
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

/// Counts the values of a schema as if its references were written out.
struct Written<'a> {
    schema: &'a Value,
    /// Definitions that were counted; none while one is being counted.
    known: BTreeMap<&'a str, Option<usize>>,
}

impl<'a> Written<'a> {
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
                    if ELSEWHERE.contains(&name.as_str()) {
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

/// A JSON pointer as people write paths: `.tools[0].name`.
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

    fn refused(schema: &str) -> String {
        Schema::read(schema).err().expect("refused")
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_path_and_without_its_value() {
        let schema = json!({
            "type": "object", "additionalProperties": false, "required": ["base_url"],
            "properties": {
                "base_url": { "type": "string", "pattern": "^https?://" },
                "tools": { "type": "array", "items": { "type": "object", "properties": { "name": { "type": "string" } } } },
                "level": { "enum": ["low", "high"], "default": "low" },
            },
        });
        let told = problems(
            schema.clone(),
            json!({ "base_url": "sk-pasted-into-the-wrong-place", "tools": [{ "name": 7 }], "lvl": 1 }),
        );
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told.iter().any(|told| told.starts_with("settings.base_url: ")), "{told:?}");
        assert!(told.iter().any(|told| told.starts_with("settings.tools[0].name: ")), "{told:?}");
        assert!(told.iter().any(|told| told.starts_with("settings: ") && told.contains("lvl")), "{told:?}");
        assert!(!told.concat().contains("sk-pasted"), "{told:?}");
        assert!(problems(schema.clone(), json!({}))[0].contains("base_url"), "it is required");
        assert_eq!(problems(schema, json!({ "base_url": "https://h/" })), Vec::<String>::new());
    }

    #[test]
    fn defaults_are_below_what_was_given() {
        let schema = Schema::read(r#"{"properties":{"a":{"default":1},"b":{"default":2}}}"#).unwrap();
        let settings = schema.settle(json!({ "b": 3 }).as_object().unwrap()).unwrap();
        assert_eq!(Value::Object(settings), json!({ "a": 1, "b": 3 }));
    }

    #[test]
    fn definitions_can_be_used() {
        let schema = json!({
            "$defs": { "name": { "type": "string" }, "names": { "type": "array", "items": { "$ref": "#/$defs/name" } } },
            "properties": { "names": { "$ref": "#/$defs/names" } },
        });
        assert_eq!(problems(schema.clone(), json!({ "names": ["a"] })), Vec::<String>::new());
        assert!(problems(schema, json!({ "names": ["a", 1] }))[0].starts_with("settings.names[1]: "));
    }

    #[test]
    fn a_schema_that_would_take_for_ever_is_refused() {
        assert!(refused(r##"{"$ref":"#"}"##).contains("its own `$defs`"));
        assert!(refused(r##"{"$defs":{"a":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##).contains("itself"));
        let circle = r##"{"$defs":{"a":{"not":{"$ref":"#/$defs/b"}},"b":{"not":{"$ref":"#/$defs/a"}}}}"##;
        assert!(refused(circle).contains("itself"));
        let mut laughs = Map::from_iter([("d0".to_owned(), json!({ "type": "object" }))]);
        for n in 1..40 {
            let inner = json!({ "$ref": format!("#/$defs/d{}", n - 1) });
            laughs.insert(format!("d{n}"), json!({ "allOf": [inner, inner] }));
        }
        let laughs = json!({ "$defs": laughs, "$ref": "#/$defs/d39" });
        assert!(refused(&laughs.to_string()).contains("references written out"));
        assert!(refused(r#"{"$id":"http://elsewhere/","$ref":"x"}"#).contains("$id"));
        assert!(refused(r#"{"$ref":"http://127.0.0.1:1/schema.json"}"#).contains("its own"));
        assert!(refused(&format!(r#"{{"description":"{}"}}"#, "x".repeat(MAX_BYTES))).contains("bytes"));
        assert!(refused(r#"{"type":"objekt"}"#).contains("not a JSON Schema"));
        assert!(refused("[]").contains("not a JSON object"));
        assert!(refused("{").contains("not JSON"));
    }

    #[test]
    fn a_pattern_is_matched_in_linear_time() {
        let schema = json!({ "properties": { "a": { "pattern": "^(a+)+$" } } });
        let told = problems(schema, json!({ "a": format!("{}b", "a".repeat(10_000)) }));
        assert_eq!(told.len(), 1);
    }
}
