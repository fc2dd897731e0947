//! A registry that is wrong, broken, slow, huge or gone costs a bounded time, and never yields another component.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use talaria_egress::{Config, Egress, Names};
use talaria_fakes::{FakeRegistry, Recorded, Reply, Stream};
use talaria_oci::{Access, Error, Options, Progress};

use crate::{component, options, pull, pull_with_progress};

fn is_blob(request: &Recorded) -> bool {
    request.path.contains("/blobs/")
}

#[tokio::test]
async fn rejects_bytes_that_do_not_have_the_digest() {
    let registry = FakeRegistry::start().await;
    let reference = registry.push(component("right"));
    registry.spoil(|request| {
        is_blob(request).then(|| Reply::status(200, "application/wasm", component("wrong")))
    });
    let error = pull(&reference, &options()).await.unwrap_err();
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");

    registry.spoil(|request| {
        (!is_blob(request)).then(|| Reply::json(&json!({ "schemaVersion": 2, "layers": [] })))
    });
    let error = pull(&reference, &options()).await.unwrap_err();
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    assert!(error.to_string().contains(&registry.host()), "the error names the registry: {error}");
}

#[tokio::test]
async fn temporary_failures_are_retried_a_few_times() {
    for cut in [false, true] {
        let registry = FakeRegistry::start().await;
        let wasm = component("in the end");
        let reference = registry.push(wasm.clone());
        let tries = AtomicUsize::new(0);
        registry.spoil(move |request| {
            let fails = is_blob(request) && tries.fetch_add(1, Ordering::SeqCst) < 2;
            fails.then(|| match cut {
                true => Stream::default().bytes("\0asm").cut().into(),
                false => Reply::status(503, "text/plain", "soon"),
            })
        });
        assert_eq!(pull(&reference, &options()).await.unwrap(), wasm, "cut: {cut}");
        assert_eq!(registry.requests().len(), 4);
    }
    let registry = FakeRegistry::start().await;
    let reference = registry.push(component("never"));
    registry.spoil(|_| Some(Reply::status(500, "text/plain", "broken")));
    let error = pull(&reference, &options()).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { why, .. } if why.contains("500")), "{error}");
    assert_eq!(registry.requests().len(), 3);
}

#[tokio::test]
async fn a_registry_that_is_gone_or_hangs_is_an_error() {
    let registry = FakeRegistry::start().await;
    let reference = registry.push(component("a"));
    registry.spoil(|_| Some(Reply::hang()));
    let hurried = Options { timeout: Duration::from_millis(300), ..options() };
    let error = pull(&reference, &hurried).await.unwrap_err();
    assert!(matches!(error, Error::Late { .. }), "{error}");

    registry.spoil(|request| is_blob(request).then(|| Stream::default().bytes("\0asm").hang().into()));
    assert!(matches!(pull(&reference, &hurried).await, Err(Error::Late { .. })), "in the middle of a layer");

    drop(registry);
    let error = pull(&reference, &options()).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { why, .. } if why.contains("refused")), "{error}");
}

#[tokio::test]
async fn not_found_denied_and_unusable_are_different_errors() {
    let registry = FakeRegistry::start().await;
    let missing = format!("oci://{}/acme/agent@sha256:{}", registry.host(), "0".repeat(64));
    assert!(matches!(pull(&missing, &options()).await, Err(Error::NotFound { .. })));
    registry.spoil(|_| Some(Reply::status(403, "text/plain", "no")));
    assert!(matches!(pull(&missing, &options()).await, Err(Error::Denied { .. })));
    registry
        .spoil(|_| Some(Reply::status(401, "text/plain", "who?").header("www-authenticate", "Negotiate")));
    assert!(matches!(pull(&missing, &options()).await, Err(Error::Denied { .. })));
    registry.spoil(|_| Some(Reply::status(418, "text/plain", "tea")));
    assert!(matches!(pull(&missing, &options()).await, Err(Error::Unreachable { .. })));
    assert_eq!(registry.requests().len(), 4, "none of these is retried");
}

#[tokio::test]
async fn a_component_that_is_too_large_is_rejected_before_it_is_read() {
    let registry = FakeRegistry::start().await;
    let large = Bytes::from(vec![0; (1 << 20) + 1]);
    let reference = registry.push(large);
    let error = pull(&reference, &options()).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { most, .. } if most == 1 << 20), "{error}");
    assert_eq!(registry.requests().len(), 1, "the manifest says how large it is");

    // One that sends more than it said, and a manifest without an end.
    let reference = registry.push(component("small"));
    registry
        .spoil(|request| is_blob(request).then(|| Reply::status(200, "application/wasm", vec![0; 1 << 20])));
    assert!(matches!(pull(&reference, &options()).await, Err(Error::Odd { .. })));
    registry.spoil(|_| Some(Reply::status(200, "application/json", vec![b' '; 5 << 20])));
    assert!(matches!(pull(&reference, &options()).await, Err(Error::Odd { .. })));
}

