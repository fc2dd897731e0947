//! The client of one registry: downloads manifests and layers, and fetches the token that the registry asks for.
//!
//! A 401 is answered with a token, or with user name and password, once for each request. Redirects are followed without
//! credentials, because the blob store behind a registry belongs to somebody else. Temporary failures are retried.
//! Credentials go only to the registry that they are configured for and to the token server that it names, over TLS unless
//! the registry itself is configured without.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use talaria_backoff::Backoff;
use talaria_egress::{Addresses, Bounds, Egress, ErrorKind, Exchange, Origin, Request};
use talaria_redact::Redactor;
use tokio::time::Instant;
use tracing::debug;

use crate::challenge::Challenge;
use crate::error::Error;
use crate::reference::Reference;
use crate::{Options, Progress};

/// Attempts at a request that fails temporarily.
const ATTEMPTS: u32 = 3;
/// The delays between them: half a second, then a second.
const RETRY: Backoff = Backoff::from_first(Duration::from_millis(500));
/// Responses on the way to one request's content: a challenge and some redirects.
const HOPS: usize = 6;
/// The largest response of a token server. Tokens are a few KiB.
const TOKEN_BYTES: usize = 256 << 10;
/// Bytes read at a time.
const CHUNK: usize = 1 << 20;
/// Progress reports for one download, beside the first one of 0 bytes.
const REPORTS: u64 = 10;

/// The client of a registry, for one pull.
pub(crate) struct Registry<'a> {
    reference: &'a Reference,
    client: &'a Egress,
    access: crate::Access,
    /// As in `https://ghcr.io`.
    origin: Origin,
    started: Instant,
    timeout: Duration,
    /// The value of `Authorization`, once the registry asked for it.
    authorization: Option<SecretString>,
}

/// Why a request failed.
enum Failed {
    /// The next attempt may succeed.
    Temporary(String),
    /// No attempt will succeed.
    Final(Box<Error>),
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

// === impl Registry ===

impl<'a> Registry<'a> {
    /// Fails if the registry's host cannot be called at all.
    pub(crate) fn new(reference: &'a Reference, options: &'a Options) -> Result<Self, talaria_egress::Error> {
        let access = options.registries.get(reference.registry()).cloned().unwrap_or_default();
        let origin = |scheme: &str| format!("{scheme}://{}", reference.host()).parse::<Origin>();
        let secure = origin("https")?;
        let is_plain = access.insecure || is_loopback(&secure);
        let origin = if is_plain { origin("http")? } else { secure };
        Ok(Self {
            reference,
            client: &options.client,
            access,
            origin,
            started: Instant::now(),
            timeout: options.timeout,
            authorization: None,
        })
    }

    /// Downloads what is at a path below the repository: at most `most` bytes, of which there are `size` if that is known.
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
        let mut retry = RETRY;
        loop {
            match self.once(&url, accept, most, size, report).await {
                Ok(bytes) => return Ok(bytes),
                Err(Failed::Final(error)) => return Err(*error),
                Err(Failed::Temporary(why)) if retry.attempts() + 1 >= ATTEMPTS => {
                    return Err(Error::Unreachable { reference: self.reference.clone(), why });
                }
                Err(Failed::Temporary(why)) => debug!(url, why, "retrying download"),
            }
            tokio::time::sleep(retry.next_delay()).await;
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
        let mut exchange = self.respond(url, accept, most).await?;
        let mut bytes = BytesMut::new();
        let mut reported = 0;
        let mut report = |received: u64| {
            if let Some(total) = size.filter(|total| *total > 0) {
                let step = received * REPORTS / total;
                if step > reported || received == 0 {
                    reported = step;
                    report(Progress { received, total });
                }
            }
        };
        report(0);
        while let Some(chunk) = exchange.read(CHUNK).await.map_err(|error| self.failed(&error))? {
            bytes.extend_from_slice(&chunk);
            report(bytes.len() as u64);
        }
        Ok(bytes.freeze())
    }

