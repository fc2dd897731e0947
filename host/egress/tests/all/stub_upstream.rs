//! A stub upstream: the usual policy, a connection to the stub, every call reported.

use std::sync::{Arc, Mutex};

use talaria_egress::{Call, Config, Egress, ErrorKind, SecretString, StubUpstream};

use crate::server::{Server, body, echo};
use crate::{access, fails, post, text, with_header};

type Calls = Arc<Mutex<Vec<Call>>>;

fn with_stub(server: &Server) -> (Egress, Calls) {
    let calls = Calls::default();
    let heard = Arc::clone(&calls);
    let heard = Arc::new(move |call| heard.lock().unwrap().push(call));
    let stub_upstream = Some(StubUpstream { address: server.address, on_call: heard });
    (Egress::new(Config { stub_upstream, ..Config::default() }), calls)
}

#[tokio::test]
async fn a_granted_call_reaches_the_stub_whatever_it_names() {
    let server = Server::start(|request| async move {
        let is_filled_in = request.headers()["authorization"] == "Bearer the-value";
        http::Response::new(body(if is_filled_in { "filled in" } else { "not filled in" }))
    })
    .await;
    let (egress, calls) = with_stub(&server);
    let grant = ["POST https://api.example.invalid/v1/*", "POST http://203.0.113.1:81/*"];
    let mut access = access(&grant);
    let bound = access.patterns.clone();
    access.secrets.insert("KEY", SecretString::from("the-value"), bound).unwrap();
    for url in ["https://api.example.invalid/v1/x?q=1", "http://203.0.113.1:81/y"] {
        let request = with_header(post(url, "body"), "authorization", "Bearer {secret:KEY}");
        let response = egress.fetch(&access, request).await.expect("the response of the stub");
        assert_eq!(text(&response), "filled in", "the secret");
    }
    let calls = calls.lock().unwrap();
    assert_eq!(calls[0].url, "https://api.example.invalid/v1/x?q=1");
    assert_eq!(calls[0].pattern.as_ref().unwrap().to_string(), "POST https://api.example.invalid/v1/x");
    assert_eq!(
        (calls[0].whole, calls[0].sent, calls[0].secrets.as_slice()),
        (true, 4, &["KEY".to_owned()][..])
    );
    assert!(matches!(calls[0].result, Some(Ok((200, Some(bytes)))) if bytes > 0));
    assert!(!format!("{calls:?}").contains("the-value"), "a report has no secret in it");
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn a_denied_call_is_reported_and_not_sent() {
    let server = Server::start(echo).await;
    let (egress, calls) = with_stub(&server);
    let request = with_header(post("https://other.example/", ""), "x", "{secret:A} {secret:B}");
    fails(egress.open(&access(&[]), request).await, ErrorKind::Denied);
    let calls = calls.lock().unwrap();
    assert_eq!(calls[0].secrets, ["A", "B"]);
    assert!(matches!(&calls[0].result, Some(Err(error)) if error.kind() == ErrorKind::Denied));
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_dropped_call_is_reported_without_a_result() {
    let server = Server::start(|_| std::future::pending()).await;
    let (egress, calls) = with_stub(&server);
    let access = access(&["POST http://slow.example/"]);
    let waiting = tokio::spawn(async move { egress.fetch(&access, post("http://slow.example/", "")).await });
    while server.requests() == 0 {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    let _ = waiting.await;
    assert!(calls.lock().unwrap()[0].result.is_none());
}
