//! The patterns that a grant consists of: `METHOD scheme://host[:port]/path`.
//!
//! | part | may be |
//! |---|---|
//! | method | one method, or `*` for all |
//! | scheme | `http` or `https` |
//! | host | exact, or `*.example.com` for one or more labels below (not `example.com` itself) |
//! | port | omitted for the scheme's own, a number, or `:*` for any |
//! | path | exact, or with a `*` at its end for every path with that prefix |
//!
//! The path is required: a grant of a whole host is a decision, so it is written as `/*`. The query is never part of a
//! match. Two patterns have an exact [intersection](Pattern::meet), so an executor gets exactly what it needs and is granted.

use std::fmt;
use std::str::FromStr;

use http::Method;
use serde::{Deserialize, Serialize};

use crate::origin::Origin;
use crate::target::{
    Problem, Scheme, Target, check_path, parse_host, parse_method, parse_port, split_authority,
};

/// A set of calls that a grant allows.
///
/// ```
/// use talaria_egress::Pattern;
///
/// let pattern: Pattern = "post http://Example.COM:80/v1/*".parse()?;
/// assert_eq!(pattern.to_string(), "POST http://example.com/v1/*");
/// # Ok::<(), talaria_egress::InvalidPattern>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    /// `None` is every method.
    method: Option<Method>,
    scheme: Scheme,
    host: Host,
    /// `None` is every port.
    port: Option<u16>,
    path: Path,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Host {
    Exact(String),
    /// Every name with one or more labels before this one.
    Below(String),
}

/// A host, or every name below one, as in [`Pattern`]: `gateway`, `*.svc.cluster.local`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern(Host);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Path {
    Exact(String),
    Prefix(String),
}

/// A pattern that cannot be parsed, with the position and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad egress pattern {pattern:?} at position {position}: {problem}")]
pub struct InvalidPattern {
    /// The text as given.
    pub pattern: String,
    /// The byte offset of the problem.
    pub position: usize,
    /// What is wrong and how to write it instead.
    pub problem: String,
}

// === impl Pattern ===

impl Pattern {
    /// The narrowest pattern that allows this call, as a denial suggests it to the operator.
    pub(crate) fn of(target: &Target) -> Self {
        Self {
            method: Some(target.method.clone()).filter(|method| METHODS.contains(method)),
            scheme: target.scheme,
            host: Host::Exact(target.host.clone()),
            port: Some(target.port),
            path: Path::Exact(target.path.clone()),
        }
    }

    /// Every call to one origin.
    pub(crate) fn everything_at(origin: &Origin) -> Self {
        Self {
            method: None,
            scheme: origin.scheme,
            host: Host::Exact(origin.host.clone()),
            port: Some(origin.port),
            path: Path::Prefix("/".to_owned()),
        }
    }

    pub(crate) fn matches(&self, target: &Target) -> bool {
        self.method.as_ref().is_none_or(|method| *method == target.method)
            && self.scheme == target.scheme
            && self.host.matches(&target.host)
            && self.port.is_none_or(|port| port == target.port)
            && self.path.matches(&target.path)
    }

    /// Whether this pattern allows some call to the host of the target.
    pub(crate) fn reaches_host_of(&self, target: &Target) -> bool {
        self.host.matches(&target.host)
    }

    /// The calls that both patterns allow; `None` if there are none.
    pub fn meet(&self, other: &Self) -> Option<Self> {
        if self.scheme != other.scheme {
            return None;
        }
        Some(Self {
            method: meet_options(&self.method, &other.method)?,
            scheme: self.scheme,
            host: self.host.meet(&other.host)?,
            port: meet_options(&self.port, &other.port)?,
            path: self.path.meet(&other.path)?,
        })
    }

    /// Whether every call that `other` allows is allowed by this pattern too.
    pub fn covers(&self, other: &Self) -> bool {
        self.meet(other).as_ref() == Some(other)
    }
}

/// The inner `None` stands for everything, the outer one for an empty intersection.
fn meet_options<T: Clone + PartialEq>(one: &Option<T>, other: &Option<T>) -> Option<Option<T>> {
    match (one, other) {
        (None, any) | (any, None) => Some(any.clone()),
        (Some(one), Some(other)) if one == other => Some(Some(one.clone())),
        (Some(_), Some(_)) => None,
    }
}

impl HostPattern {
    pub(crate) fn matches(&self, host: &str) -> bool {
        self.0.matches(host)
    }
}

impl From<&Pattern> for HostPattern {
    /// The hosts that a pattern allows calls to.
    fn from(pattern: &Pattern) -> Self {
        Self(pattern.host.clone())
    }
}

impl FromStr for HostPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Host::parse(text).map(Self).map_err(|problem| InvalidPattern {
            pattern: text.to_owned(),
            position: problem.at,
            problem: problem.what.into_owned(),
        })
    }
}

