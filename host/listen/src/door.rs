//! The door of every server: which requests come in at all.
//!
//! A browser reaches every port of the machine that it runs on, and sends there what any web page tells it to. Two rules
//! keep pages out, before a handler sees the request or a byte of its body:
//!
//! - **The host.** A server that asks nobody for a token, on loopback, answers only to an IP address, to `localhost` and to
//!   the names that its operator configured. A page whose own name was pointed at this machine (DNS rebinding) has that name
//!   in `Host`, and its browser takes every answer for one of its own site. A server that asks for tokens, or that others
//!   call over the network by names that it cannot know, answers to any ([`Door::any_host`]).
//! - **The origin.** A request of another site's page is refused on every server: its `Origin` is neither the host of the
//!   request nor configured, or it has no `Origin` and its `Sec-Fetch-Site` is neither `none` nor `same-origin`. Another
//!   port of this machine is `same-site`, and another site to us. `null` is an origin of nobody. A link that is followed in a
//!   browser's window is let in: only the person in front of it can read the answer, and a GET changes nothing.
//!
//! Programs send no `Origin` and no `Sec-Fetch-Site`, so they notice nothing. A refusal costs a comparison of headers; it is
//! counted, and logged once a minute at most. Whether a body has the right media type is for the handler to say.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::Full;
use tracing::warn;

use crate::respond::error;

/// Decides which requests a server answers. `B` is the body of its responses.
pub struct Door<B> {
    /// The names that requests may use beside addresses and `localhost`; `None` if any name will do.
    names: Option<Vec<String>>,
    /// The origins of pages that may call, as browsers send them.
    origins: Vec<String>,
    advice: Advice,
    shape: fn(&Refusal<'_>) -> Response<B>,
    refused: Arc<AtomicU64>,
    logged: Mutex<Option<Instant>>,
}

/// What an operator can do about a refusal. Part of what the caller reads.
#[derive(Debug, Clone, Copy)]
pub struct Advice {
    /// How to let requests in that use another name.
    pub host: &'static str,
    /// How to let pages of another site in.
    pub origin: &'static str,
}

/// A request that is not answered, and why.
#[derive(Debug)]
pub struct Refusal<'r> {
    /// The request's method.
    pub method: &'r Method,
    /// Its version of HTTP.
    pub version: Version,
    /// Its address.
    pub uri: &'r Uri,
    /// Its headers.
    pub headers: &'r HeaderMap,
    /// The status of the response: 400 or 403.
    pub status: StatusCode,
    /// The reason, for the caller.
    pub message: String,
}

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stranger {
    /// It has no host, or several.
    NoHost,
    Host,
    Origin,
}

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The shortest time between two log lines about refusals.
const LOG_EVERY: Duration = Duration::from_secs(60);

// === impl Door ===

