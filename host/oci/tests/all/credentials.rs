//! Registries that ask for credentials.

use talaria_fakes::{FakeRegistry, Reply};
use talaria_oci::{Access, Credentials, Error, Options};

use crate::{component, options, pull};

pub(crate) fn known(host: &str) -> Options {
    let credentials = Credentials { username: "robot".into(), token: "secret".to_owned().into() };
    let access = Access { credentials: Some(credentials), insecure: false };
    Options { registries: [(host.to_owned(), access)].into(), ..options() }
}

#[tokio::test]
async fn a_token_is_fetched_once_and_then_sent() {
    let registry = FakeRegistry::start().await;
    registry.lock("robot", "secret");
    let wasm = component("private");
    let reference = registry.push(wasm.clone());
    assert_eq!(pull(&reference, &known(&registry.host())).await.unwrap(), wasm);
    let paths: Vec<_> = registry.requests().iter().map(|request| request.path.clone()).collect();
    assert_eq!(paths.len(), 4, "rejected, token, manifest, layer: {paths:?}");

    let error = pull(&reference, &options()).await.unwrap_err().to_string();
    assert!(error.contains(&format!("set `[oci.registry.\"{}\"]`", registry.host())), "{error}");
    registry.lock("robot", "another");
    let error = pull(&reference, &known(&registry.host())).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("secret\""), "{error:?}");
    let elsewhere = Options { registries: known("ghcr.io").registries, ..options() };
    registry.lock("robot", "secret");
    assert!(pull(&reference, &elsewhere).await.is_err(), "credentials are for their registry");
}

#[tokio::test]
async fn a_registry_may_ask_for_the_password() {
    let registry = FakeRegistry::start().await;
    let wasm = component("basic");
    let reference = registry.push(wasm.clone());
    registry.spoil(|request| {
        let known = request.header("authorization") == Some("Basic cm9ib3Q6c2VjcmV0");
        (!known).then(|| {
            Reply::status(401, "text/plain", "").header("www-authenticate", "Basic realm=\"registry\"")
        })
    });
    assert_eq!(pull(&reference, &known(&registry.host())).await.unwrap(), wasm);
    assert!(matches!(pull(&reference, &options()).await, Err(Error::Denied { .. })));
}

#[tokio::test]
async fn a_bad_token_server_or_token_is_an_error() {
    let registry = FakeRegistry::start().await;
    let reference = registry.push(component("a"));
    for realm in ["ftp://tokens.example/", "tokens", ""] {
        let challenge = format!("Bearer realm=\"{realm}\"");
        registry.spoil(move |_| {
            Some(Reply::status(401, "text/plain", "").header("www-authenticate", &challenge))
        });
        let denied = pull(&reference, &known(&registry.host())).await;
        assert!(matches!(denied, Err(Error::Denied { .. })), "{realm}: {denied:?}");
    }
    for token in ["", "[]", "{}", "{\"token\":7}", "{\"token\":\"a\\nb\"}"] {
        let host = registry.host();
        registry.spoil(move |request| {
            let challenge = format!("Bearer realm=\"http://{host}/token\"");
            Some(match request.path.starts_with("/token") {
                true => Reply::status(200, "application/json", token),
                false => Reply::status(401, "text/plain", "").header("www-authenticate", &challenge),
            })
        });
        let denied = pull(&reference, &known(&registry.host())).await;
        assert!(matches!(denied, Err(Error::Denied { .. })), "{token}: {denied:?}");
    }
}
