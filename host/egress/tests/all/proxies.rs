//! Calls go through the operator's proxy, under the same rules about addresses, and a guest neither chooses nor sees it.

use std::net::IpAddr;
use std::sync::Arc;

use talaria_egress::{Access, Config, Egress, ErrorKind, Names, Proxies, Roots, Webhooks};
use talaria_fakes::{FakeProxy, free_port};

use crate::server::{Server, echo};
use crate::tls;
use crate::{access, fails, get, text, with_header};

const PUBLIC: &str = "93.184.216.34";

fn proxies(url: &str, exempt: &str) -> Proxies {
    let proxies = Proxies::read(|name| match name {
        "HTTP_PROXY" | "HTTPS_PROXY" => Some(url.to_owned()),
        "NO_PROXY" => Some(exempt.to_owned()),
        _ => None,
    });
    proxies.expect("a proxy")
}

/// A configuration in which every name has these addresses.
fn config(proxies: Proxies, addresses: &[&str]) -> Config {
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let names = Names::Given(Arc::new(move |_name| addresses.clone()));
    Config { names, proxies, roots: tls::authority(), ..Config::default() }
}

fn granted() -> Access {
    access(&["GET http://a.example/*", "GET https://localhost.example/*", "GET http://93.184.216.34/*"])
}

#[tokio::test]
async fn the_proxy_connects_to_the_address_that_was_checked() {
    let server = Server::start(echo).await;
    let proxy = FakeProxy::to(server.address).await;
    let egress = Egress::new(config(proxies(&proxy.url(), ""), &[PUBLIC]));
    for _ in 0..2 {
        let response = egress.fetch(&granted(), get("http://a.example/x")).await.expect("an answer");
        // The server sees the same request as without a proxy.
        assert!(text(&response).starts_with("GET /x HTTP/1.1\nhost: a.example\n"), "{}", text(&response));
        assert!(!text(&response).contains("proxy"), "{}", text(&response));
    }
    assert_eq!(proxy.destinations(), [format!("{PUBLIC}:80")], "one tunnel, which is kept");
    egress.fetch(&granted(), get("http://93.184.216.34/")).await.expect("an answer");
    assert_eq!(proxy.destinations().len(), 2);
}

#[tokio::test]
async fn a_name_that_leads_inside_is_denied_behind_a_proxy_too() {
    let proxy = FakeProxy::answering("HTTP/1.1 200 OK\r\n\r\n").await;
    for address in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"] {
        let egress = Egress::new(config(proxies(&proxy.url(), ""), &[address]));
        fails(egress.fetch(&granted(), get("http://a.example/x")).await, ErrorKind::Denied);
        let webhooks = Webhooks::new(config(proxies(&proxy.url(), "").resolving(true), &[address]), false);
        let posted = webhooks.post("http://hook.example/", Vec::new(), "{}".into()).await;
        fails(posted, ErrorKind::Denied);
        for literal in [format!("http://{address}/"), format!("https://{address}/")] {
            if !address.contains(':') {
                fails(webhooks.post(&literal, Vec::new(), "{}".into()).await, ErrorKind::Denied);
            }
        }
    }
    assert_eq!(proxy.heads(), [""; 0], "the proxy was asked for an address that is denied");
}

#[tokio::test]
async fn names_are_left_to_the_proxy_only_if_the_operator_says_so() {
    let server = Server::start(echo).await;
    let proxy = FakeProxy::to(server.address).await;
    let egress = Egress::new(config(proxies(&proxy.url(), ""), &[]));
    let error = fails(egress.fetch(&granted(), get("http://a.example/x")).await, ErrorKind::Dns);
    assert_eq!(
        error.message(),
        "name not found (a.example); if only the proxy can look names up, set egress.proxy_resolves = true"
    );
    let egress = Egress::new(config(proxies(&proxy.url(), "").resolving(true), &[]));
    egress.fetch(&granted(), get("http://a.example/x")).await.expect("an answer");
    assert_eq!(proxy.destinations(), ["a.example:80"]);
    // A grant is needed as before.
    fails(egress.fetch(&granted(), get("http://b.example/")).await, ErrorKind::Denied);
}

