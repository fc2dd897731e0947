//! The target of a call: method and URL, parsed and normalised, as the policy checks them.
//!
//! The policy checks exactly what is sent: the [`http::Uri`] on the wire is built from the same parts. Everything that two
//! parsers could read differently is rejected instead of repaired: user information, fragments, backslashes, control
//! characters, dot segments (plain, percent-encoded, encoded twice, or with a `;` parameter), encoded slashes, and numbers
//! that only some resolvers take for an IPv4 address. Paths are compared as written: `%63` is not `c`, so an encoded path
//! never matches a pattern that is not encoded, which errs on the side of denial.

use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, OnceLock};

use http::{Method, Uri};

use crate::error::Error;
use crate::origin::Origin;

/// The longest URL, in bytes: the longest request line of common servers (nginx, gunicorn).
const URL_BYTES: usize = 8 * 1024;

/// Layers of percent-encoding that are decoded before a path is rejected as a disguise.
const ENCODINGS: usize = 3;

/// The supported schemes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// Method and URL of one call, checked and normalised.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) method: Method,
    pub(crate) scheme: Scheme,
    /// Lower case; an IPv6 address in brackets and in its canonical form.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Starts with `/`.
    pub(crate) path: String,
    query: Option<String>,
    authority: Arc<str>,
    /// The URL to send, once it was asked for.
    uri: OnceLock<Uri>,
}

/// A problem at a place in a text: the byte offset, what is wrong, and the fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) at: usize,
    pub(crate) what: Cow<'static, str>,
}

// === impl Problem ===

impl Problem {
    pub(crate) fn new(at: usize, what: impl Into<Cow<'static, str>>) -> Self {
        Self { at, what: what.into() }
    }

    /// Returns the same problem, relative to a text in which this one starts at `offset`.
    pub(crate) fn after(mut self, offset: usize) -> Self {
        self.at += offset;
        self
    }
}

// === impl Scheme ===

impl Scheme {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("http") {
            Some(Self::Http)
        } else if text.eq_ignore_ascii_case("https") {
            Some(Self::Https)
        } else {
            None
        }
    }

    pub(crate) fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

// === impl Target ===

impl Target {
    pub(crate) fn parse(method: &str, url: &str) -> Result<Self, Error> {
        let method = parse_method(method).map_err(|problem| Error::invalid(problem.what))?;
        let (scheme, host, port, path, query) = parse_url(url).map_err(|problem| {
            Error::invalid(format!("bad URL at position {}: {}", problem.at, problem.what))
        })?;
        let authority = format!("{host}:{port}").into();
        Ok(Self { method, scheme, host, port, path, query, authority, uri: OnceLock::new() })
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> Origin {
        Origin { scheme: self.scheme, host: self.host.clone(), port: self.port }
    }

    /// `host:port`, as messages show the destination.
    pub(crate) fn authority(&self) -> Arc<str> {
        Arc::clone(&self.authority)
    }

    /// The URL to send, with the query.
    pub(crate) fn uri(&self) -> Result<Uri, Error> {
        if let Some(uri) = self.uri.get() {
            return Ok(uri.clone());
        }
        let mut url = self.to_string();
        if let Some(query) = &self.query {
            url.push('?');
            url.push_str(query);
        }
        let uri = Uri::try_from(url).map_err(|error| Error::invalid(format!("bad URL: {error}")))?;
        Ok(self.uri.get_or_init(|| uri).clone())
    }
}

/// The URL without its query, which may contain secrets.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path)
    }
}

type Parts = (Scheme, String, u16, String, Option<String>);

fn parse_url(url: &str) -> Result<Parts, Problem> {
    if url.len() > URL_BYTES {
        return Err(Problem::new(URL_BYTES, format!("longer than {URL_BYTES} bytes")));
    }
    if let Some(at) = url.find("{secret:") {
        return Err(Problem::new(at, "secrets are filled into header values only, never into a URL"));
    }
    for (at, char) in url.char_indices() {
        match char {
            '\\' => return Err(Problem::new(at, "a backslash; write / or %5C in the query")),
            '#' => return Err(Problem::new(at, "a fragment is never sent; remove it")),
            '!'..='~' => {}
            _ => {
                return Err(Problem::new(
                    at,
                    "a control character, space or non-ASCII character; percent-encode it",
                ));
            }
        }
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(Problem::new(0, "no scheme; write an absolute URL like http://host/path"));
    };
    let Some(known) = Scheme::parse(scheme) else {
        return Err(Problem::new(0, "unknown scheme; only http and https exist here"));
    };
    let authority_at = scheme.len() + "://".len();
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (host, port) = split_authority(authority).map_err(|problem| problem.after(authority_at))?;
    let port_at = authority_at + host.len() + 1;
    let host = parse_host(host).map_err(|problem| problem.after(authority_at))?;
    let port = match port {
        None => known.default_port(),
        Some(port) => parse_port(port).ok_or_else(|| {
            Problem::new(port_at, "the port is not a number from 1 to 65535; correct or remove it")
        })?,
    };
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (rest, None),
    };
    if let Some(at) = query.as_ref().and_then(|query| query.find(['"', '<', '>'])) {
        let query_at = authority_at + authority.len() + path.len() + 1;
        return Err(Problem::new(query_at + at, "a character that a query may not hold; percent-encode it"));
    }
    let path = if path.is_empty() { "/" } else { path };
    check_path(path).map_err(|problem| problem.after(authority_at + authority.len()))?;
    Ok((known, host, port, path.to_owned(), query))
}

