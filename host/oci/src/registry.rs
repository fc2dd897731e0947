//! Asking a registry: three kinds of GET, with whatever it wants first.
//!
//! A 401 is answered with a token, or with name and password, once for each request; a redirect is followed without
//! them, since the store behind a registry is somebody else's; what fails in passing is tried again. Credentials go to the
//! registry that they are configured for and to the server that it names for tokens, over TLS unless the registry is spoken
//! to without.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use talaria_egress::{
    Addresses, Bounds, Egress, ErrorKind, Exchange, HostPattern, Pattern, Request, Secrets,
};
use tokio::time::Instant;
use tracing::debug;

use crate::challenge::Challenge;
use crate::error::Error;
use crate::reference::Reference;
use crate::{Options, Progress};

/// How often a request is made that fails in passing.
const TRIES: usize = 3;
/// The pause after the first; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// Answers on the way to one request's content: a challenge and some redirects.
const HOPS: usize = 6;
/// The largest answer of a token server. Tokens are a few KiB.
const TOKEN_BYTES: usize = 256 << 10;
/// What is read at once.
const CHUNK: usize = 1 << 20;
/// How often progress is told.
const REPORTS: u64 = 10;

/// A registry, for one pull.
pub(crate) struct Registry<'a> {
    reference: &'a Reference,
    client: &'a Egress,
    access: crate::Access,
    /// `https://ghcr.io`
    origin: String,
    begun: Instant,
    timeout: Duration,
    /// The value of `Authorization`, once it was asked for.
    authorization: Option<SecretString>,
}

/// Why a request failed.
enum Failed {
    /// The next try may succeed.
    Passing(String),
    /// It will not.
    Final(Box<Error>),
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

// === impl Registry ===

impl<'a> Registry<'a> {
    pub(crate) fn new(reference: &'a Reference, options: &'a Options) -> Self {
        let access = options.registries.get(reference.registry()).cloned().unwrap_or_default();
        let host = reference.host();
        let scheme = if access.insecure || is_loopback(host) { "http" } else { "https" };
        Self {
            reference,
            client: &options.client,
            access,
            origin: format!("{scheme}://{host}"),
            begun: Instant::now(),
            timeout: options.timeout,
            authorization: None,
        }
    }

