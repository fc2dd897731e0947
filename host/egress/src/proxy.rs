//! Proxies between this host and the internet: the ones that the environment names, as curl and Python read it.
//!
//! A proxy is a destination that the operator named, so its own address is not checked. What a call may reach is decided as
//! without a proxy: the host looks the name up, checks the addresses, and has the proxy connect to one of the *checked
//! addresses* (`CONNECT 93.184.216.34:443`). A proxy is usually inside the operator's network, so a name that only the proxy
//! resolves could lead a guest or a webhook to addresses that are denied here. If this host cannot resolve names, the operator
//! can leave that to the proxy (`egress.proxy_resolves`), and with it the rules about addresses; webhooks never do.
//!
//! Every call is a tunnel, `http` too: a request in absolute form would have to name the host, and the proxy would resolve it.
//! TLS is between this host and the destination. This machine (`localhost`, 127.0.0.0/8, `::1`) is never behind a proxy.
//!
//! The proxy's answer is read up to 8 KiB, within the timeout of the connection. Guests and callers learn that there is a
//! proxy, never its name or credentials.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Uri;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::connect::{Failure, literal};
use crate::target::Target;

/// The longest head of a proxy's answer. 8 KiB: what common servers accept as a head.
const HEAD_BYTES: usize = 8 * 1024;

/// The proxies of this process. Cheap to clone. The default has none.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    http: Option<Arc<Proxy>>,
    https: Option<Arc<Proxy>>,
    exempt: Arc<[Exempt]>,
    resolves: bool,
}

/// One proxy. Its credentials are in no message.
#[derive(Debug)]
pub(crate) struct Proxy {
    host: String,
    port: u16,
    /// The value of `proxy-authorization`.
    authorization: Option<SecretString>,
}

/// A variable that names no usable proxy. The message never quotes its value, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct InvalidProxy {
    /// The variable.
    pub variable: String,
    what: &'static str,
}

/// An entry of `NO_PROXY`: what is called without a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Exempt {
    Everything,
    /// A host and everything below it, at one port or at all.
    Host(String, Option<u16>),
    /// The addresses with this prefix.
    Network(IpAddr, u8),
}

// === impl Proxies ===

impl Proxies {
    /// Reads `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`; the lower-case spelling wins, as for curl and Python. An empty
    /// variable counts as unset.
    ///
    /// # Errors
    /// A proxy that is not `http://[USER:PASSWORD@]HOST[:PORT]`.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidProxy> {
        let value = |name: &str| {
            let names = [name.to_lowercase(), name.to_owned()];
            names.into_iter().find_map(|name| {
                let value = variable(&name)?.trim().to_owned();
                (!value.is_empty()).then_some((name, value))
            })
        };
        let proxy = |name: &str| match value(name) {
            Some((variable, url)) => match Proxy::parse(&url) {
                Ok(proxy) => Ok(Some(Arc::new(proxy))),
                Err(what) => Err(InvalidProxy { variable, what }),
            },
            None => Ok(None),
        };
        let exempt = value("NO_PROXY").map_or_else(Vec::new, |(_, list)| {
            list.split([',', ' ']).filter_map(|entry| Exempt::parse(entry.trim())).collect()
        });
        let (http, https) = (proxy("HTTP_PROXY")?, proxy("HTTPS_PROXY")?);
        Ok(Self { http, https, exempt: exempt.into(), resolves: false })
    }

    /// Whether proxies look names up, instead of this host; the rules about the addresses of names are theirs then.
    #[must_use]
    pub fn resolving(self, resolves: bool) -> Self {
        Self { resolves, ..self }
    }

    pub(crate) fn resolve_names(&self) -> bool {
        self.resolves
    }

    /// The proxies in use, for the log: `HTTPS by proxy.example:3128`.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        let named = [("http", &self.http), ("https", &self.https)];
        let named =
            named.iter().filter_map(|(scheme, proxy)| Some(format!("{scheme} by {}", proxy.as_ref()?)));
        let named: Vec<_> = named.collect();
        (!named.is_empty()).then(|| named.join(", "))
    }

    /// The credentials, for the redaction of what this process writes.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let authorizations = [&self.http, &self.https].into_iter().flatten();
        let authorizations = authorizations.filter_map(|proxy| proxy.authorization.as_ref());
        authorizations.filter_map(|value| value.expose_secret().strip_prefix("Basic "))
    }

    /// The proxy for a call, if it has one.
    pub(crate) fn of(&self, uri: &Uri) -> Option<Arc<Proxy>> {
        let host = uri.host()?;
        let (proxy, default) = match uri.scheme_str() {
            Some("https") => (&self.https, 443),
            _ => (&self.http, 80),
        };
        let proxy = proxy.as_ref()?;
        let address = literal(host);
        let is_here =
            host == "localhost" || address.is_some_and(|address| address.to_canonical().is_loopback());
        let port = uri.port_u16().unwrap_or(default);
        let is_exempt = || self.exempt.iter().any(|exempt| exempt.matches(host, address, port));
        (!is_here && !is_exempt()).then(|| Arc::clone(proxy))
    }
}

