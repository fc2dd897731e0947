//! The address that a client sent its request to, which the card names if no address is configured.
//!
//! A client that fetched the card from `localhost` may reject one that names `127.0.0.1`, and behind a proxy only the proxy's
//! address works at all. `Host` is under the client's control, and a client that forges it gets a card that is wrong for nobody
//! else: the card is not kept, and caches have the host in their key. `Forwarded` and `X-Forwarded-*` could be forged by
//! others, so they are read only from proxies that the operator trusts, and of several elements only the last, which that proxy
//! added. An invalid address (too long, not a plain host, a port out of range, two headers) counts as absent.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use http::header::{FORWARDED, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Uri};

/// An IP address or a range: `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: u128,
    mask: u128,
}

/// The text is not a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an address like \"10.0.0.1\", or a range of them like \"10.0.0.0/8\"")]
pub struct InvalidNetwork;

/// The origin of a page as browsers send it, with scheme, host and port: `https://app.example`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(String);

/// The text is not an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a scheme and a host like \"https://app.example\", without a path; there is no wildcard")]
pub struct InvalidOrigin;

/// Bytes of the longest host name with a port.
const MAX_AUTHORITY: usize = 253 + 6;

const X_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

/// The headers that the card depends on if proxies are trusted.
pub(crate) const VARY: &str = "A2A-Version, Forwarded, X-Forwarded-Host, X-Forwarded-Proto, X-Forwarded-Port";

/// Returns the address that a request was sent to, if it is known. `peer` is the other end of the connection.
pub(crate) fn of(head: &Parts, peer: Option<IpAddr>, trusted: &[Network]) -> Option<String> {
    let is_trusted = peer.is_some_and(|peer| trusted.iter().any(|network| network.contains(peer)));
    address(&head.headers, &head.uri, is_trusted)
}

fn address(headers: &HeaderMap, uri: &Uri, is_trusted: bool) -> Option<String> {
    let (mut scheme, mut host) = ("http", None);
    if is_trusted {
        let forwarded = last(headers, &FORWARDED);
        let proto = parameter(forwarded, "proto").or_else(|| last(headers, &X_PROTO));
        if proto.is_some_and(|proto| proto.eq_ignore_ascii_case("https")) {
            scheme = "https";
        }
        host = parameter(forwarded, "host").or_else(|| last(headers, &X_HOST)).and_then(authority);
    }
    let own = || uri.authority().map(http::uri::Authority::as_str).or_else(|| only(headers, &HOST));
    let mut host = host.or_else(|| own().and_then(authority))?;
    let port = last(headers, &X_PORT).filter(|_| is_trusted).and_then(|port| port.parse::<u16>().ok());
    let default = if scheme == "https" { 443 } else { 80 };
    if let Some(port) =
        port.filter(|port| *port != default && split(&host).is_some_and(|(_, known)| known.is_none()))
    {
        host = format!("{host}:{port}");
    }
    Some(format!("{scheme}://{host}"))
}

/// Returns the value of a header that occurs once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    value.to_str().ok()
}

/// Returns the last element of a header that holds a list.
fn last<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let value = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    value.rsplit(',').next().map(str::trim).filter(|value| !value.is_empty())
}

/// Returns a parameter of an element of `Forwarded`, without its quotes.
fn parameter<'h>(element: Option<&'h str>, name: &str) -> Option<&'h str> {
    let pairs = element?.split(';').filter_map(|pair| pair.split_once('='));
    let mut values =
        pairs.filter(|(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim());
    values.next().map(|value| value.trim_matches('"'))
}

/// Returns a host with an optional port in lower case; `None` if the text is not one.
fn authority(text: &str) -> Option<String> {
    if text.len() > MAX_AUTHORITY {
        return None;
    }
    let (host, port) = split(text)?;
    let is_name = |host: &str| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    let is_v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = is_v6.map_or_else(|| is_name(host), |host| host.parse::<Ipv6Addr>().is_ok());
    let is_port = port.is_none_or(|port| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    (is_host && is_port).then(|| text.to_ascii_lowercase())
}

/// Splits a host from its port. Colons inside brackets belong to the address.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    let end = if text.starts_with('[') { text.find(']')? + 1 } else { text.find(':').unwrap_or(text.len()) };
    let (host, port) = text.split_at_checked(end)?;
    match port.strip_prefix(':') {
        None if port.is_empty() => Some((host, None)),
        None => None,
        Some(port) => Some((host, Some(port))),
    }
}

// === impl Network ===

