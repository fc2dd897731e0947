//! A webhook's URL is hostile: whatever it says, only public addresses are connected to.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::{self, HeaderName};
use talaria_egress::{Answer, Config, Error, ErrorKind, Names, SecretString, Webhooks};

use crate::fails;
use crate::server::{self, Server, body, echo};

const PUBLIC: &str = "93.184.216.34";
const TOKEN: &str = "t0ken-of-the-webhook";

/// A client for which every name has these addresses: the first answer, the second, and so on; the last one stays.
fn webhooks(private: bool, answers: &[&[&str]]) -> Webhooks {
    let answers: Vec<Vec<IpAddr>> = answers
        .iter()
        .map(|answer| answer.iter().map(|address| address.parse().expect("an address")).collect())
        .collect();
    let asked = AtomicUsize::new(0);
    let names = Names::Given(Arc::new(move |_name| {
        let turn = asked.fetch_add(1, Ordering::SeqCst).min(answers.len().saturating_sub(1));
        answers.get(turn).cloned().unwrap_or_default()
    }));
    Webhooks::new(Config { names, ..Config::default() }, private)
}

/// The client as it runs in production.
fn public() -> Webhooks {
    Webhooks::new(Config::default(), false)
}

fn token() -> Vec<(HeaderName, SecretString)> {
    vec![
        (header::CONTENT_TYPE, SecretString::from("application/json")),
        (HeaderName::from_static("x-a2a-notification-token"), SecretString::from(TOKEN)),
    ]
}

async fn post(webhooks: &Webhooks, url: &str) -> Result<Answer, Error> {
    webhooks.post(url, token(), "{}".into()).await
}

