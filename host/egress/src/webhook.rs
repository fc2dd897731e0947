//! Calls to webhooks, whose URLs come from remote callers and must be taken for hostile.
//!
//! Nobody granted these destinations, so the rule is about addresses: only hosts on the internet, unless the operator
//! allows private networks. It is enforced twice. [`Webhooks::check`] rejects a bad URL while its caller is there to correct
//! it. [`Webhooks::post`] checks the address of every new connection, because the name may point elsewhere by then. The
//! second check is the guarantee, the first a courtesy.
//!
//! A call is one POST, bounded as a whole. No redirect is followed, and nothing of the response is kept but its status and
//! `Retry-After`. The owner of the deliveries retries. The values of headers are secrets and appear in no error.
//!
//! Webhooks do not share connections with guests: the address rules differ, and a caller that registers many hosts must not
//! crowd the guests out. Idle connections are closed after seconds.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::HeaderMap;
use http::header::{self, HeaderName};
use secrecy::SecretString;
use talaria_redact::Values;
use tracing::field;

use crate::access::Bounds;
use crate::address::{Addresses, Special};
use crate::client::Config;
use crate::connect::literal;
use crate::error::Error;
use crate::exchange::{Deadline, Frames};
use crate::headers;
use crate::pool::Pool;
use crate::resolver::Resolver;
use crate::target::Target;

/// The longest delivery, from the lookup to the end of the response. 10 s: what senders of webhooks commonly wait.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes read of a response, only so that its connection can be reused. 64 KiB: above any reasonable response.
const ANSWER_BYTES: usize = 64 << 10;
/// The longest URL, in bytes. 2 KiB: it is stored with the task, and all browsers and proxies accept that much.
const URL_BYTES: usize = 2 * 1024;
/// The longest lookup at registration. 2 s: the caller is waiting.
const LOOKUP: Duration = Duration::from_secs(2);
/// The longest `Retry-After`. A day: a longer one amounts to a rejection.
const RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// Idle connections: enough for the events of one turn, not for a list of hosts that a caller made up.
const IDLE: Duration = Duration::from_secs(10);
const IDLE_PER_HOST: usize = 2;

/// The client for webhooks. Cheap to clone; all clones share the connections.
#[derive(Debug, Clone)]
pub struct Webhooks {
    pool: Pool,
    resolver: Resolver,
    timeout: Duration,
}

/// The response of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The status; never a 3xx, which is an error here.
    pub status: u16,
    /// How long to wait before the next attempt, at most a day.
    pub retry_after: Option<Duration>,
}

// === impl Answer ===

impl Answer {
    /// Whether the webhook accepted the delivery.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

// === impl Webhooks ===

impl Webhooks {
    /// Creates the client. With `private`, loopback and private networks are allowed too; metadata services, link-local
    /// and reserved addresses never are. Idle connections are kept for 10 s at most, whatever the configuration says, and no
    /// name is left to a proxy, because remote callers choose the names.
    pub fn new(config: Config, private: bool) -> Self {
        let addresses = if private { Addresses::Private } else { Addresses::Public };
        let resolver = Resolver::new(config.names.clone(), addresses);
        let config = Config {
            idle_timeout: config.idle_timeout.min(IDLE),
            idle_per_host: config.idle_per_host.min(IDLE_PER_HOST),
            proxies: config.proxies.resolving(false),
            ..config
        };
        Self { pool: Pool::new(config, resolver.clone()), resolver, timeout: TIMEOUT }
    }

    /// Replaces the bound of 10 s for a whole delivery.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Checks whether a caller may register this URL: `http` or `https`, at most 2 KiB, with a host, without user information
    /// or fragment, and with no address among those of its host that may not be called. A name that does not resolve within
    /// 2 s is accepted, because it may resolve later, and every delivery checks again.
    pub async fn check(&self, url: &str) -> Result<(), Error> {
        let target = parse(url)?;
        let found = match literal(&target.host) {
            Some(address) => vec![address],
            None => match tokio::time::timeout(LOOKUP, self.resolver.lookup(target.host.clone())).await {
                Ok(Ok(found)) => found,
                Ok(Err(_)) | Err(_) => return Ok(()),
            },
        };
        // Every address must be allowed: a name with one bad address is a mistake or an attack.
        for address in found {
            self.resolver.addresses().check(address).map_err(|special| {
                // The caller must not learn where a name leads inside; the operator may.
                tracing::warn!(url = %target, %address, "webhook URL denied");
                rejected(special, &target.host)
            })?;
        }
        Ok(())
    }

