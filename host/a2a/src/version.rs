//! Protocol versions.
//!
//! Over JSON-RPC the method's name decides the version, since no name exists in both. The version that the caller requests
//! must not contradict it: a 0.3 name goes with 0.3, a 1.0 name with 1.x, and either with no version at all. Any other
//! combination is rejected, because the caller would misread the answer. Over HTTP+JSON the path decides in the same way,
//! except for `/v1/…`, which is a tenant for a caller who requests 1.x.

use std::fmt;

use http::HeaderName;

use crate::rejection::{ErrorKind, Rejection};

/// The name of the header, and of the query parameter for callers that cannot set one.
pub(crate) const NAME: &str = "A2A-Version";
/// The header's name in the lower case that HTTP compares.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("a2a-version");

/// A supported version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 0.3.
    V03,
    /// 1.0.
    V1,
}

impl Version {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V03 => "0.3",
            Self::V1 => "1.0",
        }
    }

    /// Whether this version may answer a caller who requests `requested`, given that its request can mean no other version.
    pub(crate) fn admits(self, requested: Option<&str>) -> bool {
        requested.is_none() || self.serves(requested)
    }

    /// Whether a caller who requests `requested` can read this version. A patch number means nothing, and a later minor
    /// version of 1 must be able to read 1.0. No version means 0.3.
    pub fn serves(self, requested: Option<&str>) -> bool {
        let Some(requested) = requested else { return self == Self::V03 };
        let mut numbers = requested.split('.');
        let (major, minor) = (numbers.next(), numbers.next());
        let is_number = |number: &str| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        if !requested.split('.').all(is_number) {
            return false;
        }
        match self {
            Self::V03 => (major, minor) == (Some("0"), Some("3")),
            Self::V1 => major == Some("1"),
        }
    }
}

/// Rejects a caller who requests another version than that of `subject`, for example `GetTask is a method of`.
pub(crate) fn mismatch(subject: impl fmt::Display, version: Version, requested: Option<&str>) -> Rejection {
    let says = match requested {
        Some(requested) => format!("{NAME} says {:?}", requested.chars().take(20).collect::<String>()),
        None => format!("there is no {NAME}, which means 0.3"),
    };
    let version = version.as_str();
    let message = format!("{subject} A2A {version}, but {says}; served are 1.0 and 0.3");
    Rejection::new(ErrorKind::VersionNotSupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_serves_its_own_callers() {
        for (requested, v03, v1) in [
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
            assert_eq!(Version::V03.serves(requested), v03, "0.3 for {requested:?}");
            assert_eq!(Version::V1.serves(requested), v1, "1.0 for {requested:?}");
        }
    }
}