impl TryFrom<String> for HostPattern {
    type Error = InvalidPattern;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

impl Host {
    fn parse(text: &str) -> Result<Self, Problem> {
        match text.strip_prefix("*.") {
            None if text == "*" => {
                Err(Problem::new(0, "every host is no grant; name it, or write *.example.com"))
            }
            None => parse_host(text).map(Self::Exact),
            Some(name) if name.starts_with('[') || name.parse::<std::net::Ipv4Addr>().is_ok() => {
                Err(Problem::new(0, "*. goes before a name, not an address; write the address alone"))
            }
            Some(name) => {
                let name = parse_host(name).map_err(|problem| problem.after("*.".len()))?;
                Ok(Self::Below(name))
            }
        }
    }

    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => name == host,
            Self::Below(name) => is_below(host, name),
        }
    }

    fn meet(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Exact(name), any) | (any, Self::Exact(name)) => {
                any.matches(name).then(|| Self::Exact(name.clone()))
            }
            (Self::Below(one), Self::Below(two)) if one == two || is_below(one, two) => Some(self.clone()),
            (Self::Below(one), Self::Below(two)) => is_below(two, one).then(|| other.clone()),
        }
    }
}

fn is_below(host: &str, name: &str) -> bool {
    host.strip_suffix(name).is_some_and(|labels| labels.len() > 1 && labels.ends_with('.'))
}

impl Path {
    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == path,
            Self::Prefix(prefix) => path.starts_with(prefix),
        }
    }

    fn meet(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Exact(path), any) | (any, Self::Exact(path)) => {
                any.matches(path).then(|| Self::Exact(path.clone()))
            }
            (Self::Prefix(one), Self::Prefix(two)) if one.starts_with(two) => Some(self.clone()),
            (Self::Prefix(one), Self::Prefix(two)) => two.starts_with(one).then(|| other.clone()),
        }
    }
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|problem| InvalidPattern {
            pattern: text.to_owned(),
            position: problem.at,
            problem: problem.what.into_owned(),
        })
    }
}

impl TryFrom<String> for Pattern {
    type Error = InvalidPattern;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.to_string()
    }
}

/// The normal form: defaults omitted, names in their usual case. Parses back to the same pattern.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = self.method.as_ref().map_or("*", Method::as_str);
        write!(f, "{method} {}://{}", self.scheme, self.host)?;
        match self.port {
            None => f.write_str(":*")?,
            Some(port) if port == self.scheme.default_port() => {}
            Some(port) => write!(f, ":{port}")?,
        }
        match &self.path {
            Path::Exact(path) => f.write_str(path),
            Path::Prefix(path) => write!(f, "{path}*"),
        }
    }
}

/// The methods that a pattern may name. Any other is a typing mistake far more often than an extension, and such a pattern
/// would allow nothing.
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

fn known_method(text: &str) -> Result<Method, Problem> {
    let method = parse_method(text)?;
    if METHODS.contains(&method) {
        return Ok(method);
    }
    let known = METHODS.each_ref().map(Method::as_str).join(", ");
    Err(Problem::new(0, format!("unknown method `{text}`; write one of {known}, or * for every method")))
}

fn parse(text: &str) -> Result<Pattern, Problem> {
    let Some((method, url)) = text.split_once(' ') else {
        return Err(Problem::new(
            0,
            format!("the method is missing; write \"POST {text}\", or * for every method"),
        ));
    };
    let method = match method {
        "*" => None,
        method => Some(known_method(method)?),
    };
    let url_at = text.len() - url.len();
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(Problem::new(url_at, "the scheme is missing; write http://host/path after one space"));
    };
    let Some(known) = Scheme::parse(scheme) else {
        return Err(Problem::new(url_at, "unknown scheme; write http or https"));
    };
    let authority_at = text.len() - rest.len();
    let Some(slash) = rest.find('/') else {
        return Err(Problem::new(
            text.len(),
            format!("the path is missing; write \"{text}/*\" for every path"),
        ));
    };
    let (authority, path) = rest.split_at(slash);
    let (host, port) = split_authority(authority).map_err(|problem| problem.after(authority_at))?;
    let port_at = authority_at + host.len() + 1;
    let host = Host::parse(host).map_err(|problem| problem.after(authority_at))?;
    let port = match port {
        None => Some(known.default_port()),
        Some("*") => None,
        Some(port) => Some(parse_port(port).ok_or_else(|| {
            Problem::new(port_at, "the port is not a number from 1 to 65535, or * for any")
        })?),
    };
    let path = match path.strip_suffix('*') {
        None => Path::Exact(path.to_owned()),
        Some(prefix) => Path::Prefix(prefix.to_owned()),
    };
    let (Path::Exact(checked) | Path::Prefix(checked)) = &path;
    check_path(checked).map_err(|problem| problem.after(authority_at + slash))?;
    Ok(Pattern { method, scheme: known, host, port, path })
}

#[cfg(test)]
mod tests;
