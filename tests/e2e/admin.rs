//! The admin server: liveness, readiness and metrics.
//!
//! The tests need several threads, because starting a bridge blocks one while the gateway answers its probe.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Reply, soon};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::bridge::{Bridge, Start, admin, request, run, stderr, talaria};

/// Polls `/readyz` until it returns the wanted status.
async fn ready(bridge: &Bridge, wanted: u16) -> Value {
    soon("readiness follows", async {
        loop {
            let (status, report) = admin(bridge, "GET", "/readyz").await;
            if status == wanted {
                return report;
            }
        }
    })
    .await
}

#[tokio::test]
async fn the_demo_is_ready_and_counts_its_turns() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    assert_eq!(admin(&bridge, "GET", "/healthz").await, (200, json!({ "status": "ok" })));
    let (status, report) = admin(&bridge, "GET", "/readyz").await;
    assert_eq!(
        (status, &report["ready"], &report["default"]),
        (200, &json!(true), &json!("chat-completions"))
    );
    assert_eq!(report["executors"]["chat-completions"], json!({ "state": "ready" }));
    assert_eq!(report["store"], json!({ "state": "ready" }));

    bridge.say("hello").await;
    bridge.say("fail please").await;
    let (status, metrics) = admin(&bridge, "GET", "/metrics").await;
    assert_eq!(status, 200);
    let metrics = metrics.as_str().expect("text");
    for line in [
        "talaria_turns_started_total{executor=\"chat-completions\"} 2",
        "talaria_turns_ended_total{executor=\"chat-completions\",state=\"completed\"} 1",
        "talaria_turns_ended_total{executor=\"chat-completions\",state=\"failed\"} 1",
        "talaria_turn_duration_seconds_count{executor=\"chat-completions\"} 2",
        "talaria_requests_refused_total{reason=\"turns\"} 0",
        "talaria_streams_open 0",
        "talaria_executor_ready{executor=\"chat-completions\"} 1",
    ] {
        assert!(metrics.lines().any(|said| said == line), "{line} is not in:\n{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_follows_the_upstream() {
    let gateway = FakeGateway::always(Reply::completion("hi")).await;
    let folder = tempfile::tempdir().unwrap();
    let base = gateway.base_url();
    let bridge = Start::new(folder.path())
        .config("[executors]\nprobe_every = \"20ms\"")
        .env("HERMES_API_BASE", &base)
        .up();
    ready(&bridge, 200).await;

    drop(gateway);
    let report = ready(&bridge, 503).await;
    let now = &report["executors"]["chat-completions"];
    assert_eq!((&report["ready"], &now["state"]), (&json!(false), &json!("not-ready")));
    assert!(now["reason"].as_str().unwrap().contains("unreachable"), "{report}");
    assert_eq!(admin(&bridge, "GET", "/healthz").await.0, 200, "it is still alive");

    let address = base.trim_start_matches("http://").trim_end_matches("/v1");
    let again = TcpListener::bind(address).await.unwrap();
    let serving = async {
        loop {
            let (mut stream, _) = again.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        }
    };
    tokio::select! {
        _ = ready(&bridge, 200) => {}
        () = serving => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_shuts_down_is_alive_and_not_ready() {
    let release = Arc::new(Notify::new());
    let gateway = FakeGateway::always(Reply::completion("late").slow(&release)).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).env("HERMES_API_BASE", &gateway.base_url()).up();
    let (answer, ()) = tokio::join!(bridge.say("wait"), async {
        gateway.asked(1).await;
        let (_, metrics) = admin(&bridge, "GET", "/metrics").await;
        assert!(metrics.as_str().unwrap().contains("\ntalaria_turns_under_way 1\n"), "{metrics}");
        bridge.terminate();
        let report = ready(&bridge, 503).await;
        assert_eq!((&report["draining"], &report["store"]["state"]), (&json!(true), &json!("ready")));
        assert_eq!(admin(&bridge, "GET", "/healthz").await.0, 200);
        release.notify_waiters();
        release.notify_one();
    });
    assert_eq!(answer, "late");
}

#[tokio::test]
async fn a_token_protects_everything_but_the_open_paths() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path())
        .config("[admin]\nlisten = \"127.0.0.1:0\"\ntoken = { env = \"ADMIN_TOKEN\" }")
        .env("ADMIN_TOKEN", "admin-token-0123456789")
        .arg("--demo")
        .up();
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(admin(&bridge, "GET", path).await.0, 200, "a kubelet and a scraper need {path}");
    }
    for path in ["/executors", "/push/undelivered"] {
        assert_eq!(admin(&bridge, "GET", path).await.0, 401, "{path}");
        let right = [("authorization", "Bearer admin-token-0123456789")];
        let url = bridge.banner["admin"].as_str().unwrap();
        assert_eq!(request(url, "GET", path, &right, "").await.status, 200, "{path}");
    }
}

#[test]
fn names_a_configured_port_that_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    std::fs::write(folder.path().join("talaria.toml"), format!("[admin]\nlisten = \"{address}\"")).unwrap();
    let output = run(talaria(folder.path()).args(["serve", "--listen", "127.0.0.1:0"]));
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains(&format!("cannot listen on {address}; choose another with `admin.listen`")),
        "{said}"
    );
}
