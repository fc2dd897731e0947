//! Values as they are written in the file: text with a meaning.
//!
//! Each is parsed where it is read, so that a mistake is reported with its line, and no later code sees a
//! half-checked string. The rule for messages: say what was expected, with an example.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use talaria_config::text_value;
use talaria_oci::{InvalidReference, Reference};

/// Where tasks are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// In this process; gone when it ends.
    Memory,
    /// In a file.
    Sqlite(PathBuf),
}

/// The name of an executor: a file name, a metric's label and a key in the file at once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ExecutorName(String);

/// What takes the turns of an executor that is not ready; written as its name, or `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// Nothing: they say that it is not ready.
    None,
    /// This executor.
    To(ExecutorName),
}

/// Where a component's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ComponentRef {
    /// Embedded in the binary, by its name.
    Builtin(String),
    /// A `.wasm` file.
    File(PathBuf),
    /// In a registry, by its digest.
    Oci(Reference),
}

/// The components that are embedded in the binary.
pub(crate) const BUILTIN: [&str; 5] =
    ["chat-completions", "conformance", "hermes", "hermes-runs", "plugin-callback"];

// === impl StoreUrl ===

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The address may hold a password: name the kind only.
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sqlite", "")) => Err("names no file; use \"sqlite:talaria.db\"".into()),
            Some(("sqlite", path)) => Ok(Self::Sqlite(path.into())),
            Some((kind @ "postgres", _)) => Err(format!(
                "`{kind}:` is not supported by this version; use \"sqlite:talaria.db\" or \"memory:\""
            )),
            _ => Err("no such store; use \"sqlite:talaria.db\" or \"memory:\"".into()),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
        }
    }
}

// === impl ExecutorName ===

impl ExecutorName {
    /// The name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of a built-in executor.
    pub(crate) fn builtin(name: &'static str) -> Self {
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
                "`{text}` is no name for an executor; use lower-case letters, digits and hyphens, at most 64, such as `my-agent`"
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

impl FromStr for ComponentRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("builtin:") {
            return match BUILTIN.contains(&name) {
                true => Ok(Self::Builtin(name.to_owned())),
                false => Err(format!("no built-in component `{name}` (built in: {})", BUILTIN.join(", "))),
            };
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

text_value!(StoreUrl, expected "a store such as \"sqlite:talaria.db\"", schema { "type": "string" });
text_value!(ExecutorName, expected "an executor's name such as \"my-agent\"", schema
    { "type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,63}$" });
text_value!(Fallback, expected "an executor's name such as \"chat-completions\", or \"none\"", schema
    { "type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,63}$" });
text_value!(ComponentRef, expected "a path, \"builtin:NAME\", or \"oci://…@sha256:…\"", schema { "type": "string" });
