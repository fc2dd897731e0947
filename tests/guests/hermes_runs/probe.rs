//! The probe at load: does the gateway have runs?

use talaria_fakes::{FakeRuns, Reply, free_port};
use talaria_rig::Rig;
use talaria_turns::{Failure, FailureKind};

use super::{KEY, rig};

async fn probe(runs: &FakeRuns) -> Result<(), Failure> {
    rig(runs).await.executor().setup().await
}

#[tokio::test]
async fn a_gateway_with_runs_is_ready() {
    let runs = FakeRuns::start([]).await;
    runs.want_key("a-key-of-16-chars");
    rig(&runs).await.secret(KEY, "a-key-of-16-chars").executor().setup().await.unwrap();
    assert_eq!(runs.gateway().request().path, "/v1/capabilities");
}

#[tokio::test]
async fn a_gateway_without_runs_is_ready_too() {
    for feature in ["run_submission", "run_status", "run_events_sse", "run_stop", "run_approval_response"] {
        let runs = FakeRuns::start([]).await;
        runs.lacks(feature);
        probe(&runs).await.unwrap();
    }
    let runs = FakeRuns::start([]).await;
    runs.grow_old();
    probe(&runs).await.unwrap();
    for body in ["{}", "null", "no json", r#"{"features":[]}"#] {
        runs.next("GET", "/capabilities", Reply::status(200, "application/json", body));
        probe(&runs).await.expect(body);
    }
}

#[tokio::test]
async fn an_address_without_any_api_is_not_ready() {
    let runs = FakeRuns::start([]).await;
    runs.grow_old();
    runs.next("GET", "/models", Reply::status(404, "text/plain", "404: Not Found"));
    let failure = probe(&runs).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Upstream, "loaded, not ready");
    assert_eq!(
        failure.message,
        "[hermes-agent error] neither /capabilities nor /models is there; is `base_url` the gateway's API?"
    );
    runs.next("GET", "/models", Reply::status(500, "text/plain", "500 Internal Server Error"));
    assert!(probe(&runs).await.is_err());
}

#[tokio::test]
async fn a_gateway_that_is_down_or_rejects_the_key_is_not_ready() {
    let runs = FakeRuns::start([]).await;
    runs.want_key("a-key-of-16-chars");
    let failure = probe(&runs).await.unwrap_err();
    assert!(failure.message.starts_with("[hermes-agent error 401] "), "{failure}");
    let address = format!("127.0.0.1:{}", free_port());
    let rig = Rig::new("hermes-runs").await.setting("base_url", format!("http://{address}/v1"));
    let failure = rig.executor().setup().await.unwrap_err();
    assert_eq!(failure.message, format!("[hermes-agent unreachable] connection refused ({address})"));
}

#[tokio::test]
async fn a_grant_without_the_route_is_not_ready() {
    let runs = FakeRuns::start([]).await;
    let grant = format!("POST {}/runs", runs.base_url());
    let failure = rig(&runs).await.grant([grant.as_str()]).executor().setup().await.unwrap_err();
    assert!(failure.message.contains("a call of its probe was denied"), "{failure}");
    assert_eq!(runs.gateway().connections(), 0);
}