/// Parses a method; the result is in upper case, as every registered method is.
pub(crate) fn parse_method(text: &str) -> Result<Method, Problem> {
    if text == "*" {
        // HTTP would accept it, but the denial of such a call would suggest a grant of every method.
        return Err(Problem::new(
            0,
            "* stands for every method in a grant; a call has one, like GET or POST",
        ));
    }
    let method = Method::from_bytes(text.to_ascii_uppercase().as_bytes()).map_err(|_invalid| {
        Problem::new(0, format!("{text:?} is not an HTTP method; write one like GET or POST"))
    })?;
    match method {
        Method::CONNECT => {
            Err(Problem::new(0, "CONNECT opens a tunnel past the policy; it is never allowed"))
        }
        Method::TRACE => Err(Problem::new(0, "TRACE echoes the secrets in the headers; it is never allowed")),
        method => Ok(method),
    }
}

/// Splits an authority into host and port; the port, if there is one, starts after the host and a colon.
pub(crate) fn split_authority(text: &str) -> Result<(&str, Option<&str>), Problem> {
    if let Some(at) = text.find('@') {
        return Err(Problem::new(
            at,
            "user information before @; send credentials in a header with {secret:NAME}",
        ));
    }
    // The colons of an IPv6 address are inside its brackets.
    let searched_from = text.rfind(']').unwrap_or(0);
    match text.get(searched_from..).and_then(|tail| tail.find(':')) {
        None => Ok((text, None)),
        Some(colon) => {
            let (host, port) = text.split_at(searched_from + colon);
            Ok((host, port.strip_prefix(':')))
        }
    }
}

pub(crate) fn parse_port(text: &str) -> Option<u16> {
    // `u16::from_str` accepts a sign; a URL does not.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

/// Parses a host into its one normal form.
pub(crate) fn parse_host(text: &str) -> Result<String, Problem> {
    if text.is_empty() {
        return Err(Problem::new(0, "the host is missing"));
    }
    if let Some(address) = text.strip_prefix('[') {
        let address = address.strip_suffix(']').and_then(|address| address.parse::<Ipv6Addr>().ok());
        return match address {
            Some(address) => Ok(format!("[{address}]")),
            None => Err(Problem::new(0, "not an IPv6 address in brackets, like [::1]")),
        };
    }
    if let Some(at) = text.find(|char: char| !char.is_ascii_alphanumeric() && !"-_.".contains(char)) {
        return Err(Problem::new(
            at,
            "a host has letters, digits, - and . only (an IPv6 address goes in brackets)",
        ));
    }
    if text.len() > 253 || text.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return Err(Problem::new(0, "not a host name: a label between dots is empty or too long"));
    }
    let last = text.rsplit('.').next().unwrap_or(text);
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let number = match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => last.bytes().all(|byte| byte.is_ascii_digit()),
    };
    if number && text.parse::<Ipv4Addr>().is_err() {
        return Err(Problem::new(
            0,
            "ends in a number but is not an IPv4 address; write all four parts in decimal",
        ));
    }
    Ok(text.to_ascii_lowercase())
}

/// Checks a path that starts with `/`: it has only characters that a path may have, and nothing that another parser could
/// take for a dot segment.
pub(crate) fn check_path(path: &str) -> Result<(), Problem> {
    let bytes = path.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'%' if decode_at(bytes, at).is_none() => {
                return Err(Problem::new(at, "% is not followed by two hex digits; write %25"));
            }
            b'*' => return Err(Problem::new(at, "a literal * in a path is written %2A")),
            b'?' => return Err(Problem::new(at, "the query is not part of a path; remove it")),
            byte if byte.is_ascii_alphanumeric() || b"/-._~%!$&'()+,;=:@".contains(byte) => {}
            _ => return Err(Problem::new(at, "a character that a path may not hold; percent-encode it")),
        }
    }
    let mut current = Cow::Borrowed(bytes);
    for _layer in 0..ENCODINGS {
        if current.split(|byte| *byte == b'/').any(is_dot_segment) {
            return Err(Problem::new(0, "the path has a . or .. segment; write the path it stands for"));
        }
        if !current.contains(&b'%') {
            return Ok(());
        }
        let decoded = decode(&current);
        if decoded.len() == current.len() {
            return Ok(());
        }
        if count(&decoded, b'/') != count(&current, b'/') || decoded.contains(&b'\\') {
            return Err(Problem::new(
                0,
                "the path has an encoded slash or backslash; write the path it stands for",
            ));
        }
        if decoded.iter().any(u8::is_ascii_control) || std::str::from_utf8(&decoded).is_err() {
            return Err(Problem::new(
                0,
                "the path has an encoded control character or is not UTF-8; remove it",
            ));
        }
        current = Cow::Owned(decoded);
    }
    Err(Problem::new(0, "the path is percent-encoded more than twice; encode it once"))
}

/// Whether a segment is `.` or `..`, also with a parameter (`..;x`), which some servers strip before they resolve the path.
fn is_dot_segment(segment: &[u8]) -> bool {
    let name = segment.split(|byte| *byte == b';').next().unwrap_or(segment);
    matches!(name, b"." | b"..")
}

fn count(bytes: &[u8], wanted: u8) -> usize {
    bytes.iter().filter(|byte| **byte == wanted).count()
}

/// Decodes one layer; an invalid escape stays as it is.
fn decode(bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match (byte, decode_at(bytes, at)) {
            (b'%', Some(value)) => {
                decoded.push(value);
                at += 3;
            }
            _ => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    decoded
}

fn decode_at(bytes: &[u8], percent: usize) -> Option<u8> {
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    u8::try_from(digit(percent + 1)? * 16 + digit(percent + 2)?).ok()
}
