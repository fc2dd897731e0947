//! Calls that the host makes itself, to one origin: a registry, the platform, a health check, `talaria send`.
//!
//! Such a call has no grant, because nobody else's code makes it: the operator named the origin, in the configuration or
//! on the command line. It passes the same gates as a guest's call, with an access that allows every request to that origin
//! and nothing else, so the credentials that it carries reach no other server. By default the origin may be anywhere,
//! loopback and private networks included; [`OriginClient::public_only`] is for an origin that another server chose.
//!
//! A response that repeats the credentials is masked as for guests, unless [`OriginClient::unmasked`] says that reading them
//! is the point of the call.

use std::fmt;
use std::str::FromStr;

use secrecy::SecretString;

use crate::access::{Access, Bounds};
use crate::client::{Egress, Request, Response};
use crate::error::Error;
use crate::exchange::Exchange;
use crate::headers;
use crate::pattern::{HostPattern, Pattern};
use crate::secrets::InvalidSecret;
use crate::target::{Scheme, Target};

/// Scheme, host and port of a URL, normalised: two URLs have equal origins if and only if a call to either connects to
/// the same host and port in the same way.
///
/// ```
/// use talaria_egress::Origin;
///
/// let origin: Origin = "https://Example.com:443/v1/models?page=2".parse()?;
/// assert_eq!(origin.to_string(), "https://example.com");
/// # Ok::<(), talaria_egress::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    pub(crate) scheme: Scheme,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// A client for the host's own calls to one origin. Made by [`Egress::origin_client`].
#[derive(Debug, Clone)]
pub struct OriginClient {
    egress: Egress,
    access: Access,
    /// Headers of every request, with the name of a secret in place of its value.
    headers: Vec<(String, String)>,
    masked: bool,
}

// === impl Origin ===

impl Origin {
    /// The host: a name in lower case, or an address; an IPv6 address is in brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether the scheme is `https`.
    pub fn is_https(&self) -> bool {
        self.scheme == Scheme::Https
    }
}

/// Takes the origin of an absolute URL, whatever its path and query.
impl FromStr for Origin {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self, Error> {
        Target::parse("GET", url).map(|target| target.origin())
    }
}

/// `scheme://host:port`, without a port that the scheme implies.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        match self.port == self.scheme.default_port() {
            true => Ok(()),
            false => write!(f, ":{}", self.port),
        }
    }
}

// === impl OriginClient ===

impl OriginClient {
    /// For calls that `caller` makes to `origin`; the name is for messages and the log.
    pub(crate) fn new(egress: Egress, caller: &str, origin: &Origin) -> Self {
        let pattern = Pattern::everything_at(origin);
        let private = vec![HostPattern::from(&pattern)];
        let access =
            Access { executor: caller.into(), patterns: vec![pattern], private, ..Access::default() };
        Self { egress, access, headers: Vec::new(), masked: true }
    }

    /// Sends `authorization: Bearer TOKEN` with every request.
    ///
    /// # Errors
    /// If the token holds a line break or another control character.
    pub fn with_bearer(self, token: SecretString) -> Result<Self, InvalidSecret> {
        self.with_secret("authorization", "Bearer ", token)
    }

    /// Sends this value of `authorization` with every request, scheme included.
    ///
    /// # Errors
    /// If the value holds a line break or another control character.
    pub fn with_authorization(self, value: SecretString) -> Result<Self, InvalidSecret> {
        self.with_secret("authorization", "", value)
    }

    /// Sends a header whose value is a secret with every request.
    ///
    /// # Errors
    /// If the name is not that of a header that a request may set, or the value holds a control character.
    pub fn with_secret_header(self, name: &str, value: SecretString) -> Result<Self, Error> {
        headers::check_name(name)?;
        self.with_secret(name, "", value).map_err(|invalid| Error::invalid(invalid.to_string()))
    }

    /// The secret has the name of its header.
    fn with_secret(mut self, header: &str, before: &str, value: SecretString) -> Result<Self, InvalidSecret> {
        self.access.secrets.insert(header, value, self.access.patterns.clone())?;
        self.headers.push((header.to_owned(), format!("{before}{{secret:{header}}}")));
        Ok(self)
    }

    /// Replaces the [default bounds](Bounds::default) of each call.
    #[must_use]
    pub fn with_bounds(mut self, bounds: Bounds) -> Self {
        self.access.bounds = bounds;
        self
    }

    /// Rejects a name that leads to loopback or into a private network. An address in the URL itself is not checked:
    /// see [`Addresses::check`](crate::Addresses::check).
    #[must_use]
    pub fn public_only(mut self) -> Self {
        self.access.private.clear();
        self
    }

    /// Leaves the credentials in a response that repeats them, for servers that hand out the next credentials.
    #[must_use]
    pub fn unmasked(mut self) -> Self {
        self.masked = false;
        self
    }

    /// Makes a call and reads the whole response, as [`Egress::fetch`] does.
    ///
    /// # Errors
    /// As for a guest's call; a request to another origin is denied.
    pub async fn fetch(&self, request: Request) -> Result<Response, Error> {
        let request = self.prepare(request);
        self.egress.fetch_masked(&self.access, request, self.masked).await
    }

    /// Makes a call and returns once the response's headers have arrived, as [`Egress::open`] does.
    ///
    /// # Errors
    /// As for a guest's call; a request to another origin is denied.
    pub async fn open(&self, request: Request) -> Result<Exchange, Error> {
        let request = self.prepare(request);
        self.egress.open_masked(&self.access, request, self.masked).await
    }

    fn prepare(&self, mut request: Request) -> Request {
        request.headers.extend(self.headers.iter().cloned());
        request
    }
}
