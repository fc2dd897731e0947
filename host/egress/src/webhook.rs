//! Calls to webhooks, whose URLs come from remote callers and are hostile.
//!
//! Nobody granted these destinations, so the rule is about addresses: only hosts on the internet, unless the operator
//! allows private networks. It is kept twice. [`Webhooks::check`] refuses a bad URL while its caller is there to
//! correct it. [`Webhooks::post`] judges again whatever a new connection is made to, since a name can point elsewhere by
//! then; that one is the guarantee, the other is a courtesy.
//!
//! A call is one POST: bounded as a whole, no redirect followed, nothing of the answer kept but its status and how long to
//! stay away. Retries belong to who keeps the deliveries. The values of headers are secrets and are in no error.
//!
//! The connections are not the guests': they were made under another rule, and a caller that registers many hosts must
//! not crowd them out. Unused ones go after seconds.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::HeaderMap;
use http::header::{self, HeaderName};
use secrecy::SecretString;
use tracing::field;

use crate::access::Bounds;
use crate::address::{Addresses, Special};
use crate::client::Config;
use crate::connect::literal;
use crate::echo::Known;
use crate::error::Error;
use crate::exchange::{Deadline, Frames};
use crate::headers;
use crate::names::Resolver;
use crate::pool::Pool;
use crate::target::Target;

/// A whole delivery, from the name to the end of the answer. 10 s: what senders of webhooks commonly wait.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What is read of an answer, only so that its connection can be used again. 64 KiB: above any polite answer.
const ANSWER_BYTES: usize = 64 << 10;
/// The longest URL, in bytes. 2 KiB: it is kept with the task, and what browsers and proxies all take.
const URL_BYTES: usize = 2 * 1024;
/// How long a registration waits for a name. 2 s: a caller is waiting too.
const LOOKUP: Duration = Duration::from_secs(2);
/// The longest that an answer may ask to stay away. A day: what is longer is a refusal.
const RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// Unused connections: enough for the events of one turn, not for a list of hosts that a caller made up.
const IDLE: Duration = Duration::from_secs(10);
const IDLE_PER_HOST: usize = 2;

/// The client for webhooks. Cheap to clone; all clones share the connections.
#[derive(Debug, Clone)]
pub struct Webhooks {
    pool: Pool,
    resolver: Resolver,
    timeout: Duration,
}

/// What a webhook answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The status; never a 3xx, which is an error here.
    pub status: u16,
    /// How long it wants to be left alone, at most a day.
    pub retry_after: Option<Duration>,
}

// === impl Answer ===

impl Answer {
    /// Whether the webhook took it.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

// === impl Webhooks ===

impl Webhooks {
    /// Makes the client. With `private`, loopback and private networks are allowed too; metadata services, link-local
    /// and reserved addresses never are. Unused connections are kept for 10 s at most, whatever the configuration says.
    pub fn new(config: Config, private: bool) -> Self {
        let addresses = if private { Addresses::Private } else { Addresses::Public };
        let resolver = Resolver::new(config.names.clone(), addresses);
        let config = Config {
            idle_timeout: config.idle_timeout.min(IDLE),
            idle_per_host: config.idle_per_host.min(IDLE_PER_HOST),
            ..config
        };
        Self { pool: Pool::new(config, resolver.clone()), resolver, timeout: TIMEOUT }
    }

    /// The same client with another bound for a whole delivery than 10 s.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Whether a caller may register this URL: `http` or `https`, at most 2 KiB, a host, neither user information nor a
    /// fragment, and no address among those of its host that may not be called. A name that does not resolve within 2 s
    /// is accepted, since it may later, and a delivery judges again.
    pub async fn check(&self, url: &str) -> Result<(), Error> {
        let target = parse(url)?;
        let found = match literal(&target.host) {
            Some(address) => vec![address],
            None => match tokio::time::timeout(LOOKUP, self.resolver.lookup(target.host.clone())).await {
                Ok(Ok(found)) => found,
                Ok(Err(_)) | Err(_) => return Ok(()),
            },
        };
        // All of them: a name with one bad address is a mistake or an attack, and neither should be waited for.
        for address in found {
            self.resolver.addresses().check(address).map_err(|special| {
                // Where a name leads inside is the operator's to know, not the caller's.
                tracing::warn!(url = %target, %address, "webhook denied");
                refused(special, &target.host)
            })?;
        }
        Ok(())
    }

    /// Posts once. An answer is any status but a 3xx; whether to try again is the caller's decision. Every value among
    /// `headers` is treated as a secret.
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
        // An answer that is longer, late or cut is an answer still: it was understood at its head.
        if let Ok(mut frames) = Frames::new(body, ANSWER_BYTES, authority.clone(), Known::default()) {
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
    // Said here because the words of the parser are for guests, who have secrets to name.
    let authority = url.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    if authority.is_some_and(|authority| authority.contains('@')) {
        return Err(Error::invalid(
            "the webhook's URL has user information before @; remove it and give the credentials apart from the URL",
        ));
    }
    Target::parse("POST", url)
}

fn refused(special: Special, host: &str) -> Error {
    let fix = match special {
        Special::Loopback | Special::Private => "use a public address, or set push.allow_private = true",
        _ => "use a public address",
    };
    Error::denied(format!("a webhook may not be at {special} ({host}); {fix}"))
}

fn redirected(status: u16, headers: &HeaderMap, target: &Target) -> Error {
    let authority = target.authority();
    Error::denied(match pointed_to(headers, target) {
        Some(url) => format!(
            "the webhook answered {status} and points to {url}; redirects are not followed, register that URL \
             ({authority})"
        ),
        None => format!("the webhook answered {status}; redirects are not followed ({authority})"),
    })
}

/// Where a redirect leads, without its query; nothing that is not a URL gets into a message.
fn pointed_to(headers: &HeaderMap, target: &Target) -> Option<String> {
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

/// `Retry-After`: seconds, or a date.
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
    fn a_wait_is_seconds_or_a_date_and_has_an_end() {
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
    fn a_message_names_where_a_redirect_leads_and_nothing_else_of_it() {
        let target = Target::parse("POST", "https://hook.example:8443/in").expect("a target");
        for (location, url) in [
            ("http://127.0.0.1/x?token=abc#part", Some("http://127.0.0.1/x")),
            ("/new?token=abc", Some("https://hook.example:8443/new")),
            ("//other.example/y", Some("https://other.example/y")),
            ("ftp://other.example/y", None),
            ("relative", None),
            ("http://user:password@other.example/", None),
        ] {
            let led = pointed_to(&headers(header::LOCATION, location), &target);
            assert_eq!(led.as_deref(), url, "{location}");
        }
        assert_eq!(pointed_to(&HeaderMap::new(), &target), None);
    }
}
