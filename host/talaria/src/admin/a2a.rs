//! `/a2a`: the A2A server, as the caller `console`.
//!
//! A page can try the agent without a call to another origin and without a token of its own. What the agent answers, how much
//! the caller may take and what it may read is that of any caller with this name.

use http::uri::PathAndQuery;
use http::{Request, Uri};
use hyper::body::Incoming;
use serde_json::json;
use talaria_turns::Principal;

use super::Admin;
use super::reply::{Reply, invalid, respond};
use super::route::Route;

/// The name of the caller.
const CALLER: &str = "console";

/// Where A2A is on this server.
const PREFIX: &str = "/a2a";

impl Admin {
    pub(super) async fn a2a(&self, request: Request<Incoming>) -> Reply {
        let (mut head, body) = request.into_parts();
        if let Err(refusal) = self.admit(&Route::A2a, &head) {
            return *refusal;
        }
        let Some(host) = self.host.get() else {
            let starting = json!({ "ready": false, "reason": "starting: executors are being loaded" });
            return respond(http::StatusCode::SERVICE_UNAVAILABLE, &starting);
        };
        let Some(uri) = inside(&head.uri) else { return invalid("the path cannot be read") };
        head.uri = uri;
        host.a2a.answer(Principal::named(CALLER), PREFIX, Request::from_parts(head, body)).await
    }
}

/// The address as the A2A server knows it.
fn inside(uri: &Uri) -> Option<Uri> {
    let rest = uri.path().strip_prefix(PREFIX)?;
    let path = if rest.is_empty() { "/" } else { rest };
    let path = match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")).ok()?,
        None => PathAndQuery::try_from(path).ok()?,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_the_prefix_is_one_of_the_a2a_server() {
        for (outside, expected) in [
            ("/a2a", "/"),
            ("/a2a/", "/"),
            ("/a2a?x=1", "/?x=1"),
            ("/a2a/.well-known/agent-card.json", "/.well-known/agent-card.json"),
            ("http://127.0.0.1:8001/a2a/message:send?a=b", "http://127.0.0.1:8001/message:send?a=b"),
        ] {
            assert_eq!(inside(&outside.parse().unwrap()).unwrap().to_string(), expected, "{outside}");
        }
    }
}
