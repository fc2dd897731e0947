//! Names of executors and references to components, as written.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use talaria_config::text_value;
use talaria_oci::{InvalidReference, Reference};

/// The name of an executor, which is also a file name, a metric label and a key in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutorName(String);

/// The fallback of an executor; written as a name, or `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fallback {
    /// No fallback: turns fail while the executor is not ready.
    None,
    /// This executor.
    To(ExecutorName),
}

/// Where a component comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ComponentRef {
    /// Built in, by its name. A [`Resolver`](super::Resolver) checks that it exists.
    Builtin(String),
    /// A `.wasm` file.
    File(PathBuf),
    /// A registry, by digest.
    Oci(Reference),
}

// === impl ExecutorName ===

impl ExecutorName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of a built-in executor.
    pub fn builtin(name: &'static str) -> Self {
        Self(name.to_owned())
    }
}

impl FromStr for ExecutorName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = (1..=64).contains(&text.len())
            && !text.starts_with('-')
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "`{text}` is not a valid executor name; use lower-case letters, digits and hyphens, at most 64, such as `my-agent`"
            ))
        }
    }
}

impl fmt::Display for ExecutorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Fallback ===

impl FromStr for Fallback {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            name => name.parse().map(Self::To),
        }
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::To(name) => name.fmt(f),
        }
    }
}

// === impl ComponentRef ===

impl ComponentRef {
    /// Whether it is the built-in component of that name.
    pub fn is_builtin(&self, name: &str) -> bool {
        matches!(self, Self::Builtin(known) if known == name)
    }
}

impl FromStr for ComponentRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("builtin:") {
            return Ok(Self::Builtin(name.to_owned()));
        }
        if text.starts_with("oci:") {
            return text.parse().map(Self::Oci).map_err(|error: InvalidReference| error.to_string());
        }
        if text.is_empty() {
            return Err("an empty path; give the path of a .wasm file, `builtin:NAME` or `oci://…`".into());
        }
        Ok(Self::File(PathBuf::from(text)))
    }
}

impl fmt::Display for ComponentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "builtin:{name}"),
            Self::File(path) => path.display().fmt(f),
            Self::Oci(reference) => reference.fmt(f),
        }
    }
}

// === text in, text out ===

text_value!(ExecutorName, expected "an executor's name such as \"my-agent\"", schema
    { "type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,63}$" });
text_value!(Fallback, expected "an executor's name such as \"chat-completions\", or \"none\"", schema
    { "type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,63}$" });
text_value!(ComponentRef, expected "a path, \"builtin:NAME\", or \"oci://…@sha256:…\"", schema { "type": "string" });