    /// Posts once. Every status but a 3xx is a response; the caller decides whether to retry. Every value in `headers` is
    /// treated as a secret.
    #[tracing::instrument(name = "webhook.post", skip_all, fields(url = field::Empty, status = field::Empty))]
    pub async fn post(
        &self,
        url: &str,
        headers: Vec<(HeaderName, SecretString)>,
        body: Bytes,
    ) -> Result<Answer, Error> {
        let deadline = Deadline::after(self.timeout);
        let target = parse(url)?;
        tracing::Span::current().record("url", field::display(&target));
        let headers = headers::secret(&Bounds::default(), headers)?;
        let (head, body) = self.pool.send(&target, headers, body, deadline).await?.into_parts();
        if head.status.is_redirection() {
            return Err(redirected(head.status.as_u16(), &head.headers, &target));
        }
        let authority = target.authority();
        // The head is enough: the rest of the response may be too long, late or incomplete.
        if let Ok(mut frames) = Frames::new(body, ANSWER_BYTES, authority.clone(), Values::default()) {
            while let Ok(Some(Ok(_))) = deadline.bound(frames.next(), &authority).await {}
        }
        Ok(Answer {
            status: head.status.as_u16(),
            retry_after: retry_after(&head.headers, SystemTime::now()),
        })
    }
}

fn parse(url: &str) -> Result<Target, Error> {
    if url.len() > URL_BYTES {
        return Err(Error::invalid(format!(
            "the webhook's URL is {} bytes long; at most {URL_BYTES} are allowed",
            url.len()
        )));
    }
    // Checked here because the parser's error is worded for guests, which can name secrets.
    let authority = url.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    if authority.is_some_and(|authority| authority.contains('@')) {
        return Err(Error::invalid(
            "the webhook's URL has user information before @; remove it and give the credentials apart from the URL",
        ));
    }
    Target::parse("POST", url)
}

fn rejected(special: Special, host: &str) -> Error {
    let fix = match special {
        Special::Loopback | Special::Private => "use a public address, or set push.allow_private = true",
        _ => "use a public address",
    };
    Error::denied(format!("a webhook may not be at {special} ({host}); {fix}"))
}

fn redirected(status: u16, headers: &HeaderMap, target: &Target) -> Error {
    let authority = target.authority();
    Error::denied(match redirect_target(headers, target) {
        Some(url) => format!(
            "the webhook answered {status} and points to {url}; redirects are not followed, register that URL \
             ({authority})"
        ),
        None => format!("the webhook answered {status}; redirects are not followed ({authority})"),
    })
}

/// Returns the URL that a redirect leads to, without its query; `None` if it is not a URL that may appear in a message.
fn redirect_target(headers: &HeaderMap, target: &Target) -> Option<String> {
    let location = headers.get(header::LOCATION)?.to_str().ok()?;
    let location = location.split('#').next().unwrap_or(location);
    let absolute = if location.starts_with("//") {
        format!("{}:{location}", target.scheme)
    } else if location.starts_with('/') {
        format!("{}://{}{location}", target.scheme, target.authority())
    } else {
        location.to_owned()
    };
    parse(&absolute).ok().map(|target| target.to_string())
}

/// Parses `Retry-After`, which is a number of seconds or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().expect("a header's value"))])
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_is_capped() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, seconds) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("18446744073709551615", Some(86_400)),
            ("Sat, 06 Nov 2094 08:49:37 GMT", Some(86_400)),
            ("99999999999999999999999", None),
            ("-1", None),
            ("soon", None),
            ("", None),
        ] {
            let wait = retry_after(&headers(header::RETRY_AFTER, text), now);
            assert_eq!(wait, seconds.map(Duration::from_secs), "{text:?}");
        }
    }

    #[test]
    fn an_error_names_the_target_of_a_redirect_without_its_query() {
        let target = Target::parse("POST", "https://hook.example:8443/in").expect("a target");
        for (location, url) in [
            ("http://127.0.0.1/x?token=abc#part", Some("http://127.0.0.1/x")),
            ("/new?token=abc", Some("https://hook.example:8443/new")),
            ("//other.example/y", Some("https://other.example/y")),
            ("ftp://other.example/y", None),
            ("relative", None),
            ("http://user:password@other.example/", None),
        ] {
            let led = redirect_target(&headers(header::LOCATION, location), &target);
            assert_eq!(led.as_deref(), url, "{location}");
        }
        assert_eq!(redirect_target(&HeaderMap::new(), &target), None);
    }
}