#[tokio::test]
async fn a_public_webhook_may_be_registered() {
    let webhooks = webhooks(false, &[&[PUBLIC, "2a00:1450::1"]]);
    for url in ["https://hook.example/in?x=1", "http://hook.example:8080", "https://93.184.216.34/"] {
        webhooks.check(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

#[tokio::test]
async fn an_invalid_url_is_rejected_with_the_reason() {
    let webhooks = webhooks(false, &[&[PUBLIC]]);
    let long = format!("https://hook.example/{}", "x".repeat(2048));
    for (url, says) in [
        ("", "no scheme"),
        ("hook.example/in", "no scheme"),
        ("ftp://hook.example/", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("https:///path", "the host is missing"),
        ("https://user:password@hook.example/", "user information before @"),
        ("https://hook.example/#part", "a fragment is never sent"),
        ("https://hook.example:0/", "the port is not a number"),
        ("https://hook.example/\r\nx-header: 1", "control character"),
        ("https://127.0.0.1\\@hook.example/", "user information before @"),
        ("https://127.0.0.1\\.hook.example/", "a backslash"),
        (&long, "at most 2048"),
    ] {
        let error = fails(webhooks.check(url).await, ErrorKind::InvalidRequest);
        assert!(error.message().contains(says), "{url}: {error}");
        assert!(!error.message().contains("password"), "{error}");
        fails(post(&webhooks, url).await, ErrorKind::InvalidRequest);
    }
}

#[tokio::test]
async fn a_special_address_is_rejected_at_registration_and_at_delivery() {
    let webhooks = public();
    for host in [
        "127.0.0.1",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00:ec2::254]",
    ] {
        let url = format!("http://{host}:9/in");
        let error = fails(webhooks.check(&url).await, ErrorKind::Denied);
        assert!(error.message().starts_with("a webhook may not be at "), "{error}");
        let error = fails(post(&webhooks, &url).await, ErrorKind::Denied);
        assert!(error.message().starts_with("connecting to "), "{error}");
    }
}

#[tokio::test]
async fn an_address_in_disguise_does_not_get_through() {
    let server = Server::start(echo).await;
    let port = server.address.port();
    let webhooks = public();
    for host in [
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0x7f.0.0.0x1",
        "017700000001",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.1.",
        "1%32%37.0.0.1",
        "①②⑦.0.0.1",
        "[127.0.0.1]",
        "[::1%25lo]",
        "[fe80::1%1]",
    ] {
        let url = format!("http://{host}:{port}/");
        fails(webhooks.check(&url).await, ErrorKind::InvalidRequest);
        fails(post(&webhooks, &url).await, ErrorKind::InvalidRequest);
    }
    // A name of this machine, through the system's own resolver.
    let error = fails(webhooks.check(&format!("http://localhost:{port}/")).await, ErrorKind::Denied);
    assert_eq!(
        error.message(),
        "a webhook may not be at a loopback address (localhost); use a public address, or set \
         push.allow_private = true"
    );
    let error = fails(post(&webhooks, &format!("http://LOCALHOST:{port}/")).await, ErrorKind::Denied);
    assert_eq!(error.message(), "connecting to a loopback address is not allowed (localhost)");
    assert_eq!(server.connections(), 0, "a disguised address was connected to");
}

#[tokio::test]
async fn a_name_with_one_private_address_is_rejected_without_revealing_it() {
    for answer in [&[PUBLIC, "10.1.2.3"][..], &["10.1.2.3", PUBLIC]] {
        let error = fails(webhooks(false, &[answer]).check("https://hook.example/").await, ErrorKind::Denied);
        assert!(error.message().contains("a private address (hook.example)"), "{error}");
        assert!(!error.message().contains("10.1.2.3"), "{error}");
    }
}

#[tokio::test]
async fn a_name_that_does_not_resolve_yet_is_accepted() {
    let webhooks = webhooks(false, &[&[]]);
    webhooks.check("https://hook.example/").await.expect("it may resolve later");
    let error = fails(post(&webhooks, "https://hook.example/").await, ErrorKind::Dns);
    assert_eq!(error.message(), "name not found (hook.example)");
}

#[tokio::test]
async fn a_name_that_points_elsewhere_by_the_time_of_delivery_is_not_followed() {
    let server = Server::start(echo).await;
    let url = format!("http://hook.example:{}/in", server.address.port());
    let webhooks = webhooks(false, &[&[PUBLIC], &["127.0.0.1"]]);
    webhooks.check(&url).await.expect("the first answer is public");
    let error = fails(post(&webhooks, &url).await, ErrorKind::Denied);
    assert_eq!(error.message(), "connecting to a loopback address is not allowed (hook.example)");
    assert_eq!(server.connections(), 0, "the second answer was connected to");
}

#[tokio::test]
async fn every_new_connection_is_checked() {
    let closing = |_request| async {
        let mut answer = http::Response::new(body(""));
        answer.headers_mut().insert(header::CONNECTION, "close".parse().expect("a value"));
        answer
    };
    let server = Server::start(closing).await;
    let url = format!("http://hook.example:{}/in", server.address.port());
    let webhooks = webhooks(true, &[&["127.0.0.1"], &["169.254.169.254"]]);
    assert!(post(&webhooks, &url).await.expect("private is allowed").is_success());
    let error = fails(post(&webhooks, &url).await, ErrorKind::Denied);
    assert_eq!(error.message(), "connecting to a metadata service is not allowed (hook.example)");
}

#[tokio::test]
async fn private_networks_can_be_allowed_and_metadata_services_cannot() {
    let server = Server::start(echo).await;
    let webhooks = Webhooks::new(Config::default(), true);
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{}/in", server.address.port());
        webhooks.check(&url).await.expect("private is allowed");
        assert_eq!(post(&webhooks, &url).await, Ok(Answer { status: 200, retry_after: None }));
    }
    let error = fails(webhooks.check("http://169.254.169.254/latest").await, ErrorKind::Denied);
    assert_eq!(
        error.message(),
        "a webhook may not be at a metadata service (169.254.169.254); use a public address"
    );
}

#[tokio::test]
async fn a_delivery_is_one_post_with_its_headers_and_body() {
    let (seen, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::start(move |request| {
        let seen = seen.clone();
        async move {
            let (head, sent) = request.into_parts();
            let sent = http_body_util::BodyExt::collect(sent).await.expect("a body").to_bytes();
            seen.send((head, sent)).expect("the test listens");
            http::Response::builder()
                .status(503)
                .header("retry-after", "7")
                .body(body("later"))
                .expect("an answer")
        }
    })
    .await;
    let webhooks = Webhooks::new(Config::default(), true);
    let url = server.url("/in?tenant=1");
    for _ in 0..2 {
        let answer = post(&webhooks, &url).await.expect("an answer");
        assert_eq!(answer, Answer { status: 503, retry_after: Some(Duration::from_secs(7)) });
        assert!(!answer.is_success());
        let (head, sent) = asked.recv().await.expect("a request");
        assert_eq!((head.method.as_str(), head.uri.to_string()), ("POST", "/in?tenant=1".to_owned()));
        assert_eq!(head.headers.get("x-a2a-notification-token").expect("the token"), TOKEN);
        assert_eq!(head.headers.get("content-type").expect("the type"), "application/json");
        assert_eq!(sent, "{}");
    }
    assert_eq!(server.connections(), 1, "the connection was used again");
}

#[tokio::test]
async fn a_redirect_is_an_error_that_names_its_target() {
    let inside = Server::start(echo).await;
    let location = inside.url("/admin?key=1");
    let server = Server::start(move |_request| {
        let location = location.clone();
        async move {
            http::Response::builder()
                .status(307)
                .header("location", location)
                .body(body(""))
                .expect("an answer")
        }
    })
    .await;
    let webhooks = Webhooks::new(Config::default(), true);
    let error = fails(post(&webhooks, &server.url("/in")).await, ErrorKind::Denied);
    assert_eq!(
        error.message(),
        format!(
            "the webhook answered 307 and points to {}; redirects are not followed, register that URL ({})",
            inside.url("/admin"),
            server.address
        )
    );
    assert_eq!(inside.connections(), 0, "a redirect was followed");
}

#[tokio::test]
async fn the_head_of_a_response_is_enough_however_long_the_body_is() {
    let (long, made) = server::long_body(1024);
    let server = Server::start(server::once(long)).await;
    let webhooks = Webhooks::new(Config::default(), true);
    let answer = post(&webhooks, &server.url("/")).await.expect("an answer");
    assert!(answer.is_success());
    let made = made.await.expect("the server's body was dropped");
    assert!(made < 256, "{made} MiB were made for an answer that nobody reads");

    let announced = server::raw("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await;
    assert!(post(&webhooks, &announced.url()).await.expect("an answer").is_success());
    announced.closed().await;
    let cut = server::raw_and_close("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc").await;
    assert!(post(&webhooks, &cut.url()).await.expect("an answer").is_success());
}

#[tokio::test]
async fn a_webhook_that_never_responds_times_out() {
    let silent = server::raw("").await;
    let webhooks = Webhooks::new(Config::default(), true).with_timeout(Duration::from_millis(250));
    let error = fails(post(&webhooks, &silent.url()).await, ErrorKind::TimedOut);
    assert_eq!(error.message(), format!("timed out after 250ms ({})", silent.address));
    silent.closed().await;
}

#[tokio::test]
async fn a_rejected_header_is_reported_without_its_value() {
    let server = Server::start(echo).await;
    let webhooks = Webhooks::new(Config::default(), true);
    for (name, value) in [
        (header::AUTHORIZATION, format!("Bearer {TOKEN}\r\nx-other: 1")),
        (header::HOST, TOKEN.to_owned()),
        (header::CONTENT_LENGTH, TOKEN.to_owned()),
        (header::AUTHORIZATION, TOKEN.repeat(10_000)),
    ] {
        let headers = vec![(name.clone(), SecretString::from(value))];
        assert!(!format!("{headers:?}").contains(TOKEN), "shown by Debug");
        let error =
            fails(webhooks.post(&server.url("/"), headers, "{}".into()).await, ErrorKind::InvalidRequest);
        assert!(!format!("{error} {error:?}").contains(TOKEN), "{name}: in the error");
    }
    assert_eq!(server.connections(), 0, "a refused header reached the server");

    // Named by the caller, so filled in by nobody.
    let headers = vec![(header::AUTHORIZATION, SecretString::from("{secret:KEY}"))];
    assert!(webhooks.post(&server.url("/"), headers, "{}".into()).await.expect("an answer").is_success());

    let closed = server::raw_and_close("").await;
    let error = fails(post(&webhooks, &closed.url()).await, ErrorKind::Protocol);
    assert!(!format!("{error} {error:?}").contains(TOKEN), "in the error");
    assert!(!format!("{webhooks:?}").contains(TOKEN), "in the client");
}
