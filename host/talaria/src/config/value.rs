//! Values of the file: the URL of the store, the address of the tools, the endpoint of a server.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use talaria_config::{HttpUrl, text_value};

/// The store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// In memory; lost when the process ends.
    Memory,
    /// In a file.
    Sqlite(PathBuf),
}

/// The address of an endpoint, as it is called: a slash at its end counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndpointUrl(pub(crate) String);

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

/// Where the tools are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolsListen {
    /// Nowhere.
    Off,
    /// At this address.
    At(SocketAddr),
}

// === impl ToolsListen ===

impl FromStr for ToolsListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            _ => text.parse().map(Self::At).map_err(|_| {
                format!("{text:?} is not an address with a port; use \"127.0.0.1:9100\" or \"off\"")
            }),
        }
    }
}

impl fmt::Display for ToolsListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

// === impl EndpointUrl ===

impl FromStr for EndpointUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let _: HttpUrl = text.parse()?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_value!(EndpointUrl, expected "an address such as \"https://mcp.example.com/mcp\"", schema
    { "type": "string", "format": "uri" });
text_value!(ToolsListen, expected "an address such as \"127.0.0.1:9100\", or \"off\"", schema { "type": "string" });
text_value!(StoreUrl, expected "a store such as \"sqlite:talaria.db\"", schema { "type": "string" });
