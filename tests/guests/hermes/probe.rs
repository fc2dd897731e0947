//! The probe at load: can the endpoint be reached, and does it take the key?

use talaria_fakes::{FakeGateway, Reply, free_port};
use talaria_rig::Rig;
use talaria_turns::{Failure, FailureKind};

use super::{KEY, MODEL, polite, rig};

async fn probe(reply: Reply) -> Result<(), Failure> {
    rig(&FakeGateway::always(reply).await).await.executor().setup().await
}

#[tokio::test]
async fn the_endpoint_is_asked_for_its_models_with_the_key() {
    let endpoint = FakeGateway::always(Reply::json(&serde_json::json!({ "data": [] }))).await;
    rig(&endpoint).await.secret(KEY, "sk-or-0123456789abcdef").executor().setup().await.unwrap();
    let request = endpoint.request();
    assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/v1/models"));
    assert_eq!(request.header("authorization"), Some("Bearer sk-or-0123456789abcdef"));
}

#[tokio::test]
async fn an_endless_list_of_models_is_not_read() {
    let stream = talaria_fakes::Stream::new().bytes("x".repeat(1 << 20)).hang();
    probe(stream.into()).await.unwrap();
}

#[tokio::test]
async fn an_endpoint_without_a_list_is_ready() {
    probe(Reply::status(404, "text/plain", "no")).await.unwrap();
    probe(Reply::status(405, "text/plain", "no")).await.unwrap();
}

#[tokio::test]
async fn a_rejected_key_is_named() {
    for status in [401, 403] {
        let failure = probe(Reply::status(status, "text/plain", "no")).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Upstream, "loaded, not ready");
        assert!(failure.message.contains(KEY) && failure.message.contains("refuses the key"), "{failure}");
    }
}

#[tokio::test]
async fn an_endpoint_that_is_down_is_not_ready() {
    let failure = probe(Reply::status(503, "text/plain", "no")).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Upstream);
    let address = format!("127.0.0.1:{}", free_port());
    let rig =
        Rig::new("hermes").await.setting("base_url", format!("http://{address}/v1")).setting("model", MODEL);
    let failure = rig.executor().setup().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Upstream);
    assert!(failure.message.contains(&format!("connection refused ({address})")), "{failure}");
}

#[tokio::test]
async fn a_grant_without_the_list_is_not_ready() {
    let endpoint = polite().await;
    let grant = format!("POST {}/chat/completions", endpoint.base_url());
    let failure = rig(&endpoint).await.grant([grant.as_str()]).executor().setup().await.unwrap_err();
    assert!(failure.message.contains("a call of its probe was denied"), "{failure}");
    assert_eq!(endpoint.connections(), 0);
}