#[tokio::test]
async fn tls_is_between_this_host_and_the_destination() {
    let server = tls::server(&["h2"]).await;
    let proxy = FakeProxy::to(server.address).await;
    // The certificate is for `localhost`, which is never behind a proxy, so the name is wrong and the error says so.
    let egress = Egress::new(config(proxies(&proxy.url(), ""), &[PUBLIC]));
    let called = egress.fetch(&granted(), get("https://localhost.example/")).await;
    let error = fails(called, ErrorKind::Tls);
    assert_eq!(error.message(), "the certificate is for another name (localhost.example:443)");
    assert_eq!((server.requests(), proxy.destinations()), (0, vec![format!("{PUBLIC}:443")]));
}

#[tokio::test]
async fn this_machine_and_exempt_hosts_are_called_directly() {
    let server = Server::start(echo).await;
    let proxy = FakeProxy::answering("HTTP/1.1 403 Forbidden\r\n\r\n").await;
    let egress = Egress::new(config(proxies(&proxy.url(), "a.example"), &["127.0.0.1"]));
    let port = server.address.port();
    let urls = [server.url("/"), format!("http://localhost:{port}/"), format!("http://a.example:{port}/")];
    let access = Access {
        private: vec!["a.example".parse().unwrap()],
        ..access(&urls.each_ref().map(|url| format!("GET {url}")).each_ref().map(String::as_str))
    };
    for url in urls {
        egress.fetch(&access, get(url)).await.expect("an answer");
    }
    assert_eq!(proxy.heads().len(), 0);
}

#[tokio::test]
async fn only_the_proxy_sees_its_credentials() {
    let server = Server::start(echo).await;
    let proxy = FakeProxy::to(server.address).await;
    let url = proxy.url().replace("http://", "http://user:pass%20word@");
    let egress = Egress::new(config(proxies(&url, ""), &[PUBLIC]));
    let response = egress.fetch(&granted(), get("http://a.example/x")).await.expect("an answer");
    assert!(!text(&response).contains("authorization"), "{}", text(&response));
    let [head] = &proxy.heads()[..] else { panic!("{:?}", proxy.heads()) };
    assert!(head.contains("\r\nproxy-authorization: Basic dXNlcjpwYXNzIHdvcmQ=\r\n"), "{head}");
    // A guest cannot send its own.
    let forged = with_header(get("http://a.example/x"), "proxy-authorization", "Basic abc");
    fails(egress.fetch(&granted(), forged).await, ErrorKind::InvalidRequest);
}

#[tokio::test]
async fn the_error_says_what_the_proxy_did_and_not_where_it_is() {
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(10_000));
    for (answer, says) in [
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "the proxy refused the connection (403) (a.example:80)"),
        ("HTTP/1.1 407 Who are you\r\n\r\n", "the proxy wants other credentials (407) (a.example:80)"),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "the proxy does not speak HTTP (a.example:80)"),
        ("HTTP/1.1 200", "the proxy closed the connection (a.example:80)"),
        (&endless, "the proxy's answer is too long (a.example:80)"),
    ] {
        let proxy = FakeProxy::answering(answer).await;
        let egress = Egress::new(config(proxies(&proxy.url(), ""), &[PUBLIC]));
        let error = fails(egress.fetch(&granted(), get("http://a.example/x")).await, ErrorKind::Connect);
        assert_eq!(error.message(), says);
    }
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let egress = Egress::new(config(proxies(&nobody, ""), &[PUBLIC]));
    let error = fails(egress.fetch(&granted(), get("http://a.example/x")).await, ErrorKind::Connect);
    assert_eq!(error.message(), "the proxy is unreachable: connection refused (a.example:80)");
}

#[tokio::test]
async fn an_operators_certificate_is_trusted_beside_those_of_the_system() {
    let server = tls::server(&["h2"]).await;
    let url = format!("https://localhost:{}/", server.address.port());
    let roots = Roots::with_pem(tls::AUTHORITY).expect("a certificate");
    let egress = Egress::new(Config { roots, ..Config::default() });
    egress.fetch(&access(&[&format!("GET {url}")]), get(&url)).await.expect("an answer");
    for (pem, says) in [
        (&b""[..], "there is no certificate in it"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no usable certificate"),
        (b"-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n", "not PEM"),
    ] {
        let error = Roots::with_pem(pem).expect_err(says);
        assert!(error.starts_with(says), "{error}");
    }
}
