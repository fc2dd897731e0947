//! Values as they are written in the file: text with a meaning.
//!
//! Each is parsed where it is read, so that a mistake is reported with its line, and no later code sees a
//! half-checked string. The rule for messages: say what was expected, with an example.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use talaria_config::text_value;

/// Where tasks are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// In this process; gone when it ends.
    Memory,
    /// In a file.
    Sqlite(PathBuf),
}

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

text_value!(StoreUrl, expected "a store such as \"sqlite:talaria.db\"", schema { "type": "string" });
