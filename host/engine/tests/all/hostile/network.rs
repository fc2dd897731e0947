//! Guests that attack the network and secrets.

use std::sync::Arc;

use talaria_egress::{Access, Config, Egress, Names, SecretString, Secrets};
use talaria_engine::{Engine, EngineConfig, Executor, GrantedTools, Spec};

use super::*;

async fn polite() -> FakeGateway {
    FakeGateway::always(Reply::status(200, "text/plain", "ok")).await
}

#[tokio::test]
async fn every_part_of_a_grant_is_enforced() {
    let gateway = polite().await;
    let base = gateway.base_url();
    let rig = hostile().await.grant([format!("GET {base}/a/*").as_str()]);
    assert_eq!(rig.run(&format!("call GET {base}/a/b")).await.text(), "200 ok");
    let elsewhere = [
        format!("call POST {base}/a/b"),
        format!("call GET {base}/b"),
        format!("call GET {base}/a/../b"),
        format!("call GET {base}/a/%2e%2e/b"),
        format!("call GET {}/a/b", base.replace("http:", "https:")),
        "call GET http://127.0.0.1:1/a/b".to_owned(),
        "call GET http://169.254.169.254/latest/meta-data/".to_owned(),
        "call GET http://[::ffff:169.254.169.254]/".to_owned(),
        format!("call CONNECT {base}/a/b"),
        format!("call TRACE {base}/a/b"),
    ];
    for attack in elsewhere {
        let ran = rig.run(&attack).await;
        let told = ran.text();
        assert!(
            told.starts_with("ErrorKind::Denied") || told.starts_with("ErrorKind::InvalidRequest"),
            "{attack}: {told}"
        );
    }
    assert_eq!(gateway.requests().len(), 1);
}

#[tokio::test]
async fn a_redirect_cannot_lead_beyond_the_grant() {
    let inside = polite().await;
    let location = format!("{}/secret", inside.base_url());
    let gateway =
        FakeGateway::always(Reply::status(302, "text/plain", "there").header("location", &location)).await;
    let url = format!("{}/x", gateway.base_url());
    let ran = hostile().await.grant([format!("GET {url}").as_str()]).run(&format!("follow {url}")).await;
    assert!(ran.text().starts_with("ErrorKind::Denied"), "{}", ran.text());
    assert_eq!(
        (gateway.requests().len(), inside.connections()),
        (1, 0),
        "neither the host nor the guest got there"
    );
}

#[tokio::test]
async fn a_guest_cannot_ask_for_a_protocol_upgrade() {
    let gateway = polite().await;
    let url = format!("{}/x", gateway.base_url());
    let ran = hostile().await.grant([format!("GET {url}").as_str()]).run(&format!("upgrade {url}")).await;
    assert!(ran.text().starts_with("ErrorKind::InvalidRequest"), "{}", ran.text());
    assert_eq!(gateway.connections(), 0);
}

#[tokio::test]
async fn too_many_headers_are_rejected() {
    let gateway = polite().await;
    let url = format!("{}/x", gateway.base_url());
    let rig = hostile().await.grant([format!("GET {url}").as_str()]);
    for headers in [101, 10_000] {
        let ran = rig.run(&format!("headers {headers} {url}")).await;
        assert!(ran.text().starts_with("ErrorKind::InvalidRequest"), "{}", ran.text());
    }
    let bomb = (0..200).fold(Reply::status(200, "text/plain", "ok"), |reply, n| {
        reply.header(&format!("x-{n}"), &"x".repeat(400))
    });
    let gateway = FakeGateway::always(bomb).await;
    let url = format!("{}/x", gateway.base_url());
    let ran = hostile().await.grant([format!("GET {url}").as_str()]).run(&format!("call GET {url}")).await;
    assert!(ran.text().starts_with("ErrorKind::TooLarge"), "{}", ran.text());
}

#[tokio::test]
async fn a_secret_is_filled_in_only_for_headers_to_its_own_destinations() {
    let (mine, theirs) = (polite().await, polite().await);
    let (here, there) = (format!("{}/x", mine.base_url()), format!("{}/x", theirs.base_url()));
    let mut secrets = Secrets::new();
    let value = SecretString::from("s3cr3t-value");
    secrets.insert("PROBE_KEY", value, vec![format!("* {here}").parse().unwrap()]).unwrap();
    let patterns = [&here, &there].map(|url| format!("* {url}").parse().unwrap()).to_vec();
    let access = Access { executor: "hostile".into(), patterns, secrets, ..Access::default() };
    let run = async |text: String| {
        let rig = hostile().await.access(access.clone());
        rig.run(&text).await.text().to_owned()
    };
    assert_eq!(run(format!("secret-in-header {here}")).await, "200 ok");
    assert_eq!(mine.request().header("x-key"), Some("s3cr3t-value"));
    assert!(run(format!("secret-in-header {there}")).await.starts_with("ErrorKind::Denied"));
    assert!(run(format!("secret-in-url {here}")).await.starts_with("ErrorKind::InvalidRequest"));
    assert_eq!(run(format!("secret-in-body {there}")).await, "200 ok", "it is sent as written");
    let sent = theirs.request();
    assert_eq!(String::from_utf8_lossy(&sent.body), "key={secret:PROBE_KEY}");
}