    /// What is at a path below the repository, at most `most` bytes; of `size`, where that is known.
    pub(crate) async fn content(
        &mut self,
        path: &str,
        accept: &str,
        most: u64,
        size: Option<u64>,
        report: &(dyn Fn(Progress) + Sync),
    ) -> Result<Bytes, Error> {
        let url = format!("{}/v2/{}/{path}", self.origin, self.reference.name());
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut pause = PAUSE;
        let mut tries = 1;
        loop {
            match self.once(&url, accept, most, size, report).await {
                Ok(bytes) => return Ok(bytes),
                Err(Failed::Final(error)) => return Err(*error),
                Err(Failed::Passing(why)) if tries >= TRIES => {
                    return Err(Error::Unreachable { reference: self.reference.clone(), why });
                }
                Err(Failed::Passing(why)) => debug!(url, why, "pulling again"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            tries += 1;
        }
    }

    async fn once(
        &mut self,
        url: &str,
        accept: &str,
        most: usize,
        size: Option<u64>,
        report: &(dyn Fn(Progress) + Sync),
    ) -> Result<Bytes, Failed> {
        let mut exchange = self.answer(url, accept, most).await?;
        let mut bytes = BytesMut::new();
        let mut told = 0;
        let mut tell = |received: u64| {
            if let Some(total) = size.filter(|total| *total > 0) {
                let step = received * REPORTS / total;
                if step > told || received == 0 {
                    told = step;
                    report(Progress { received, total });
                }
            }
        };
        tell(0);
        while let Some(chunk) = exchange.read(CHUNK).await.map_err(|error| self.failed(&error))? {
            bytes.extend_from_slice(&chunk);
            tell(bytes.len() as u64);
        }
        Ok(bytes.freeze())
    }

    /// The answer with the content.
    async fn answer(&mut self, url: &str, accept: &str, most: usize) -> Result<Exchange, Failed> {
        let mut url = url.to_owned();
        let mut challenged = false;
        for _ in 0..HOPS {
            let is_own = origin(&url) == Some(self.origin.as_str());
            let authorization = self.authorization.clone().filter(|_| is_own);
            let exchange = self.get(&url, accept, most, authorization).await?;
            let said = |status: u16| format!("{} answered {status}", origin(&url).unwrap_or_default());
            match exchange.status() {
                200 => return Ok(exchange),
                301 | 302 | 303 | 307 | 308 => url = self.redirected(&url, header(&exchange, "location"))?,
                401 if is_own && !challenged => {
                    challenged = true;
                    self.authorize(&exchange).await?;
                }
                401 | 403 if is_own => return Err(self.denied("it does not accept who asks")),
                404 => return Err(Failed::ended(Error::NotFound { reference: self.reference.clone() })),
                // A signed address that ran out is made anew with the next try.
                status @ (401 | 403 | 429 | 500..) => return Err(Failed::Passing(said(status))),
                status => return Err(self.unusable(said(status))),
            }
        }
        Err(self.unusable(format!("more than {HOPS} redirects")))
    }

    async fn get(
        &self,
        url: &str,
        accept: &str,
        most: usize,
        authorization: Option<SecretString>,
    ) -> Result<Exchange, Failed> {
        let bounds = Bounds { stream_bytes: most, response_body: most, ..Bounds::default() };
        let access = self.grant(url, authorization, bounds)?;
        let mut headers = vec![("accept".to_owned(), accept.to_owned())];
        if access.secrets.is_set(AUTHORIZATION) {
            headers.push(("authorization".to_owned(), format!("{{secret:{AUTHORIZATION}}}")));
        }
        let request = Request { method: "GET".into(), url: url.to_owned(), headers, ..Request::default() };
        self.client.open(&access, request).await.map_err(|error| self.failed(&error))
    }

    /// What egress needs to know for one request to this address.
    fn grant(
        &self,
        url: &str,
        authorization: Option<SecretString>,
        bounds: Bounds,
    ) -> Result<talaria_egress::Access, Failed> {
        let bad = || self.unusable("it names an address that cannot be called");
        let pattern = format!("GET {}/*", origin(url).ok_or_else(bad)?);
        let patterns: Vec<Pattern> = vec![pattern.parse().map_err(|_| bad())?];
        let mut secrets = Secrets::new();
        if let Some(value) = authorization {
            let taken = secrets.insert(AUTHORIZATION, value, patterns.clone());
            taken.map_err(|_| self.denied("the credentials hold a line break or control character"))?;
        }
        let timeout = self.timeout.saturating_sub(self.begun.elapsed());
        let bounds = Bounds { timeout, ..bounds };
        // The operator named the registry, wherever it is; where it points to is another matter.
        let is_own = origin(url) == Some(self.origin.as_str());
        if !is_own {
            self.judge(url)?;
        }
        let private = match is_own {
            true => patterns.iter().map(HostPattern::from).collect(),
            false => Vec::new(),
        };
        Ok(talaria_egress::Access {
            executor: "oci".into(),
            patterns,
            private,
            secrets,
            // A server for tokens may give out what it was shown.
            is_host: true,
            bounds,
            ..Default::default()
        })
    }

    /// Refuses an address that a registry may not send us to. Egress judges where names lead, and takes an address that is
    /// spelled out for the operator's word, which this is not. A registry on this machine may name its neighbours.
    fn judge(&self, url: &str) -> Result<(), Failed> {
        let reach = match is_loopback(self.reference.host()) {
            true => Addresses::Private,
            false => Addresses::Public,
        };
        let spelled_out = origin(url).and_then(|origin| address(origin.split_once("://")?.1));
        spelled_out.map_or(Ok(()), |address| reach.check(address)).map_err(|special| {
            self.unusable(format!("it leads to {special} ({})", origin(url).unwrap_or_default()))
        })
    }

    fn redirected(&self, from: &str, location: Option<&str>) -> Result<String, Failed> {
        let location = location.unwrap_or_default();
        let to = match location.starts_with('/') && !location.starts_with("//") {
            true => format!("{}{location}", origin(from).unwrap_or_default()),
            false => location.to_owned(),
        };
        match to.starts_with("https://") || (to.starts_with("http://") && self.is_plain()) {
            true => Ok(to),
            false => Err(self.unusable("it redirects to an address without TLS, or to none")),
        }
    }

    /// Gets what the registry asks for.
    async fn authorize(&mut self, refused: &Exchange) -> Result<(), Failed> {
        let headers = refused.headers().iter().filter(|(name, _)| name == "www-authenticate");
        let mut challenges: Vec<Challenge> =
            headers.filter_map(|(_, value)| Challenge::read(value)).collect();
        // A token allows less than a password.
        challenges.sort_by_key(|challenge| matches!(challenge, Challenge::Basic));
        let authorization = match challenges.into_iter().next() {
            Some(Challenge::Bearer { realm, service, scope }) => {
                let token = self.token(&realm, service, scope).await?;
                format!("Bearer {}", token.expose_secret())
            }
            Some(Challenge::Basic) => match self.basic() {
                Some(basic) => basic,
                None => return Err(self.denied("it asks for a name and a password")),
            },
            None => return Err(self.denied("it asks for what is not known here")),
        };
        self.authorization = Some(authorization.into());
        Ok(())
    }

    fn basic(&self) -> Option<String> {
        let credentials = self.access.credentials.as_ref()?;
        let pair = format!("{}:{}", credentials.username, credentials.token.expose_secret());
        Some(format!("Basic {}", STANDARD.encode(pair)))
    }

    /// A token from the server that the registry names.
    async fn token(
        &self,
        realm: &str,
        service: Option<String>,
        scope: Option<String>,
    ) -> Result<SecretString, Failed> {
        if !(realm.starts_with("https://") || (realm.starts_with("http://") && self.is_plain())) {
            return Err(self.denied("it names a server for tokens without TLS"));
        }
        let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.reference.name()));
        let mut url = realm.to_owned();
        let parameters = [("service", service), ("scope", Some(scope))];
        for (key, value) in parameters.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(&format!("{key}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC)));
        }
        let basic = self.basic().map(SecretString::from);
        let is_known = basic.is_some();
        let mut exchange = self.get(&url, "application/json", TOKEN_BYTES, basic).await?;
        match exchange.status() {
            200 => {}
            status @ (429 | 500..) => {
                return Err(Failed::Passing(format!("its server for tokens answered {status}")));
            }
            _ if is_known => return Err(self.denied("its server for tokens does not accept the credentials")),
            _ => return Err(self.denied("its server for tokens asks for credentials")),
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = exchange.read(CHUNK).await.map_err(|error| self.failed(&error))? {
            body.extend_from_slice(&chunk);
        }
        let token: Option<Token> = serde_json::from_slice(&body).ok();
        token
            .and_then(|token| token.token.or(token.access_token))
            .map(SecretString::from)
            .ok_or_else(|| self.denied("its server for tokens gives none"))
    }

    fn is_plain(&self) -> bool {
        self.origin.starts_with("http://")
    }

    fn failed(&self, error: &talaria_egress::Error) -> Failed {
        let why = error.message().to_owned();
        match error.kind() {
            ErrorKind::Dns | ErrorKind::Connect | ErrorKind::TimedOut | ErrorKind::Protocol => {
                Failed::Passing(why)
            }
            ErrorKind::TooLarge => {
                let what = "the registry sends more than it says, or than a manifest may have";
                Failed::ended(Error::Odd { reference: self.reference.clone(), what: what.into() })
            }
            ErrorKind::Denied | ErrorKind::InvalidRequest | ErrorKind::Tls => self.unusable(why),
        }
    }

    fn denied(&self, why: &str) -> Failed {
        Failed::ended(Error::Denied { reference: self.reference.clone(), why: why.to_owned() })
    }

    fn unusable(&self, why: impl Into<String>) -> Failed {
        Failed::ended(Error::Unreachable { reference: self.reference.clone(), why: why.into() })
    }
}

/// The name under which egress knows what to fill in.
const AUTHORIZATION: &str = "AUTHORIZATION";

impl Failed {
    fn ended(error: Error) -> Self {
        Self::Final(Box::new(error))
    }
}

/// `https://host:port` of an address.
fn origin(url: &str) -> Option<&str> {
    let start = url.find("://")? + 3;
    let end = url.get(start..)?.find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    url.get(..end)
}

fn header<'a>(exchange: &'a Exchange, name: &str) -> Option<&'a str> {
    exchange.headers().iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Whether a host, with or without a port, is this machine.
fn is_loopback(authority: &str) -> bool {
    address(authority).is_some_and(|address| address.is_loopback())
}

/// The address that an authority spells out.
fn address(authority: &str) -> Option<IpAddr> {
    let authority: http::uri::Authority = authority.parse().ok()?;
    match authority.host().trim_start_matches('[').trim_end_matches(']') {
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        name => name.parse().ok(),
    }
}
