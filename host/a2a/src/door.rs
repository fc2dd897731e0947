//! The door of the public server: which names it answers to, which pages may call it, and how a refusal reads.
//!
//! On loopback without tokens it answers to addresses, to `localhost` and to the host of its configured URL, so that a page
//! whose name was pointed at this machine reads no task. With tokens, or beyond loopback, it answers to any name: the token
//! decides, or callers use names that only they know. Pages of other sites are refused everywhere, unless the operator listed
//! their origin. A refusal has the form of the binding and the version that the request is in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::{Method, Response, StatusCode, Uri};
use serde_json::Value;
use talaria_listen::{Advice, Door, Refusal};

use crate::grpc;
use crate::origin::Origin;
use crate::rejection::{ErrorKind, Rejection};
use crate::respond::{self, Body};
use crate::route::Route;
use crate::service_params::ServiceParams;

const ADVICE: Advice = Advice {
    host: "for callers that use another, such as a proxy, set `a2a.url` to it, or set `a2a.auth.tokens`",
    origin: "list its origin in `a2a.cors` if it may",
};

/// The door of a server at `url` that was bound to `bound`.
pub(crate) fn door(
    url: &str,
    cors: &[Origin],
    bound: Option<SocketAddr>,
    needs_token: bool,
    refused: Arc<AtomicU64>,
) -> Door<Body> {
    let name = url.parse::<Uri>().ok().and_then(|url| url.host().map(str::to_owned));
    let own = own_origin(url);
    let origins = cors.iter().chain(&own).map(|origin| origin.as_str().to_owned());
    let door = Door::local(name, ADVICE, refuse).origins(origins).counted(refused);
    let is_beyond_loopback = bound.is_none_or(|bound| !bound.ip().is_loopback());
    if needs_token || is_beyond_loopback { door.any_host() } else { door }
}

/// The origin of the pages at a URL.
fn own_origin(url: &str) -> Option<Origin> {
    let (scheme, rest) = url.split_once("://")?;
    format!("{scheme}://{}", rest.split('/').next()?).parse().ok()
}

/// The response to a refused request.
fn refuse(refusal: &Refusal<'_>) -> Response<Body> {
    let params = ServiceParams::read(refusal.headers, refusal.uri.query());
    let kind = match refusal.status {
        StatusCode::FORBIDDEN => ErrorKind::Forbidden,
        _ => ErrorKind::Misaddressed,
    };
    let rejection = Rejection::new(kind, refusal.message.as_str());
    if grpc::is_call(refusal.method, refusal.version, refusal.headers) {
        return grpc::refuse(&rejection, grpc::version_of(refusal.uri.path()));
    }
    match Route::of(refusal.uri.path(), params.version()) {
        Route::Rpc if refusal.method == Method::POST => {
            respond::json(kind.jsonrpc_status(), rejection.jsonrpc_body(&Value::Null).to_string())
        }
        Route::Rest(rest) => {
            respond::json(kind.rest_status().0, rejection.rest_body(rest.dialect.version()).to_string())
        }
        _ => refusal.response().map(Body::Whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_of_a_url_has_no_path() {
        for (url, origin) in [
            ("https://agents.example/papers", Some("https://agents.example")),
            ("http://127.0.0.1:8000", Some("http://127.0.0.1:8000")),
            ("http://[::1]:8000/", Some("http://[::1]:8000")),
            ("agents.example", None),
        ] {
            assert_eq!(own_origin(url).as_ref().map(Origin::as_str), origin, "{url}");
        }
    }
}
