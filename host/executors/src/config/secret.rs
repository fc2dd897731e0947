//! A secret in a grant: its name and its destinations.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

/// A secret that may be filled into the calls of an executor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretGrant {
    /// Its name: the environment variable with the value or, with `_FILE` appended, with the path of a file.
    pub name: String,
    /// Its destinations; empty for every call that the executor may make.
    pub to: Vec<String>,
}

// === impl SecretGrant ===

/// The long form.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Bound {
    name: String,
    #[serde(default)]
    to: Vec<String>,
}

struct NameOrTable;

impl<'de> Visitor<'de> for NameOrTable {
    type Value = SecretGrant;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret's name, or { name = \"NAME\", to = [\"https://host/path*\"] }")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<SecretGrant, E> {
        checked(name.to_owned(), Vec::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SecretGrant, A::Error> {
        let bound = Bound::deserialize(MapAccessDeserializer::new(map))?;
        checked(bound.name, bound.to)
    }
}

fn checked<E: de::Error>(name: String, to: Vec<String>) -> Result<SecretGrant, E> {
    // The error does not repeat the text, which may be the secret itself.
    let fits = name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    match fits && !name.is_empty() && name.len() <= 128 {
        true => Ok(SecretGrant { name, to }),
        false => Err(E::custom(
            "a secret is named by its environment variable: A-Z, 0-9 and _, such as API_SERVER_KEY",
        )),
    }
}

impl<'de> Deserialize<'de> for SecretGrant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameOrTable)
    }
}

impl JsonSchema for SecretGrant {
    fn schema_name() -> Cow<'static, str> {
        "SecretGrant".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A secret's name, or the name with the destinations that it may be sent to.",
            "oneOf": [
                { "type": "string", "pattern": "^[A-Z0-9_]{1,128}$" },
                {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["name"],
                    "properties": {
                        "name": { "type": "string", "pattern": "^[A-Z0-9_]{1,128}$" },
                        "to": { "type": "array", "items": { "type": "string" } },
                    },
                },
            ],
        })
    }
}
