//! References to secrets: a configuration file names a secret and never contains it.
//!
//! The value comes from the environment or from a file, is read when the configuration is loaded, and is kept in a
//! [`SecretString`], which is wiped when dropped and never printed. A value is bounded, and a newline at its end is removed,
//! because editors and `echo` add one. Errors name the key, the variable or the path, and never quote the value.
//! Every value that is read is made known to the [`Redactor`] of the process.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::SecretString;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use talaria_redact::Redactor;

use crate::env::Env;

/// The longest secret, in bytes: what common servers accept as a header line.
const LONGEST: u64 = 8 * 1024;

/// Where a secret's value is; the file never holds the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// In an environment variable.
    Env(String),
    /// In a file; a newline at its end is removed.
    File(PathBuf),
}

// === impl SecretRef ===

const REFERENCE: &str = "a reference: { env = \"NAME\" } or { file = \"PATH\" }";

impl<'de> Deserialize<'de> for SecretRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reference)
    }
}

/// A key in a reference; an error about an unknown key has that key's place.
#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Place {
    Env,
    File,
}

/// Written by hand, because the derived implementation quotes an inline secret in its error.
struct Reference;

impl<'de> Visitor<'de> for Reference {
    type Value = SecretRef;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REFERENCE)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<SecretRef, E> {
        Err(E::custom(format!("a secret is not written into the file; give {REFERENCE}")))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SecretRef, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key()? {
            let reference = match key {
                Place::Env => SecretRef::Env(map.next_value()?),
                Place::File => SecretRef::File(map.next_value()?),
            };
            if found.replace(reference).is_some() {
                return Err(de::Error::custom("both `env` and `file` are given; keep one"));
            }
        }
        found.ok_or_else(|| de::Error::custom(format!("nothing is given; write {REFERENCE}")))
    }
}

impl Serialize for SecretRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Env(name) => serializer.collect_map([("env", name.as_str())]),
            Self::File(path) => serializer.collect_map([("file", path)]),
        }
    }
}

impl JsonSchema for SecretRef {
    fn schema_name() -> Cow<'static, str> {
        "SecretRef".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Where a secret's value is: an environment variable, or a file.",
            "type": "object",
            "additionalProperties": false,
            "minProperties": 1,
            "maxProperties": 1,
            "properties": { "env": { "type": "string" }, "file": { "type": "string" } },
        })
    }
}

// === resolving ===

impl SecretRef {
    /// Reads the value. A relative path starts at `base`, the configuration file's folder.
    pub fn resolve(&self, base: &Path, env: &Env<'_>) -> Result<SecretString, String> {
        match self {
            Self::Env(name) => env.get(name).map(learned).ok_or_else(|| {
                format!("the environment variable `{name}` is not set; set it, or give {{ file = \"PATH\" }}")
            }),
            Self::File(path) => read(&base.join(path)),
        }
    }

    /// The path of the file, if the secret is in one.
    pub fn file(&self, base: &Path) -> Option<PathBuf> {
        match self {
            Self::Env(_) => None,
            Self::File(path) => Some(base.join(path)),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "the environment variable `{name}`"),
            Self::File(path) => write!(f, "`{}`", path.display()),
        }
    }
}

/// Finds a secret by its name: the variable `NAME`, else the file that `NAME_FILE` names. `None` if neither is set: many
/// upstreams need no key, and a component asks whether it has one.
pub fn by_name(name: &str, env: &Env<'_>) -> Result<Option<SecretString>, String> {
    if let Some(value) = env.get(name) {
        return Ok(Some(learned(value)));
    }
    let variable = format!("{name}_FILE");
    match env.get(&variable) {
        Some(path) => read(Path::new(&path)).map(Some).map_err(|error| format!("`{variable}`: {error}")),
        None => Ok(None),
    }
}

/// A secret that was read. From now on it is redacted wherever this process writes.
fn learned(value: String) -> SecretString {
    Redactor::process().learn([&value]);
    SecretString::from(value)
}

/// Reads a file that contains only a secret.
pub fn read(path: &Path) -> Result<SecretString, String> {
    let shown = path.display();
    let mut value = String::new();
    let file = std::fs::File::open(path).map_err(|error| format!("`{shown}` cannot be read: {error}"))?;
    let length =
        file.take(LONGEST + 1).read_to_string(&mut value).map_err(|error| format!("`{shown}`: {error}"))?;
    if length as u64 > LONGEST {
        return Err(format!("`{shown}` is longer than {LONGEST} bytes; it should hold the secret alone"));
    }
    let value = value.trim_end_matches(['\r', '\n']);
    if value.is_empty() {
        return Err(format!("`{shown}` is empty"));
    }
    Ok(learned(value.to_owned()))
}