// === impl Exempt ===

impl Exempt {
    fn parse(entry: &str) -> Option<Self> {
        if entry.is_empty() {
            return None;
        }
        if entry == "*" {
            return Some(Self::Everything);
        }
        if let Some((network, prefix)) = entry.split_once('/')
            && let (Some(address), Ok(prefix)) = (literal(network), prefix.parse())
        {
            return Some(Self::Network(address, prefix));
        }
        if let Some(address) = literal(entry) {
            return Some(Self::Network(address, 128));
        }
        let (host, port) = match entry.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
            Some((host, Ok(port))) => (host, Some(port)),
            _ => (entry, None),
        };
        let host = host.strip_prefix('*').unwrap_or(host);
        Some(Self::Host(host.strip_prefix('.').unwrap_or(host).to_ascii_lowercase(), port))
    }

    fn matches(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        match (self, address) {
            (Self::Everything, _) => true,
            (Self::Host(name, at), _) => {
                let below = host.strip_suffix(name.as_str());
                at.is_none_or(|at| at == port)
                    && below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
            }
            (Self::Network(network, prefix), Some(address)) => within(*network, *prefix, address),
            (Self::Network(..), None) => false,
        }
    }
}

/// Whether an address has the first `prefix` bits of another.
fn within(network: IpAddr, prefix: u8, address: IpAddr) -> bool {
    let (bits, apart) = match (network.to_canonical(), address.to_canonical()) {
        (IpAddr::V4(network), IpAddr::V4(address)) => (32, u128::from(network.to_bits() ^ address.to_bits())),
        (IpAddr::V6(network), IpAddr::V6(address)) => (128, network.to_bits() ^ address.to_bits()),
        _ => return false,
    };
    let free: u32 = 128_u32.min(bits).saturating_sub(u32::from(prefix));
    apart.checked_shr(free).unwrap_or(0) == 0
}

// === impl Proxy ===

impl Proxy {
    fn parse(url: &str) -> Result<Self, &'static str> {
        const FORM: &str = "it is no proxy; write `http://HOST:PORT`, or `http://USER:PASSWORD@HOST:PORT`";
        let rest = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some(_) => return Err("only proxies that speak HTTP are supported; write `http://HOST:PORT`"),
            None => url,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (credentials, place) = match rest.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, rest),
        };
        if place.contains(['/', '?', '#']) {
            return Err(FORM);
        }
        let target = Target::parse("GET", &format!("http://{place}/")).map_err(|_| FORM)?;
        let authorization = credentials.map(|credentials| {
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            let both = [decoded(user), b":".to_vec(), decoded(password)].concat();
            SecretString::from(format!("Basic {}", BASE64_STANDARD.encode(both)))
        });
        Ok(Self { host: target.host, port: target.port, authorization })
    }

    /// Where to connect.
    pub(crate) fn uri(&self) -> Result<Uri, Failure> {
        let uri = format!("http://{self}/").parse();
        uri.map_err(|_invalid| Failure::proxy("the proxy's name is not usable", &self.to_string()))
    }

    /// Has the proxy connect to `destination`, an address or a name with a port. Messages call it `authority`.
    pub(crate) async fn tunnel(
        &self,
        stream: &mut TcpStream,
        destination: &str,
        authority: &str,
    ) -> Result<(), Failure> {
        let lost = |_error: std::io::Error| Failure::proxy("the proxy closed the connection", authority);
        let mut request = format!("CONNECT {destination} HTTP/1.1\r\nhost: {destination}\r\n");
        if let Some(value) = &self.authorization {
            request.push_str("proxy-authorization: ");
            request.push_str(value.expose_secret());
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await.map_err(lost)?;

        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= HEAD_BYTES {
                return Err(Failure::proxy("the proxy's answer is too long", authority));
            }
            // One byte at a time, so that nothing of what follows is read; it happens once a connection.
            head.push(stream.read_u8().await.map_err(lost)?);
        }
        let status = std::str::from_utf8(&head).ok().and_then(|head| {
            let (version, rest) = head.split_once(' ')?;
            let status: u16 = rest.get(..3)?.parse().ok()?;
            version.starts_with("HTTP/1.").then_some(status)
        });
        match status {
            Some(200..300) => Ok(()),
            status => {
                tracing::warn!(proxy = %self, destination, status, "the proxy refused a connection");
                let reason = match status {
                    Some(407) => "the proxy wants other credentials (407)".to_owned(),
                    Some(status) => format!("the proxy refused the connection ({status})"),
                    None => "the proxy does not speak HTTP".to_owned(),
                };
                Err(Failure::proxy(reason, authority))
            }
        }
    }
}

/// `HOST:PORT`.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The bytes of a text with `%XX`; what is not such an escape stays as it is.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let escape = after.get(..2).filter(|_| *byte == b'%').and_then(|two| std::str::from_utf8(two).ok());
        match escape.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
