//! Values of single keys, written as text.
//!
//! Each is parsed when the file is read, so that a mistake is reported with its line and no later code sees an unchecked
//! string. Error messages say what was expected, with an example.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};

/// A number of bytes, written as `"64MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

/// A length of time, written as `"600s"`; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(Duration);

/// An absolute `http` or `https` address, without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl(String);

/// A positive number, for defaults.
pub const fn count<const N: u32>() -> NonZeroU32 {
    match NonZeroU32::new(N) {
        Some(count) => count,
        None => NonZeroU32::MIN,
    }
}

// === impl Size ===

impl Size {
    /// A number of mebibytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// A number of kibibytes.
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// Largest unit first, so that the shortest exact form is printed.
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
    /// A number of seconds.
    pub const fn secs(count: u64) -> Self {
        Self(Duration::from_secs(count))
    }

    /// Wraps a duration.
    pub const fn of(duration: Duration) -> Self {
        Self(duration)
    }

    /// As a duration.
    pub const fn get(self) -> Duration {
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
        // `600s` and not `10m`, as in the documentation.
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
    pub fn as_str(&self) -> &str {
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
            // Credentials in a URL would end up in logs and on the card.
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

// === text values ===

/// Deserializes a string and parses it; `expected` completes "expected …" in the error for any other type.
pub fn from_text<'de, T, D>(deserializer: D, expected: &'static str) -> Result<T, D::Error>
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

/// Makes a type that implements [`FromStr`] and [`fmt::Display`] a value of a configuration file: it is read from a
/// string, written as one, and described in the schema.
///
/// The calling crate needs `serde` and `schemars`.
#[macro_export]
macro_rules! text_value {
    ($type:ident, expected $expected:literal, schema $schema:tt) => {
        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::std::result::Result<Self, D::Error> {
                $crate::value::from_text(deserializer, $expected)
            }
        }

        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl ::schemars::JsonSchema for $type {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!($schema)
            }
        }
    };
}

text_value!(Size, expected "a size such as \"64MiB\"", schema
    { "type": "string", "format": "size", "pattern": "^[0-9]+ ?(B|KiB|MiB|GiB)$" });
text_value!(Period, expected "a duration such as \"600s\"", schema { "type": "string", "format": "period" });
text_value!(HttpUrl, expected "an address such as \"http://127.0.0.1:8000\"", schema
    { "type": "string", "format": "uri" });