impl<B> Door<B> {
    /// A door that answers to addresses, to `localhost` and to `names`. `shape` builds the response to a refused request.
    pub fn local(
        names: impl IntoIterator<Item = String>,
        advice: Advice,
        shape: fn(&Refusal<'_>) -> Response<B>,
    ) -> Self {
        Self {
            names: Some(names.into_iter().collect()),
            origins: Vec::new(),
            advice,
            shape,
            refused: Arc::default(),
            logged: Mutex::default(),
        }
    }

    /// Answers to any host.
    #[must_use]
    pub fn any_host(self) -> Self {
        Self { names: None, ..self }
    }

    /// Lets pages of these origins in.
    #[must_use]
    pub fn origins(self, origins: impl IntoIterator<Item = String>) -> Self {
        Self { origins: origins.into_iter().collect(), ..self }
    }

    /// Counts refusals here.
    #[must_use]
    pub fn counted(self, refused: Arc<AtomicU64>) -> Self {
        Self { refused, ..self }
    }

    /// The response to a request that is not let in; `None` if it is.
    pub(crate) fn refuse<T>(&self, request: &Request<T>) -> Option<Response<B>> {
        let stranger = self.stranger(request)?;
        let (status, message) = match stranger {
            Stranger::NoHost => (
                StatusCode::BAD_REQUEST,
                "the request must name its host, once: the Host header is missing, given twice or contradicts the address"
                    .to_owned(),
            ),
            Stranger::Host => {
                let advice = self.advice.host;
                (
                    StatusCode::FORBIDDEN,
                    format!("this server answers to IP addresses, to localhost and to its own name; {advice}"),
                )
            }
            Stranger::Origin => (
                StatusCode::FORBIDDEN,
                format!("a page of another site may not call this server; {}", self.advice.origin),
            ),
        };
        self.note(stranger);
        let (method, version) = (request.method(), request.version());
        let (uri, headers) = (request.uri(), request.headers());
        Some((self.shape)(&Refusal { method, version, uri, headers, status, message }))
    }

    fn stranger<T>(&self, request: &Request<T>) -> Option<Stranger> {
        let named = match named(request) {
            Ok(named @ Some(_)) => named,
            // HTTP/1.0 knows no host, and no browser speaks it.
            Ok(None) if request.version() == Version::HTTP_10 => None,
            Ok(None) | Err(()) => return Some(Stranger::NoHost),
        };
        if let (Some(names), Some(named)) = (&self.names, named) {
            let is_own = |host: &str| names.iter().any(|name| name.eq_ignore_ascii_case(host));
            if !host(named).is_some_and(|host| is_local(host) || is_own(host)) {
                return Some(Stranger::Host);
            }
        }
        self.is_of_another_site(request, named).then_some(Stranger::Origin)
    }

    /// Whether a page of another site makes this request.
    fn is_of_another_site<T>(&self, request: &Request<T>, named: Option<&str>) -> bool {
        let headers = request.headers();
        match only(headers, &ORIGIN) {
            Ok(None) => {}
            Ok(Some(origin)) => {
                let is_own = named.is_some_and(|named| is_origin_of(origin, named));
                return !(is_own || self.origins.iter().any(|known| known == origin));
            }
            Err(()) => return true,
        }
        match only(headers, &FETCH_SITE) {
            Ok(None | Some("none" | "same-origin")) => false,
            _ => !is_followed_link(request),
        }
    }

    /// Counts a refusal, and logs it if the last log line is old enough.
    fn note(&self, why: Stranger) {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_some_and(|logged| logged.elapsed() < LOG_EVERY) {
            return;
        }
        *logged = Some(Instant::now());
        let (why, fix) = match why {
            Stranger::NoHost => ("it names no host, or several", ""),
            Stranger::Host => ("its host is another name than this server's", self.advice.host),
            Stranger::Origin => ("a page of another site sent it", self.advice.origin),
        };
        warn!(why, fix, refused, "request refused at the door");
    }
}

// === impl Refusal ===

impl Refusal<'_> {
    /// The response in the form that A2A uses outside of JSON-RPC.
    #[must_use]
    pub fn response(&self) -> Response<Full<Bytes>> {
        error(self.status, self.name(), &self.message)
    }

    /// The name of the status in `google.rpc.Code`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.status == StatusCode::FORBIDDEN { "PERMISSION_DENIED" } else { "INVALID_ARGUMENT" }
    }
}

/// The host and port that a request names, in its address or in `Host`. An error if it names two.
fn named<T>(request: &Request<T>) -> Result<Option<&str>, ()> {
    let host = only(request.headers(), &HOST)?;
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    match (authority, host) {
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => Err(()),
        (authority, host) => Ok(authority.or(host)),
    }
}

/// The value of a header; an error if it occurs twice or is not text.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

/// The host of a host with an optional port. Brackets stay around an IPv6 address.
fn host(authority: &str) -> Option<&str> {
    let end = if authority.starts_with('[') {
        authority.find(']')? + 1
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, port) = authority.split_at_checked(end)?;
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(host)
}

/// Whether a host needs no name server.
fn is_local(host: &str) -> bool {
    let is_v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    host.eq_ignore_ascii_case("localhost") || is_v6.unwrap_or(host).parse::<IpAddr>().is_ok()
}

/// Whether an origin is that of a page from the host that the request names. Browsers omit the default port of a scheme.
fn is_origin_of(origin: &str, named: &str) -> bool {
    let own = |(scheme, authority): (&str, &str)| {
        let port = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => return false,
        };
        let named = named.strip_suffix(port).unwrap_or(named);
        !named.is_empty() && authority.eq_ignore_ascii_case(named)
    };
    origin.split_once("://").is_some_and(own)
}

/// Whether a browser follows a link in a window of its own.
fn is_followed_link<T>(request: &Request<T>) -> bool {
    let says = |name: &HeaderName, value: &'static str| {
        request.headers().get(name) == Some(&HeaderValue::from_static(value))
    };
    matches!(*request.method(), Method::GET | Method::HEAD)
        && says(&FETCH_MODE, "navigate")
        && says(&FETCH_DEST, "document")
}

#[cfg(test)]
mod tests;