#[tokio::test]
async fn redirects_are_followed_without_credentials_and_not_for_ever() {
    let store = FakeRegistry::start().await;
    let registry = FakeRegistry::start().await;
    registry.lock("robot", "secret");
    let wasm = component("elsewhere");
    let reference = registry.push(wasm.clone());
    store.push(wasm.clone());
    let host = store.host();
    registry.spoil(move |request| {
        let known = request.header("authorization").is_some_and(|value| value.starts_with("Bearer"));
        (is_blob(request) && known).then(|| {
            let to = format!("http://{host}{}?X-Signature=a%2Fb", request.path);
            Reply::status(307, "text/plain", "").header("location", &to)
        })
    });
    store.spoil(|request| {
        let path = request.path.strip_suffix("?X-Signature=a%2Fb")?;
        assert!(path.contains("/blobs/"));
        Some(Reply::status(200, "application/wasm", component("elsewhere")))
    });
    let options = crate::credentials::known(&registry.host());
    assert_eq!(pull(&reference, &options).await.unwrap(), wasm);
    let there = store.requests();
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].header("authorization"), None, "the store belongs to somebody else");

    registry.spoil(|request| {
        Some(Reply::status(302, "text/plain", "").header("location", request.path.as_str()))
    });
    let error = pull(&reference, &options).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { why, .. } if why.contains("redirects")), "{error}");
    for location in ["file:///etc/passwd", "//elsewhere/x", ""] {
        registry.spoil(move |_| Some(Reply::status(302, "text/plain", "").header("location", location)));
        assert!(matches!(pull(&reference, &options).await, Err(Error::Unreachable { .. })), "{location}");
    }
}

#[tokio::test]
async fn a_public_registry_cannot_lead_to_loopback_or_private_networks() {
    let here = FakeRegistry::start().await;
    let registry = FakeRegistry::start().await;
    let pushed = registry.push(component("elsewhere"));
    let port = registry.host().rsplit_once(':').unwrap().1.to_owned();
    let named = format!("registry.test:{port}");
    let reference = pushed.replace(&registry.host(), &named);
    let names = Names::Given(Arc::new(|_name| vec!["127.0.0.1".parse().unwrap()]));
    let access = Access { credentials: None, insecure: true };
    let options = Options {
        client: Egress::new(Config { names, ..Config::default() }),
        registries: [(named, access)].into(),
        ..options()
    };
    assert_eq!(pull(&reference, &options).await.unwrap(), component("elsewhere"), "the operator named it");

    let there = here.host();
    let port = there.rsplit_once(':').unwrap().1.to_owned();
    let inside = [
        there.clone(),
        format!("localhost:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("elsewhere.test:{port}"),
    ];
    for to in inside.into_iter().chain(["10.0.0.1".to_owned(), "169.254.169.254".into(), "0.0.0.0".into()]) {
        for by in ["redirect", "token"] {
            let url = format!("http://{to}/x");
            registry.spoil(move |_| {
                let realm = format!("Bearer realm=\"{url}\"");
                Some(match by {
                    "redirect" => Reply::status(307, "text/plain", "").header("location", &url),
                    _ => Reply::status(401, "text/plain", "").header("www-authenticate", &realm),
                })
            });
            let error = pull(&reference, &options).await.unwrap_err();
            assert!(
                matches!(&error, Error::Unreachable { why, .. } if why.contains("to ")),
                "{to} by {by}: {error}"
            );
        }
    }
    assert_eq!(here.requests().len(), 0);
}

#[tokio::test]
async fn progress_is_reported_about_ten_times() {
    let registry = FakeRegistry::start().await;
    let wasm = component(&"x".repeat(900_000));
    let reference = registry.push(wasm.clone());
    let told: Mutex<Vec<Progress>> = Mutex::default();
    pull_with_progress(&reference, &options(), &|progress| told.lock().unwrap().push(progress))
        .await
        .unwrap();
    let told = told.into_inner().unwrap();
    let total = wasm.len() as u64;
    assert_eq!(told.first(), Some(&Progress { received: 0, total }));
    assert_eq!(told.last(), Some(&Progress { received: total, total }));
    assert!(told.len() <= 11, "{told:?}");
    assert!(told.windows(2).all(|two| two[0].received < two[1].received), "{told:?}");
}
