//! Which version of A2A speaks.
//!
//! JSON-RPC: the method's name decides, since no name is in both versions, and the version that the caller states must
//! not contradict it: a 0.3 name goes with 0.3, a 1.0 name with 1.x, and either with none. Anything else is a caller who would
//! misread the answer. HTTP+JSON: the path decides in the same way, but for `/v1/…`, which a caller who states 1.x means as a
//! tenant.

use std::fmt;

use http::{HeaderMap, HeaderName};

use crate::refusal::{Kind, Refusal};

/// The header, and the query parameter for callers that cannot set one.
pub(crate) const NAME: &str = "A2A-Version";
/// The header's name as HTTP compares it.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("a2a-version");

/// A version that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V03,
    V1,
}

impl Version {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V03 => "0.3",
            Self::V1 => "1.0",
        }
    }

    /// Whether a caller who states `asked` may be answered in this version, since its request can mean no other.
    pub(crate) fn admits(self, asked: Option<&str>) -> bool {
        asked.is_none() || self.serves(asked)
    }

    /// Whether a caller who states `asked` can read this version. A patch number means nothing, and a later minor of
    /// 1 must read what 1.0 writes.
    pub(crate) fn serves(self, asked: Option<&str>) -> bool {
        let Some(asked) = asked else { return self == Self::V03 };
        let mut numbers = asked.split('.');
        let (major, minor) = (numbers.next(), numbers.next());
        if !asked.split('.').all(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())) {
            return false;
        }
        match self {
            Self::V03 => (major, minor) == (Some("0"), Some("3")),
            Self::V1 => major == Some("1"),
        }
    }
}

/// The version that the caller states; empty is none.
pub(crate) fn asked<'r>(headers: &'r HeaderMap, query: Option<&'r str>) -> Option<&'r str> {
    let header = headers.get(HEADER).map(|value| value.to_str().unwrap_or("?").trim());
    header.filter(|version| !version.is_empty()).or_else(|| {
        let parameters = query?.split('&').filter_map(|pair| pair.split_once('='));
        parameters
            .filter(|(name, _)| name.eq_ignore_ascii_case(NAME))
            .map(|(_, version)| version.trim())
            .find(|version| !version.is_empty())
    })
}

/// Refuses a caller who states another version than the one that `what` belongs to: `GetTask is a method of`.
pub(crate) fn mismatch(what: impl fmt::Display, version: Version, asked: Option<&str>) -> Refusal {
    let says = match asked {
        Some(asked) => format!("{NAME} says {:?}", asked.chars().take(20).collect::<String>()),
        None => format!("there is no {NAME}, which means 0.3"),
    };
    let version = version.as_str();
    let message = format!("{what} A2A {version}, but {says}; served are 1.0 and 0.3");
    Refusal::new(Kind::VersionNotSupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_serves_its_own_callers() {
        for (asked, v03, v1) in [
            (None, true, false),
            (Some("0.3"), true, false),
            (Some("0.3.0"), true, false),
            (Some("1.0"), false, true),
            (Some("1.1"), false, true),
            (Some("1"), false, true),
            (Some("0.2"), false, false),
            (Some("0"), false, false),
            (Some("2.0"), false, false),
            (Some("99.0"), false, false),
            (Some("1.x"), false, false),
            (Some("1."), false, false),
            (Some("banana"), false, false),
        ] {
            assert_eq!(Version::V03.serves(asked), v03, "0.3 for {asked:?}");
            assert_eq!(Version::V1.serves(asked), v1, "1.0 for {asked:?}");
        }
    }

    #[test]
    fn the_header_wins_over_the_query_and_empty_is_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(asked(&headers, None), None);
        assert_eq!(asked(&headers, Some("x=1&A2A-Version=1.0")), Some("1.0"));
        headers.insert(NAME, " ".parse().unwrap());
        assert_eq!(asked(&headers, Some("a2a-version=1.0")), Some("1.0"));
        headers.insert(NAME, "0.3".parse().unwrap());
        assert_eq!(asked(&headers, Some("A2A-Version=1.0")), Some("0.3"));
    }
}
