//! A guest names a secret; only the right destination ever gets it.

use talaria_egress::{Access, ErrorKind, InvalidSecret, SecretString, Secrets};

use crate::server::{Server, body, echo};
use crate::{access, egress, fails, get, text, with_header};

const VALUE: &str = "s3cr3t-value";

fn with_secret(mut access: Access, name: &str, value: &str, destinations: &[&str]) -> Access {
    let destinations = destinations.iter().map(|pattern| pattern.parse().expect("a pattern")).collect();
    access.secrets.insert(name, SecretString::from(value), destinations).expect("a secret");
    access
}

#[tokio::test]
async fn a_secret_is_filled_in_where_it_is_bound() {
    let server = Server::start(|request| async move {
        let sent = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let (key, both) = (format!("Bearer {VALUE}"), format!("{VALUE}/two{{}}"));
        let is_filled_in = sent("authorization") == Some(&key) && sent("x-both") == Some(&both);
        http::Response::new(body(if is_filled_in { "filled in" } else { "not filled in" }))
    })
    .await;
    let access = with_secret(access(&[&server.pattern()]), "KEY", VALUE, &[&server.pattern()]);
    let access = with_secret(access, "other.KEY-2", "two", &[&server.pattern()]);
    let request = with_header(get(server.url("/")), "authorization", "Bearer {secret:KEY}");
    let request = with_header(request, "x-both", "{secret:KEY}/{secret:other.KEY-2}{}");
    let response = egress().fetch(&access, request).await.expect("an answer");
    assert_eq!(text(&response), "filled in");
}

#[tokio::test]
async fn a_secret_that_the_upstream_repeats_is_masked() {
    let server = Server::start(|request| async {
        let sent = request.headers().get("authorization").cloned().expect("the secret");
        let mut answer = echo(request).await;
        answer.headers_mut().insert("x-sent", sent);
        answer
    })
    .await;
    let access = with_secret(access(&[&server.pattern()]), "KEY", VALUE, &[&server.pattern()]);
    let access = with_secret(access, "OTHER", "another-value", &[&server.pattern()]);
    let request = with_header(get(server.url("/")), "authorization", "Bearer {secret:KEY}");
    let request = with_header(request, "x-known", "another-value");
    let masked = "*".repeat(VALUE.len());
    let response = egress().fetch(&access, request.clone()).await.expect("an answer");
    assert!(text(&response).contains(&format!("authorization: Bearer {masked}\n")), "{}", text(&response));
    assert!(text(&response).contains("x-known: *************\n"), "{}", text(&response));
    assert!(
        response.headers.contains(&("x-sent".into(), format!("Bearer {masked}"))),
        "{:?}",
        response.headers
    );
    let length = response.headers.iter().find(|(name, _)| name == "content-length").expect("a length");
    assert_eq!(length.1, response.body.len().to_string());

    let mut exchange = egress().open(&access, request).await.expect("an answer");
    let mut read = Vec::new();
    while let Some(bytes) = exchange.read(7).await.expect("bytes") {
        read.extend_from_slice(&bytes);
    }
    assert!(!String::from_utf8_lossy(&read).contains(VALUE), "{}", String::from_utf8_lossy(&read));
}

#[tokio::test]
async fn a_body_that_ends_with_the_beginning_of_a_secret_is_read_to_its_end() {
    let server = Server::start(|_| async { http::Response::new(body("the end: s3cr3t-va")) }).await;
    let access = with_secret(access(&[&server.pattern()]), "KEY", VALUE, &[&server.pattern()]);
    let response = egress().fetch(&access, get(server.url("/"))).await.expect("an answer");
    assert_eq!(text(&response), "the end: s3cr3t-va");
    let mut exchange = egress().open(&access, get(server.url("/"))).await.expect("an answer");
    let mut read = Vec::new();
    while let Some(bytes) = exchange.read(1 << 20).await.expect("bytes") {
        read.extend_from_slice(&bytes);
    }
    assert_eq!(read, b"the end: s3cr3t-va");
    assert_eq!(exchange.read(1).await.expect("the end again"), None);
}

#[tokio::test]
async fn a_secret_that_the_upstream_repeats_in_another_form_is_masked() {
    let server = Server::start(|request| async move {
        let sent = request.headers().get("x-key").expect("the secret").to_str().expect("text").to_owned();
        let hex: String = sent.bytes().map(|byte| format!("{byte:02x}")).collect();
        // What `Basic` makes of it, behind a user name of one, two and three letters.
        let basic = "czNjcjN0LXZhbHVl OnMzY3IzdC12YWx1ZQ== dTpzM2NyM3QtdmFsdWU=";
        http::Response::new(body(format!("{basic} {hex} {}", sent.replace('-', "%2D"))))
    })
    .await;
    let access = with_secret(access(&[&server.pattern()]), "KEY", VALUE, &[&server.pattern()]);
    let request = with_header(get(server.url("/")), "x-key", "{secret:KEY}");
    let response = egress().fetch(&access, request).await.expect("an answer");
    let left = text(&response).replace('*', "");
    let longest = left.split(' ').map(str::len).max();
    assert!(longest <= Some(5), "{}", text(&response));
}

