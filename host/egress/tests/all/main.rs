//! Behaviour of the egress against real servers on loopback, one file for each promise.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that fails should say where; its servers die with its runtime"
)]

mod addresses;
mod await_event;
mod bounds;
mod denied;
mod headers;
mod origin_client;
mod proxies;
mod runtimes;
mod secrets;
mod server;
mod sse;
mod stream;
mod stub_upstream;
mod tls;
mod unreachable;
mod webhooks;

use std::time::Duration;

use talaria_egress::{Access, Bounds, Config, Egress, Error, ErrorKind, Request, Response};

/// Long enough that only a hanging test reaches it.
const PATIENCE: Duration = Duration::from_secs(300);

fn egress() -> Egress {
    Egress::new(Config::default())
}

/// An executor `probe` that may call what the patterns say.
fn access(patterns: &[&str]) -> Access {
    Access {
        executor: "probe".into(),
        patterns: patterns.iter().map(|pattern| pattern.parse().expect("a pattern")).collect(),
        bounds: Bounds { timeout: PATIENCE, ..Bounds::default() },
        ..Access::default()
    }
}

fn get(url: impl Into<String>) -> Request {
    Request { method: "GET".into(), url: url.into(), ..Request::default() }
}

fn post(url: impl Into<String>, body: &'static str) -> Request {
    Request { method: "POST".into(), url: url.into(), body: body.into(), ..Request::default() }
}

fn with_header(mut request: Request, name: &str, value: &str) -> Request {
    request.headers.push((name.into(), value.into()));
    request
}

#[track_caller]
fn fails<T>(result: Result<T, Error>, kind: ErrorKind) -> Error {
    match result {
        Ok(_) => panic!("the call went through; expected {kind:?}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            error
        }
    }
}

fn text(response: &Response) -> &str {
    std::str::from_utf8(&response.body).expect("a text body")
}
