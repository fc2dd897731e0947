//! Values as they are written in the file: text with a meaning.
//!
//! Each is parsed where it is read, so that a mistake is reported with its line, and no later code sees a
//! half-checked string. The rule for messages: say what was expected, with an example.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};
use talaria_oci::{InvalidReference, Reference};

/// A number of bytes, written as `"64MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(u64);

/// A length of time, written as `"600s"`; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Period(Duration);

/// An absolute `http` or `https` address, without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpUrl(String);

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

// === impl Size ===

impl Size {
    /// So many mebibytes.
    pub(crate) const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// So many kibibytes.
    pub(crate) const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// The number of bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.0
    }
}

/// Largest unit first, so that what is printed is the shortest exact form.
const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!("`{text}` is no size; write a whole number and a unit, such as \"64MiB\" or \"512KiB\"")
        };
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = text.get(digits.len()..).unwrap_or_default().trim();
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(expected)?;
        let count: u64 = digits.parse().map_err(|_| expected())?;
        match count.checked_mul(*factor) {
            None => Err(format!("`{text}` is more than can be counted")),
            Some(0) => Err("a size of 0 allows nothing; give at least \"1B\"".into()),
            Some(bytes) => Ok(Self(bytes)),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, factor) =
            UNITS.iter().find(|(_, factor)| self.0.is_multiple_of(*factor)).unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / factor)
    }
}

// === impl Period ===

impl Period {
    /// So many seconds.
    pub(crate) const fn secs(count: u64) -> Self {
        Self(Duration::from_secs(count))
    }

    /// This duration.
    pub(crate) const fn of(duration: Duration) -> Self {
        Self(duration)
    }

    /// As a duration.
    pub(crate) const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match humantime::parse_duration(text) {
            Ok(Duration::ZERO) => {
                Err("a duration of 0 leaves no time for anything; give at least \"1ms\"".into())
            }
            Ok(duration) => Ok(Self(duration)),
            Err(_) => Err(format!(
                "`{text}` is no duration; write a number and a unit, such as \"600s\" or \"10m\""
            )),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `600s` and not `10m`: the form of the documentation.
        if self.0.subsec_nanos() == 0 {
            write!(f, "{}s", self.0.as_secs())
        } else {
            humantime::format_duration(self.0).fmt(f)
        }
    }
}

// === impl HttpUrl ===

impl HttpUrl {
    /// The address.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HttpUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim_end_matches('/');
        let expected =
            |why: &str| format!("`{text}` is no address{why}; write it like \"http://127.0.0.1:8000\"");
        let uri: http::Uri = text.parse().map_err(|_| expected(""))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(expected(" that starts with http:// or https://"));
        }
        match uri.authority() {
            // Credentials in an address end up in logs and in the card.
            Some(authority) if authority.as_str().contains('@') => {
                Err("an address holds no user name or password; give them as a secret".into())
            }
            Some(authority) if !authority.host().is_empty() => Ok(Self(text.to_owned())),
            _ => Err(expected(" with a host")),
        }
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
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

/// Reads a string and parses it; `expected` completes "expected …" when it is something else.
fn from_text<'de, T, D>(deserializer: D, expected: &'static str) -> Result<T, D::Error>
where
    T: FromStr<Err = String>,
    D: Deserializer<'de>,
{
    struct Text<T>(&'static str, std::marker::PhantomData<T>);

    impl<T: FromStr<Err = String>> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Text(expected, std::marker::PhantomData))
}

macro_rules! text_value {
    ($type:ident, expected $expected:literal, schema $schema:tt) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_text(deserializer, $expected)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

text_value!(Size, expected "a size such as \"64MiB\"", schema
    { "type": "string", "format": "size", "pattern": "^[0-9]+ ?(B|KiB|MiB|GiB)$" });
text_value!(Period, expected "a duration such as \"600s\"", schema { "type": "string", "format": "period" });
text_value!(HttpUrl, expected "an address such as \"http://127.0.0.1:8000\"", schema
    { "type": "string", "format": "uri" });
text_value!(StoreUrl, expected "a store such as \"sqlite:talaria.db\"", schema { "type": "string" });
text_value!(ExecutorName, expected "an executor's name such as \"my-agent\"", schema
    { "type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,63}$" });
text_value!(Fallback, expected "an executor's name such as \"chat-completions\", or \"none\"", schema
    { "type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,63}$" });
text_value!(ComponentRef, expected "a path, \"builtin:NAME\", or \"oci://…@sha256:…\"", schema { "type": "string" });
