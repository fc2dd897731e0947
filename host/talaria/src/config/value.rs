//! The URL of the store, as written in the file.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use talaria_config::text_value;

/// The store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// In memory; lost when the process ends.
    Memory,
    /// In a file.
    Sqlite(PathBuf),
}

// === impl StoreUrl ===

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The URL may hold a password, so errors quote only its kind.
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
