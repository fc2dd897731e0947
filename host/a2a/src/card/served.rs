//! The card as HTTP serves it: encoded once, with an ETag.

use std::time::SystemTime;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, ETAG, HeaderValue, IF_NONE_MATCH, LAST_MODIFIED, VARY};
use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::Value;

use super::Addresses;
use super::config::CardConfig;
use crate::respond::{self, Body};
use crate::sign::CardSigner;
use crate::version::Version;

/// The card, ready to send.
#[derive(Debug)]
pub(crate) struct Card {
    one: Document,
    union: Document,
    since: HeaderValue,
}

#[derive(Debug)]
struct Document {
    body: Bytes,
    etag: HeaderValue,
}

/// How long a client may use the card without asking again; a changed card is known within a minute.
const CACHE: HeaderValue = HeaderValue::from_static("max-age=60");

// === impl Card ===

impl Card {
    pub(crate) fn new(
        config: &CardConfig,
        addresses: &Addresses,
        secured: bool,
        signer: Option<&CardSigner>,
    ) -> Self {
        let (one, union) = config.documents(addresses, secured, false, signer);
        Self {
            one: Document::new(&one),
            union: Document::new(&union),
            since: header(httpdate::fmt_http_date(SystemTime::now())),
        }
    }

    /// Returns the same card for other addresses, unsigned.
    pub(crate) fn at(&self, config: &CardConfig, addresses: &Addresses, secured: bool) -> Self {
        Self { since: self.since.clone(), ..Self::new(config, addresses, secured, None) }
    }

    /// Answers a GET or HEAD by a caller who requests the version `requested`. `vary` names the headers that the card depends
    /// on.
    pub(crate) fn respond(
        &self,
        method: &Method,
        headers: &HeaderMap,
        requested: Option<&str>,
        vary: &'static str,
    ) -> Response<Body> {
        let document = if Version::V1.serves(requested) { &self.one } else { &self.union };
        let mut response = if document.matches(headers) {
            let mut response = Response::new(Body::default());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else if method == Method::HEAD {
            let mut response = respond::json(StatusCode::OK, Bytes::new());
            response.headers_mut().insert(CONTENT_LENGTH, document.body.len().into());
            response
        } else {
            respond::json(StatusCode::OK, document.body.clone())
        };
        let headers = response.headers_mut();
        headers.insert(ETAG, document.etag.clone());
        headers.insert(LAST_MODIFIED, self.since.clone());
        headers.insert(CACHE_CONTROL, CACHE);
        headers.insert(VARY, HeaderValue::from_static(vary));
        response
    }
}

// === impl Document ===

impl Document {
    fn new(card: &Value) -> Self {
        let body = Bytes::from(card.to_string());
        Self { etag: header(format!("\"{:016x}\"", fnv1a(&body))), body }
    }

    fn matches(&self, headers: &HeaderMap) -> bool {
        let tags = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        tags.flat_map(|value| value.split(','))
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag).as_bytes() == self.etag.as_bytes())
    }
}

fn header(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// FNV-1a, which gives the same result on every machine and in every release, unlike the hashers of std. It distinguishes
/// cards; it is not a security measure.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_etag_follows_the_bytes() {
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8, "the published test vector");
        let config = CardConfig::default();
        let at = |url: &str| Addresses { url: url.into(), grpc: None };
        let card = Card::new(&config, &at("http://a"), false, None);
        assert_eq!(card.one.etag, Card::new(&config, &at("http://a"), false, None).one.etag);
        assert_ne!(card.one.etag, Card::new(&config, &at("http://b"), false, None).one.etag);
        assert_ne!(card.one.etag, Card::new(&config, &at("http://a"), true, None).one.etag);
        assert_ne!(card.one.etag, card.union.etag);
    }
}
