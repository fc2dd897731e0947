//! A guest can reach only what was granted.

use talaria_fakes::{FakeGateway, Reply};
use talaria_rig::Rig;

#[tokio::test]
async fn a_call_that_is_not_granted_never_leaves_the_host() {
    let gateway = FakeGateway::always(Reply::completion("hi")).await;
    let url = format!("{}/x", gateway.base_url());
    let rig = Rig::new("probe").await.grant([]);
    let ran = rig.run(&format!("fetch {url}")).await;
    assert!(ran.text().starts_with("ErrorKind::Denied"), "{}", ran.text());
    assert!(ran.text().contains(&format!("egress = [\"GET {url}\"]")), "the line to add: {}", ran.text());
    assert_eq!(gateway.connections(), 0);
    assert!(gateway.requests().is_empty());
}

#[tokio::test]
async fn a_secret_is_sent_only_to_its_bound_destinations() {
    let gateway = FakeGateway::always(Reply::status(200, "text/plain", "ok")).await;
    let url = format!("{}/x", gateway.base_url());
    let grant = format!("GET {url}");

    let bound = Rig::new("probe").await.grant([grant.as_str()]).secret("PROBE_KEY", "s3cr3t-value");
    assert_eq!(bound.run("has-secret PROBE_KEY").await.text(), "true");
    assert_eq!(bound.run(&format!("fetch-with-key {url}")).await.text(), "200 ok");
    assert_eq!(gateway.request().header("authorization"), Some("Bearer s3cr3t-value"));

    let without = Rig::new("probe").await.grant([grant.as_str()]);
    assert_eq!(without.run("has-secret PROBE_KEY").await.text(), "false");
    let ran = without.run(&format!("fetch-with-key {url}")).await;
    assert!(ran.text().starts_with("ErrorKind::Denied"), "{}", ran.text());
    assert_eq!(gateway.requests().len(), 1, "it was not sent");
}

#[tokio::test]
async fn there_are_no_files_and_no_environment() {
    let rig = Rig::new("probe").await;
    assert_eq!(rig.run("env").await.text(), "0");
    let file = rig.run("file /etc/passwd").await;
    assert!(file.text().starts_with("Some("), "{}", file.text());
}

#[tokio::test]
async fn server_sent_events_are_parsed_by_the_host() {
    let body = ": hello\n\nevent: a\nid: 7\ndata: one\ndata: two\n\ndata: three\n\n";
    let gateway = FakeGateway::always(Reply::status(200, "text/event-stream", body)).await;
    let url = format!("{}/x", gateway.base_url());
    let rig = Rig::new("probe").await.grant([format!("GET {url}").as_str()]);
    let ran = rig.run(&format!("sse {url}")).await;
    let seen: serde_json::Value = serde_json::from_str(ran.text()).unwrap();
    assert_eq!(
        seen,
        serde_json::json!([
            { "event": "a", "data": "one\ntwo", "id": "7" },
            { "event": "message", "data": "three", "id": null },
        ])
    );
}