    /// Returns the response with the content, after challenges and redirects.
    async fn respond(&mut self, url: &str, accept: &str, most: usize) -> Result<Exchange, Failed> {
        let mut url = url.to_owned();
        let mut challenged = false;
        for _ in 0..HOPS {
            let origin = self.origin_of(&url)?;
            let is_own = origin == self.origin;
            let authorization = self.authorization.clone().filter(|_| is_own);
            let exchange = self.get(&url, accept, most, authorization).await?;
            let answered = |status: u16| format!("{origin} answered {status}");
            match exchange.status() {
                200 => return Ok(exchange),
                301 | 302 | 303 | 307 | 308 => {
                    url = self.redirected(&origin, header(&exchange, "location"))?
                }
                401 if is_own && !challenged => {
                    challenged = true;
                    self.authorize(&exchange).await?;
                }
                401 | 403 if is_own => return Err(self.denied("it rejects the credentials")),
                404 => return Err(Failed::ended(Error::NotFound { reference: self.reference.clone() })),
                // The next attempt gets a new signed URL in place of one that expired.
                status @ (401 | 403 | 429 | 500..) => return Err(Failed::Temporary(answered(status))),
                status => return Err(self.unusable(answered(status))),
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
        let origin = self.origin_of(url)?;
        let timeout = self.timeout.saturating_sub(self.started.elapsed());
        let bounds = Bounds { timeout, stream_bytes: most, response_body: most, ..Bounds::default() };
        // A token server may hand out the credentials that it received.
        let mut client = self.client.origin_client("oci", &origin).with_bounds(bounds).unmasked();
        // The operator chose the registry, wherever it is, but not the servers that it names.
        if origin != self.origin {
            self.check_address(&origin)?;
            client = client.public_only();
        }
        if let Some(value) = authorization {
            let invalid = |_| self.denied("the credentials hold a line break or control character");
            client = client.with_authorization(value).map_err(invalid)?;
        }
        let headers = vec![("accept".to_owned(), accept.to_owned())];
        let request = Request { method: "GET".into(), url: url.to_owned(), headers, ..Request::default() };
        client.open(request).await.map_err(|error| self.failed(&error))
    }

    fn origin_of(&self, url: &str) -> Result<Origin, Failed> {
        url.parse()
            .map_err(|_: talaria_egress::Error| self.unusable("it names an address that cannot be called"))
    }

    /// Rejects a literal address that a registry may not send us to; egress itself checks only where names lead. A registry
    /// on loopback may name others there.
    fn check_address(&self, origin: &Origin) -> Result<(), Failed> {
        let reach = match is_loopback(&self.origin) {
            true => Addresses::Private,
            false => Addresses::Public,
        };
        let literal = address(origin);
        literal
            .map_or(Ok(()), |address| reach.check(address))
            .map_err(|special| self.unusable(format!("it leads to {special} ({origin})")))
    }

    fn redirected(&self, from: &Origin, location: Option<&str>) -> Result<String, Failed> {
        let location = location.unwrap_or_default();
        let to = match location.starts_with('/') && !location.starts_with("//") {
            true => format!("{from}{location}"),
            false => location.to_owned(),
        };
        match to.starts_with("https://") || (to.starts_with("http://") && self.is_plain()) {
            true => Ok(to),
            false => Err(self.unusable("it redirects to an address without TLS, or to none")),
        }
    }

    /// Meets the challenge of a 401: with a token, or with user name and password.
    async fn authorize(&mut self, refused: &Exchange) -> Result<(), Failed> {
        let headers = refused.headers().iter().filter(|(name, _)| name == "www-authenticate");
        let mut challenges: Vec<Challenge> =
            headers.filter_map(|(_, value)| Challenge::read(value)).collect();
        // Prefer a token, which allows less than a password.
        challenges.sort_by_key(|challenge| matches!(challenge, Challenge::Basic));
        let authorization = match challenges.into_iter().next() {
            Some(Challenge::Bearer { realm, service, scope }) => {
                let token = self.token(&realm, service, scope).await?;
                format!("Bearer {}", token.expose_secret())
            }
            Some(Challenge::Basic) => match self.basic() {
                Some(basic) => basic,
                None => return Err(self.denied("it asks for a user name and a password")),
            },
            None => return Err(self.denied("it asks for a kind of authentication that is not supported")),
        };
        self.authorization = Some(authorization.into());
        Ok(())
    }

    fn basic(&self) -> Option<String> {
        let credentials = self.access.credentials.as_ref()?;
        let pair = format!("{}:{}", credentials.username, credentials.token.expose_secret());
        Some(format!("Basic {}", STANDARD.encode(pair)))
    }

    /// Fetches a token from the server that the registry names.
    async fn token(
        &self,
        realm: &str,
        service: Option<String>,
        scope: Option<String>,
    ) -> Result<SecretString, Failed> {
        if !(realm.starts_with("https://") || (realm.starts_with("http://") && self.is_plain())) {
            return Err(self.denied("it names a token server without TLS"));
        }
        let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.reference.name()));
        let mut url = realm.to_owned();
        let parameters = [("service", service), ("scope", Some(scope))];
        for (key, value) in parameters.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(&format!("{key}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC)));
        }
        let basic = self.basic().map(SecretString::from);
        let has_credentials = basic.is_some();
        let mut exchange = self.get(&url, "application/json", TOKEN_BYTES, basic).await?;
        match exchange.status() {
            200 => {}
            status @ (429 | 500..) => {
                return Err(Failed::Temporary(format!("its token server answered {status}")));
            }
            _ if has_credentials => return Err(self.denied("its token server rejects the credentials")),
            _ => return Err(self.denied("its token server asks for credentials")),
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = exchange.read(CHUNK).await.map_err(|error| self.failed(&error))? {
            body.extend_from_slice(&chunk);
        }
        let token: Option<Token> = serde_json::from_slice(&body).ok();
        token
            .and_then(|token| token.token.or(token.access_token))
            .map(|token| {
                Redactor::process().learn([&token]);
                SecretString::from(token)
            })
            .ok_or_else(|| self.denied("its token server returned no token"))
    }

    fn is_plain(&self) -> bool {
        !self.origin.is_https()
    }

    fn failed(&self, error: &talaria_egress::Error) -> Failed {
        let why = error.message().to_owned();
        match error.kind() {
            ErrorKind::Dns | ErrorKind::Connect | ErrorKind::TimedOut | ErrorKind::Protocol => {
                Failed::Temporary(why)
            }
            ErrorKind::TooLarge => {
                let what = "the registry sends more than it announced, or than a manifest may have";
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

impl Failed {
    fn ended(error: Error) -> Self {
        Self::Final(Box::new(error))
    }
}

fn header<'a>(exchange: &'a Exchange, name: &str) -> Option<&'a str> {
    exchange.headers().iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Whether an origin is this machine, by its address or as `localhost`.
fn is_loopback(origin: &Origin) -> bool {
    address(origin).is_some_and(|address| address.is_loopback())
}

/// The address of an origin that has one in place of a name.
fn address(origin: &Origin) -> Option<IpAddr> {
    match origin.host().trim_start_matches('[').trim_end_matches(']') {
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        host => host.parse().ok(),
    }
}
