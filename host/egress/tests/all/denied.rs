//! A call that is not granted does not leave the host.

use talaria_egress::{ErrorKind, Needs, SecretString};

use crate::server::{Server, echo};
use crate::{access, egress, fails, get, post, text, with_header};

#[tokio::test]
async fn a_granted_call_goes_through() {
    let server = Server::start(echo).await;
    let access = access(&[&format!("POST http://{}/v1/chat/completions", server.address)]);
    let request = with_header(post(server.url("/v1/chat/completions?a=b"), "hello"), "X-One", "1");
    let response = egress().fetch(&access, request).await.expect("an answer");
    assert_eq!(response.status, 200);
    let expected = format!(
        "POST /v1/chat/completions?a=b HTTP/1.1\nx-one: 1\nhost: {}\ncontent-length: 5\n\nhello",
        server.address
    );
    assert_eq!(text(&response), expected);
}

#[tokio::test]
async fn without_a_grant_nothing_is_sent_and_the_message_says_what_to_grant() {
    let server = Server::start(echo).await;
    let denied =
        fails(egress().fetch(&access(&[]), post(server.url("/v1/x?key=1"), "")).await, ErrorKind::Denied);
    assert_eq!(
        denied.message(),
        format!(
            "executor probe may not call POST http://{0}/v1/x; grant it with egress = [\"POST http://{0}/v1/x\"]",
            server.address
        )
    );
    let access = access(&[&format!("POST http://{}/v1/x", server.address)]);
    fails(egress().open(&access, get(server.url("/v1/x"))).await, ErrorKind::Denied);
    fails(egress().open(&access, post(server.url("/v1/y"), "")).await, ErrorKind::Denied);
    assert_eq!(server.requests() + server.connections(), 0, "a denied call reached the server");
}

#[tokio::test]
async fn a_disguised_url_is_an_invalid_request() {
    let server = Server::start(echo).await;
    let access = access(&[&server.pattern()]);
    for path in ["/a/../b", "/%2e%2e/b", "/a%2fb", "/a%5cb", "/a\\b", "/a#b", "/?x={secret:KEY}"] {
        let error = fails(egress().fetch(&access, get(server.url(path))).await, ErrorKind::InvalidRequest);
        assert!(error.message().starts_with("bad URL at position"), "{error}");
    }
    for method in ["CONNECT", "TRACE", "connect", "GE T", ""] {
        let mut request = get(server.url("/"));
        request.method = method.into();
        fails(egress().fetch(&access, request).await, ErrorKind::InvalidRequest);
    }
    assert_eq!(server.connections(), 0, "an invalid request reached the server");
}

#[tokio::test]
async fn a_redirect_is_returned_and_not_followed() {
    let server = Server::start(|request: http::Request<_>| async move {
        assert_eq!(request.uri().path(), "/from", "the redirect was followed");
        let answer = http::Response::builder().status(302).header("location", "/to");
        answer.body(crate::server::body("")).expect("an answer")
    })
    .await;
    let response =
        egress().fetch(&access(&[&server.pattern()]), get(server.url("/from"))).await.expect("an answer");
    assert_eq!(response.status, 302);
    assert!(response.headers.contains(&("location".into(), "/to".into())), "{:?}", response.headers);
}

/// What applies is the meet: a grant gives a component nothing that it does not say it needs.
#[tokio::test]
async fn a_grant_that_the_component_does_not_declare_is_denied() {
    let server = Server::start(echo).await;
    let mut access = access(&[&server.pattern()]);
    access.secrets.insert("KEY", SecretString::from("value"), access.patterns.clone()).expect("a secret");
    access.needs = Some(Needs {
        patterns: vec![format!("GET {}", server.url("/a")).parse().expect("a pattern")],
        secrets: Vec::new(),
    });
    egress().fetch(&access, get(server.url("/a"))).await.expect("both needed and granted");
    let error = fails(egress().fetch(&access, get(server.url("/b"))).await, ErrorKind::Denied);
    assert!(error.message().contains("does not declare the need"), "{error}");
    let with_key = with_header(get(server.url("/a")), "x-key", "{secret:KEY}");
    let error = fails(egress().fetch(&access, with_key).await, ErrorKind::Denied);
    assert!(error.message().contains("`secret: KEY`"), "{error}");
    assert_eq!(server.requests(), 1);
}