#[tokio::test]
async fn calls_and_open_exchanges_are_bounded() {
    let gateway = FakeGateway::always(Reply::stream(["a", "b"])).await;
    let url = format!("{}/x", gateway.base_url());
    let limits = Limits { calls: 20, connections: 4, ..Limits::default() };
    let rig = hostile().await.grant([format!("* {url}").as_str()]).limits(limits);
    let ran = rig.run(&format!("open 10000 {url}")).await;
    assert!(
        ran.text().starts_with("4: ") && ran.text().ends_with("grant it with connections = 8"),
        "{}",
        ran.text()
    );
    let ran = rig.run(&format!("calls 10000 {url}")).await;
    assert!(
        ran.text().starts_with("20: ") && ran.text().ends_with("grant it with calls = 40"),
        "{}",
        ran.text()
    );
}

#[tokio::test]
async fn bytes_in_both_directions_are_bounded_over_a_whole_turn() {
    let gateway = FakeGateway::always(Reply::status(200, "text/plain", "x".repeat(1_000))).await;
    let url = format!("{}/x", gateway.base_url());
    let limits = Limits { received_bytes: 5_000, sent_bytes: 100, ..Limits::default() };
    let rig = hostile().await.grant([format!("* {url}").as_str()]).limits(limits);
    let ran = rig.run(&format!("calls 100 {url}")).await;
    assert!(ran.text().starts_with("5: "), "{}", ran.text());
    assert!(rig.run(&format!("send 100 {url}")).await.text().starts_with("200"));
    let ran = rig.run(&format!("send 101 {url}")).await;
    assert!(
        ran.text().starts_with("ErrorKind::TooLarge") && ran.text().contains("bytes_out"),
        "{}",
        ran.text()
    );
}

#[tokio::test]
async fn a_response_that_is_held_open_is_closed_with_the_turn() {
    let gateway = FakeGateway::always(Reply::stream(["a"])).await;
    let url = format!("{}/x", gateway.base_url());
    let limits = Limits { deadline: Duration::from_millis(300), ..Limits::default() };
    let rig = hostile().await.grant([format!("GET {url}").as_str()]).limits(limits);
    let ran = rig.run(&format!("hold {url}")).await;
    assert_eq!(ran.failure().kind, FailureKind::TimedOut);
    gateway.let_go().await;
}

/// The name server is the test's own, and resolves the granted name to loopback.
#[tokio::test]
async fn a_granted_name_that_resolves_to_a_private_address_is_denied() {
    let gateway = polite().await;
    let port = gateway.base_url().rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
    let names = Names::Given(Arc::new(|_name| vec!["127.0.0.1".parse().unwrap()]));
    let egress = Egress::new(Config { names, ..Config::default() });
    let cache = std::env::current_exe().unwrap().parent().unwrap().join("rig-components");
    let engine =
        EngineConfig { slots: 2, scripted_slots: 1, cache_dir: Some(cache), ..EngineConfig::default() };
    let engine = Engine::new(&engine, egress).unwrap();
    let component = Arc::new(Component::load(&engine, guest("hostile"), |_| ()).await.unwrap());
    for (private, answer) in
        [(Vec::new(), "ErrorKind::Denied"), (vec!["inside.example".parse().unwrap()], "200 ok")]
    {
        let patterns = vec![format!("GET http://inside.example:{port}/*").parse().unwrap()];
        let executor = Executor::new(Spec {
            name: "hostile".into(),
            component: Arc::clone(&component),
            settings: serde_json::Map::new(),
            access: Arc::new(Access { executor: "hostile".into(), patterns, private, ..Access::default() }),
            limits: Limits::default(),
            wasi: Wasi::default(),
            callbacks: None,
            tools: GrantedTools::default(),
        });
        let rig = hostile().await;
        let (scope, _said) = talaria_turns::Scope::new(
            8,
            tokio_util::sync::CancellationToken::new(),
            Arc::new(talaria_store::Memory::new(10)),
            talaria_turns::Principal::anyone(),
            ContextId::fresh(),
            "hostile",
        );
        let turn = rig.turn(&format!("call GET http://inside.example:{port}/x"));
        let outcome = talaria_turns::Executor::execute(&executor, turn, scope).await.unwrap();
        let told = talaria_turns::message_text(&outcome.parts);
        assert!(told.starts_with(answer), "{told}");
    }
}

#[tokio::test]
async fn wasi_http_is_denied_unless_granted_and_goes_through_the_same_egress() {
    let gateway = polite().await;
    let url = format!("{}/x", gateway.base_url());
    let rig = |http: bool| async move {
        let rig = Rig::new("wasi-fetch").await.wasi(Wasi { http, ..Wasi::default() });
        rig.secret("PROBE_KEY", "s3cr3t-value")
    };
    let base = gateway.base_url();
    let denied = rig(false).await.setting("base_url", base.clone()).run(&format!("GET {url}")).await;
    assert!(denied.text().contains("HttpRequestDenied"), "{}", denied.text());
    assert_eq!(gateway.connections(), 0);

    let granted = rig(true).await.setting("base_url", base);
    assert_eq!(granted.run(&format!("GET {url}")).await.text(), "200 ok");
    assert_eq!(granted.run(&format!("POST {url} hello")).await.text(), "200 ok");
    assert_eq!(granted.run(&format!("GET {url} with-key")).await.text(), "200 ok");
    let sent = gateway.requests();
    assert_eq!(sent[1].body, "hello");
    assert_eq!(sent[2].header("authorization"), Some("Bearer s3cr3t-value"));
    let elsewhere = granted.run("GET http://127.0.0.1:1/x").await;
    assert!(elsewhere.text().contains("HttpRequestDenied"), "{}", elsewhere.text());
}
