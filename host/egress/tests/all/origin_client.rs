//! The host's own calls: every request to one origin, none to another, credentials included.

use std::sync::Arc;

use talaria_egress::{Bounds, Config, Egress, ErrorKind, Names, Origin, SecretString};

use crate::server::{Server, echo};
use crate::{PATIENCE, egress, fails, get, post, text};

const TOKEN: &str = "t0ken-value";

fn bounds() -> Bounds {
    Bounds { timeout: PATIENCE, ..Bounds::default() }
}

fn origin(server: &Server) -> Origin {
    server.url("/").parse().expect("an origin")
}

#[test]
fn origins_are_equal_if_they_connect_to_the_same_place() {
    for (url, shown) in [
        ("https://Example.COM/a/b?c", "https://example.com"),
        ("HTTPS://example.com:443", "https://example.com"),
        ("http://[0:0::1]:8080?x", "http://[::1]:8080"),
    ] {
        let origin: Origin = url.parse().expect(url);
        assert_eq!(origin.to_string(), shown);
        assert_eq!(shown.parse::<Origin>().expect(shown), origin);
        assert_eq!(origin.is_https(), shown.starts_with("https:"));
    }
    let parse = |url: &str| url.parse::<Origin>().expect(url);
    assert_ne!(parse("http://example.com"), parse("https://example.com"));
    assert_ne!(parse("http://example.com"), parse("http://example.com:81"));
    for url in
        ["", "example.com", "ftp://example.com", "http://user@example.com/", "http:///x", "http://1.2.3/"]
    {
        fails(url.parse::<Origin>(), ErrorKind::InvalidRequest);
    }
}

#[tokio::test]
async fn every_request_to_the_origin_carries_the_token_and_no_other_is_made() {
    let (server, other) = (Server::start(echo).await, Server::start(echo).await);
    let client = egress().origin_client("test", &origin(&server)).with_bounds(bounds());
    let client = client.with_bearer(SecretString::from(TOKEN)).expect("a token").unmasked();
    for request in [get(server.url("/a?b=c")), post(server.url("/"), "x")] {
        let response = client.fetch(request).await.expect("a response");
        assert!(text(&response).contains(&format!("authorization: Bearer {TOKEN}\n")), "{}", text(&response));
    }
    let mut exchange = client.open(get(server.url("/"))).await.expect("a response");
    assert!(exchange.read(1).await.expect("bytes").is_some());

    fails(client.fetch(get(other.url("/"))).await, ErrorKind::Denied);
    fails(client.open(get(other.url("/"))).await, ErrorKind::Denied);
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn a_repeated_token_is_masked_unless_the_caller_asks_for_it() {
    let server = Server::start(echo).await;
    let client = egress().origin_client("test", &origin(&server)).with_bounds(bounds());
    let value = SecretString::from(format!("Basic {TOKEN}"));
    let masked = client.with_authorization(value).expect("a value");
    let response = masked.fetch(get(server.url("/"))).await.expect("a response");
    assert!(!text(&response).contains(TOKEN), "{}", text(&response));
    let response = masked.unmasked().fetch(get(server.url("/"))).await.expect("a response");
    assert!(text(&response).contains(&format!("authorization: Basic {TOKEN}\n")), "{}", text(&response));
}

#[tokio::test]
async fn a_name_may_lead_into_a_private_network_unless_the_caller_forbids_it() {
    let server = Server::start(echo).await;
    let names = Names::Given(Arc::new(|_name| vec!["127.0.0.1".parse().expect("an address")]));
    let egress = Egress::new(Config { names, ..Config::default() });
    let url = format!("http://registry.test:{}/", server.address.port());
    let client = egress.origin_client("test", &url.parse().expect("an origin")).with_bounds(bounds());
    assert_eq!(client.fetch(get(&url)).await.expect("a response").status, 200);
    fails(client.public_only().fetch(get(&url)).await, ErrorKind::Denied);
}

#[test]
fn a_token_with_a_line_break_is_rejected() {
    let client = egress().origin_client("test", &"http://localhost".parse().expect("an origin"));
    assert!(client.with_bearer(SecretString::from("a\nb")).is_err());
}
