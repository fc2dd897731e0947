//! The files of the console, which the binary holds.
//!
//! The page may load its own scripts and styles, and call its own server; it runs nothing that is written into it, no other
//! site's page may frame it, and it sends no form. So a text of a caller that reached the page as markup could still do
//! nothing.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use http_body_util::Full;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// A file: its path, its media type and its bytes.
type File = (&'static str, &'static str, &'static [u8]);

macro_rules! dist {
    ($file:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../console/dist/", $file))
    };
}

const FILES: [File; 3] = [
    ("/", "text/html; charset=utf-8", dist!("index.html")),
    ("/assets/app.js", "text/javascript; charset=utf-8", dist!("assets/app.js")),
    ("/assets/app.css", "text/css; charset=utf-8", dist!("assets/app.css")),
];

/// The response to a request for a file; `None` if there is no such file.
pub(crate) fn respond(path: &str, headers: &HeaderMap) -> Option<Response<Full<Bytes>>> {
    let (_, media_type, bytes) = FILES.iter().find(|(known, ..)| *known == path)?;
    let tag = format!("\"{:016x}\"", digest(bytes));
    let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = match is_known {
        true => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        }
        false => Response::new(Full::new(Bytes::from_static(bytes))),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // Asked for again each time: another binary has other files under the same names.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(ETAG, tag);
    }
    Some(response)
}

/// FNV-1a: tells versions of a file apart, and is no secret.
fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_sent_once_and_can_do_nothing_that_it_does_not_bring() {
        let first = respond("/", &HeaderMap::new()).unwrap();
        assert_eq!(first.status(), 200);
        let policy = first.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'") && !policy.contains("unsafe"));
        assert_eq!(first.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
        let again = HeaderMap::from_iter([(IF_NONE_MATCH, first.headers()[ETAG].clone())]);
        assert_eq!(respond("/", &again).unwrap().status(), 304);
        assert_eq!(respond("/assets/app.js", &again).unwrap().status(), 200);
        for path in ["/assets/", "/assets/../index.html", "/index.html", "/assets/app.js/"] {
            assert!(respond(path, &HeaderMap::new()).is_none(), "{path}");
        }
    }
}
