//! Secrets reach the server that they are for, and nobody else.

use std::sync::Arc;

use secrecy::SecretString;
use serde_json::json;
use talaria_egress::{Config, Egress, Names};
use talaria_fakes::FakeToolServer;
use talaria_mcp::{RemoteConfig, RemoteServer};
use talaria_redact::Redactor;

use crate::kit::{Client, config};

#[tokio::test]
async fn secrets_are_sent_to_the_server_and_masked_in_what_it_says() {
    let server = FakeToolServer::start().await;
    let token = Some(SecretString::from("token-of-the-tools"));
    let headers = vec![("X-Key".to_owned(), SecretString::from("key-of-the-tools"))];
    let client = Client::of(RemoteConfig { token, headers, ..config(&server.url()) });
    Redactor::process().learn(["other-secret-of-the-host"]);
    let said = client.call("docs__echo", json!({ "x": "see other-secret-of-the-host" })).await.unwrap();
    assert!(!said.contains("key-of-the-tools") && !said.contains("other-secret"), "{said}");
    for request in server.requests() {
        assert_eq!(request.headers["authorization"], "Bearer token-of-the-tools");
        assert_eq!(request.headers["x-key"], "key-of-the-tools");
    }
}

#[test]
fn a_header_that_cannot_be_sent_is_an_error_at_once() {
    for (name, value) in [("Host", "x"), ("content-length", "1"), ("a b", "x"), ("x-key", "a\nb")] {
        let headers = vec![(name.to_owned(), SecretString::from(value))];
        let config = RemoteConfig { headers, ..config("http://127.0.0.1:1/mcp") };
        let made = RemoteServer::new(config, &Egress::new(Config::default()), Arc::new(|_, _| ()));
        assert!(made.is_err(), "{name}");
    }
}

#[tokio::test]
async fn a_name_leads_into_a_private_network_only_if_the_operator_says_so() {
    let server = FakeToolServer::start().await;
    let url = server.url().replace("127.0.0.1", "tools.example");
    let names = || Names::Given(Arc::new(|_: &str| vec!["127.0.0.1".parse().unwrap()]));
    let egress = || Config { names: names(), ..Config::default() };
    let client = Client::with_egress(config(&url), egress());
    let fault = client.server.check().await.unwrap_err();
    assert!(fault.fix.contains("`private = true`"), "{fault:?}");
    assert!(server.requests().is_empty(), "nothing was sent");
    let client = Client::with_egress(RemoteConfig { private: true, ..config(&url) }, egress());
    client.offers(&["docs__echo", "docs__fail"]).await;
}