impl Network {
    /// Whether the network contains an address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        bits(address) & self.mask == self.address
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| InvalidNetwork)?;
        let bits_of = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => bits_of,
            Some(length) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
                length.parse().ok().filter(|length| *length <= bits_of).ok_or(InvalidNetwork)?
            }
            Some(_) => return Err(InvalidNetwork),
        };
        let mask = u128::MAX.checked_shl(bits_of - length).unwrap_or(0);
        // IPv4 addresses are compared as mapped IPv6 addresses, whose other bits are fixed.
        let mask = if address.is_ipv4() { mask | !u128::from(u32::MAX) } else { mask };
        Ok(Self { address: bits(address) & mask, mask })
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(address) => u128::from(address),
    }
}

// === impl Origin ===

impl Origin {
    /// The origin as browsers send it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Origin {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        let (scheme, host) = text.split_once("://").ok_or(InvalidOrigin)?;
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "http" && scheme != "https" {
            return Err(InvalidOrigin);
        }
        let host = authority(host).ok_or(InvalidOrigin)?;
        // Browsers omit the default port of the scheme.
        let own = if scheme == "https" { ":443" } else { ":80" };
        Ok(Self(format!("{scheme}://{}", host.strip_suffix(own).unwrap_or(&host))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[(&'static str, &str)]) -> HeaderMap {
        values.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn from(values: &[(&'static str, &str)], is_trusted: bool) -> Option<String> {
        address(&headers(values), &Uri::from_static("/"), is_trusted)
    }

    #[test]
    fn reads_the_host_header_unless_it_is_invalid() {
        for (host, url) in [
            ("localhost:8000", Some("http://localhost:8000")),
            ("Agents.Example", Some("http://agents.example")),
            ("[::1]:8000", Some("http://[::1]:8000")),
            ("a_b.example", Some("http://a_b.example")),
            ("", None),
            ("a b", None),
            ("user@host", None),
            ("host/path", None),
            ("host:0", None),
            ("host:70000", None),
            ("host:+80", None),
            ("host:", None),
            ("[::1", None),
            ("[::1]x", None),
            ("::1", None),
            ("\"quoted\"", None),
        ] {
            assert_eq!(from(&[("host", host)], false).as_deref(), url, "{host}");
        }
        assert_eq!(from(&[("host", &"a".repeat(300))], false), None, "bounded");
        assert_eq!(from(&[("host", "a"), ("host", "b")], false), None, "two headers are ambiguous");
        assert_eq!(from(&[], false), None);
        let uri = Uri::from_static("http://over.h2:1/");
        assert_eq!(address(&HeaderMap::new(), &uri, false).as_deref(), Some("http://over.h2:1"));
    }

    #[test]
    fn reads_forwarded_headers_from_trusted_proxies_only() {
        let host = ("host", "inside:8000");
        for (said, url) in [
            (vec![("forwarded", "for=1.2.3.4;host=out.example;proto=https")], "https://out.example"),
            (vec![("forwarded", "host=forged, for=x; Host=\"out.example:81\"")], "http://out.example:81"),
            (
                vec![("x-forwarded-host", "out.example"), ("x-forwarded-proto", "https")],
                "https://out.example",
            ),
            (vec![("x-forwarded-host", "forged, out.example")], "http://out.example"),
            (vec![("x-forwarded-host", "out.example"), ("x-forwarded-port", "81")], "http://out.example:81"),
            (
                vec![("x-forwarded-host", "out.example:82"), ("x-forwarded-port", "81")],
                "http://out.example:82",
            ),
            (vec![("x-forwarded-proto", "https"), ("x-forwarded-port", "443")], "https://inside:8000"),
            (vec![("x-forwarded-host", "<script>")], "http://inside:8000"),
            (vec![("x-forwarded-proto", "gopher")], "http://inside:8000"),
        ] {
            let all: Vec<_> = said.iter().copied().chain([host]).collect();
            assert_eq!(from(&all, true).as_deref(), Some(url), "{said:?}");
            assert_eq!(from(&all, false).as_deref(), Some("http://inside:8000"), "{said:?}");
        }
    }

    #[test]
    fn a_network_is_an_address_or_a_range() {
        for (network, address, is_in) in [
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), is_in, "{network:?} {address}");
        }
        for bad in ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "host", "::/129", "10.0.0.0/8/8"]
        {
            assert_eq!(bad.parse::<Network>(), Err(InvalidNetwork), "{bad}");
        }
    }

    #[test]
    fn an_origin_has_the_form_that_browsers_send() {
        for (text, origin) in [
            ("https://App.Example", "https://app.example"),
            ("https://app.example:443", "https://app.example"),
            ("http://localhost:3000", "http://localhost:3000"),
        ] {
            assert_eq!(text.parse::<Origin>().unwrap().as_str(), origin);
        }
        for bad in
            ["*", "null", "app.example", "https://app.example/", "https://*.example", "ftp://a", "https://"]
        {
            assert_eq!(bad.parse::<Origin>(), Err(InvalidOrigin), "{bad}");
        }
    }
}
