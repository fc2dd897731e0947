//! `hermes-runs` at a gateway that has no runs: the real one, with a relay before it that hides them.

use talaria_fakes::Provider;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::bridge::{Bridge, message};
use crate::cases::{COMPLETED, answer, history, in_context, words};
use crate::partner::{Partner, readiness};
use crate::stream::Stream;

const EXECUTOR: &str = "hermes-runs";
const HIDDEN: [&str; 2] = ["/v1/capabilities", "/v1/runs"];
const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Answers 404 for what is hidden and passes on the rest, one request a connection.
async fn relay(mut client: TcpStream, gateway: String) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    if HIDDEN.iter().any(|hidden| path.starts_with(hidden)) {
        return client.write_all(NOT_FOUND).await;
    }
    let mut server = TcpStream::connect(gateway).await?;
    server.write_all(head.replacen("\r\n", "\r\nconnection: close\r\n", 1).as_bytes()).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}

/// A bridge before that relay.
struct Older {
    bridge: Bridge,
    _relay: JoinSet<()>,
    _folder: tempfile::TempDir,
}

async fn older() -> Older {
    let hermes = Partner::shared().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let gateway = hermes.gateway.api().trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    let mut accepting = JoinSet::new();
    accepting.spawn(async move {
        let mut relays = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            relays.spawn(relay(client, gateway.clone()));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let bridge = hermes.bridge(folder.path(), EXECUTOR).env("HERMES_API_BASE", &base).up();
    assert_eq!(readiness(&bridge, EXECUTOR), "ready", "{}", bridge.banner);
    Older { bridge, _relay: accepting, _folder: folder }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_runs_is_ready_and_answers() {
    let older = older().await;
    let bridge = &older.bridge;
    assert_eq!(answer(bridge, message(&Provider::turn("say hello there").0)).await, "hello there");
    assert_eq!(answer(bridge, in_context("older", "say blue")).await, "blue");
    let streamed = Stream::open(bridge, in_context("older", "say green")).await.end().await;
    assert_eq!((streamed.state.as_str(), streamed.text.as_str()), (COMPLETED, "green"));
    assert_eq!(words(&history(bridge, "older").await), ["say blue", "blue", "say green", "green"]);
}
