//! The files of the console, which the binary holds.
//!
//! The page may load its own scripts and styles, and call its own server; it runs nothing that is written into it, no other
//! site's page may frame it, and it sends no form. So a text of a caller that reached the page as markup could still do
//! nothing.

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::LazyLock;

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

/// The tag of each file.
static TAGS: LazyLock<[Option<HeaderValue>; 3]> = LazyLock::new(|| FILES.map(|(.., bytes)| tag(bytes)));

/// The response to a request for a file; `None` if there is no such file.
pub(crate) fn respond(path: &str, headers: &HeaderMap) -> Option<Response<Full<Bytes>>> {
    let ((_, media_type, bytes), tag) = FILES.iter().zip(&*TAGS).find(|((known, ..), _)| *known == path)?;
    let is_known = tag.is_some() && headers.get(IF_NONE_MATCH) == tag.as_ref();
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
    if let Some(tag) = tag {
        headers.insert(ETAG, tag.clone());
    }
    Some(response)
}

/// What tells versions of a file apart. It is no secret.
fn tag(bytes: &[u8]) -> Option<HeaderValue> {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    HeaderValue::try_from(format!("\"{:016x}\"", hasher.finish())).ok()
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
