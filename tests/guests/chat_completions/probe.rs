//! The probe at load: can the gateway be reached?

use talaria_fakes::{FakeGateway, Reply, free_port};
use talaria_rig::Rig;
use talaria_turns::FailureKind;

use super::{KEY, polite, rig};

#[tokio::test]
async fn a_gateway_that_answers_is_ready() {
    let gateway = polite().await;
    rig(&gateway)
        .await
        .secret(KEY, "k-0123456789abcdef")
        .executor()
        .setup()
        .await
        .expect("a probe that passes");
    let asked: Vec<_> = gateway.requests().iter().map(|request| request.path.clone()).collect();
    assert_eq!(
        (gateway.probes(), asked),
        (1, vec!["/v1/models".to_owned()]),
        "its health, and whether it takes the key"
    );
    let without = polite().await;
    rig(&without).await.executor().setup().await.expect("a gateway that wants none");
    assert_eq!((without.probes(), without.requests().len()), (1, 0));
}

#[tokio::test]
async fn a_gateway_that_wants_a_key_is_not_ready_without_one() {
    let gateway = polite().await;
    gateway.want_key("k-0123456789abcdef");
    let failure = rig(&gateway).await.executor().setup().await.expect_err("every turn would get 401");
    let base = gateway.base_url();
    let expected = format!("the gateway at {base} wants a key (401); set API_SERVER_KEY to that of its .env");
    assert_eq!((failure.kind, failure.message), (FailureKind::Upstream, expected));
    rig(&gateway).await.secret(KEY, "k-0123456789abcdef").executor().setup().await.expect("the right key");
}

#[tokio::test]
async fn a_gateway_that_rejects_the_key_is_not_ready() {
    for (status, is_ready) in [(401, false), (403, false), (404, true), (500, true), (200, true)] {
        let gateway = FakeGateway::always(Reply::status(status, "text/plain", "x".repeat(100_000))).await;
        let ready = rig(&gateway).await.secret(KEY, "k-0123456789abcdef").executor().setup().await;
        assert_eq!(ready.is_ok(), is_ready, "{status}: {ready:?}");
        if let Err(failure) = ready {
            let expected = format!(
                "the gateway at {} refuses the key ({status}); set API_SERVER_KEY to that of its .env",
                gateway.base_url()
            );
            assert_eq!((failure.kind, failure.message), (FailureKind::Upstream, expected));
        }
    }
}

#[tokio::test]
async fn a_gateway_that_is_down_is_not_ready() {
    let address = format!("127.0.0.1:{}", free_port());
    let rig = Rig::new("chat-completions").await.setting("base_url", format!("http://{address}/v1"));
    let failure = rig.executor().setup().await.expect_err("nothing listens there");
    assert_eq!(failure.kind, FailureKind::Upstream, "loaded, not ready");
    assert_eq!(failure.message, format!("[hermes-agent unreachable] connection refused ({address})"));
}

#[tokio::test]
async fn a_grant_without_the_calls_of_the_probe_is_not_ready() {
    let gateway = polite().await;
    let grant = format!("POST {}/chat/completions", gateway.base_url());
    let failure = rig(&gateway).await.grant([grant.as_str()]).executor().setup().await;
    let failure = failure.expect_err("nothing was proved");
    assert_eq!(failure.kind, FailureKind::Upstream);
    let line = format!("egress = [\"GET {}/health\"]", gateway.base_url());
    assert!(failure.message.contains("was denied") && failure.message.contains(&line), "{failure}");
    assert_eq!(gateway.connections(), 0);
}

#[tokio::test]
async fn a_gateway_without_a_health_route_is_ready_and_a_broken_one_is_not() {
    let gateway = FakeGateway::start(|request| match request.path.as_str() {
        "/none/health" => Reply::status(404, "text/plain", "404: Not Found"),
        _ => Reply::status(503, "application/json", r#"{"error":{"code":"gateway_draining"}}"#),
    })
    .await;
    let base = gateway.base_url().replace("/v1", "");
    let at = async |path: &str| {
        let rig = Rig::new("chat-completions").await.setting("base_url", format!("{base}/{path}"));
        rig.executor().setup().await
    };
    at("none").await.expect("some OpenAI-shaped gateways have no such route");
    let failure = at("draining").await.expect_err("it says so itself");
    assert_eq!(failure.kind, FailureKind::Upstream);
    assert!(failure.message.starts_with("[hermes-agent error 503] "), "{}", failure.message);
}

#[tokio::test]
async fn settings_of_the_wrong_type_are_rejected() {
    let gateway = polite().await;
    let rig = rig(&gateway).await.setting("model", 42);
    let failure = rig.setup().await.expect_err("a model is a text");
    assert_eq!(failure.kind, FailureKind::InvalidSettings);
}