/// The attack: have the upstream repeat a guess, and see where the read ends.
#[tokio::test]
async fn the_length_of_a_read_says_nothing_about_a_secret() {
    // The answer stays open, so that what is held back stays held back.
    let server = Server::start(|request| async move {
        let guess = request.uri().query().unwrap_or_default().to_owned();
        http::Response::new(crate::server::open_body(format!("{}{guess}", "x".repeat(2_000))))
    })
    .await;
    for bound in [server.pattern(), "* http://api.example.com/*".to_owned()] {
        let access = with_secret(access(&[&server.pattern()]), "KEY", VALUE, &[&bound]);
        let mut lengths = Vec::new();
        for guess in ["qqqqqqqqqqq", &VALUE[..11], &VALUE[1..12], "qqqqqqqqqs3"] {
            let request = get(server.url(&format!("/?{guess}")));
            let mut exchange = egress().open(&access, request).await.expect("an answer");
            lengths.push(exchange.read(1 << 20).await.expect("bytes").map(|bytes| bytes.len()));
        }
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{bound}: {lengths:?}");
    }
}

#[tokio::test]
async fn a_secret_of_another_host_is_not_searched_for() {
    let server = Server::start(|_| async { http::Response::new(body(format!("a guess: {VALUE}"))) }).await;
    let access = with_secret(access(&[&server.pattern()]), "KEY", VALUE, &["* http://api.example.com/*"]);
    let response = egress().fetch(&access, get(server.url("/"))).await.expect("an answer");
    assert_eq!(text(&response), format!("a guess: {VALUE}"), "a mask would confirm the guess");
}

#[tokio::test]
async fn an_encoded_answer_is_an_error_where_secrets_are_bound() {
    let server = Server::start(|_| async {
        let mut answer = http::Response::new(body("\u{1f}\u{8b}"));
        answer.headers_mut().insert("content-encoding", "gzip".parse().expect("a value"));
        answer
    })
    .await;
    let plain = access(&[&server.pattern()]);
    egress().fetch(&plain, get(server.url("/"))).await.expect("nothing is masked, so it may be encoded");
    let access = with_secret(plain, "KEY", VALUE, &[&server.pattern()]);
    let error = fails(egress().fetch(&access, get(server.url("/"))).await, ErrorKind::Protocol);
    assert!(error.message().contains("encoded answer (content-encoding)"), "{error}");
}

#[tokio::test]
async fn a_secret_bound_elsewhere_is_denied() {
    let server = Server::start(echo).await;
    let bound = [
        format!("POST http://{}/", server.address),
        format!("* http://{}/other", server.address),
        "* http://api.example.com/*".to_owned(),
    ];
    let bound: Vec<&str> = bound.iter().map(String::as_str).collect();
    let access = with_secret(access(&[&server.pattern()]), "KEY", VALUE, &bound);
    let request = with_header(get(server.url("/?q")), "x-key", "{secret:KEY}");
    let error = fails(egress().fetch(&access, request).await, ErrorKind::Denied);
    assert_eq!(
        error.message(),
        format!(
            "executor probe may not send secret KEY to GET http://{0}/; grant it with \
             secrets = [{{ name = \"KEY\", to = [\"GET http://{0}/\"] }}]",
            server.address
        )
    );
    assert_eq!(server.connections(), 0, "a denied secret reached the server");
}

#[tokio::test]
async fn unknown_and_unset_secrets_are_denied_by_name() {
    let server = Server::start(echo).await;
    let access = with_secret(access(&[&server.pattern()]), "EMPTY", "", &[&server.pattern()]);
    let request = with_header(get(server.url("/")), "x", "{secret:NOPE}");
    let error = fails(egress().fetch(&access, request).await, ErrorKind::Denied);
    assert_eq!(error.message(), "executor probe may not use secret NOPE; grant it with secrets = [\"NOPE\"]");
    let request = with_header(get(server.url("/")), "x", "{secret:EMPTY}");
    let error = fails(egress().fetch(&access, request).await, ErrorKind::Denied);
    assert!(error.message().starts_with("secret EMPTY of executor probe is not set"), "{error}");
    for broken in ["{secret:", "{secret:}", "{secret:A B}", "{secret:KEY"] {
        let request = with_header(get(server.url("/")), "x", broken);
        fails(egress().fetch(&access, request).await, ErrorKind::InvalidRequest);
    }
    assert_eq!(server.connections(), 0, "a refused secret reached the server");
}

#[tokio::test]
async fn a_body_is_sent_as_written() {
    let server = Server::start(echo).await;
    let access = with_secret(access(&[&server.pattern()]), "KEY", VALUE, &[&server.pattern()]);
    let response =
        egress().fetch(&access, crate::post(server.url("/"), "{secret:KEY}")).await.expect("an answer");
    assert!(text(&response).ends_with("\n\n{secret:KEY}"), "{}", text(&response));
}

#[test]
fn values_are_checked_and_never_shown() {
    let mut secrets = Secrets::new();
    let rejected = secrets.insert("KEY", SecretString::from("line\nbreak"), vec![]);
    assert_eq!(rejected, Err(InvalidSecret::Value { name: "KEY".into() }));
    let rejected = secrets.insert("K}Y", SecretString::from("x"), vec![]);
    assert_eq!(rejected, Err(InvalidSecret::Name { name: "K}Y".into() }));
    secrets.insert("KEY", SecretString::from(VALUE), vec![]).expect("a secret");
    secrets.insert("EMPTY", SecretString::from(""), vec![]).expect("a secret");

    assert!(secrets.is_set("KEY") && !secrets.is_set("EMPTY") && !secrets.is_set("NOPE"));
    assert_eq!(secrets.names().collect::<Vec<_>>(), ["EMPTY", "KEY"]);
    assert_eq!(secrets.values().count(), 1);
    let access = Access { secrets, ..Access::default() };
    let debug = format!("{access:?}");
    assert!(debug.contains("KEY") && !debug.contains(VALUE), "{debug}");
}
