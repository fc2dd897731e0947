//! A gateway without runs, as older ones are: the real one, behind a relay that hides them.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::bridge::Bridge;
use crate::partner::{Partner, readiness};

const HIDDEN: [&str; 2] = ["/v1/capabilities", "/v1/runs"];
const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Answers 404 for the hidden paths and forwards the rest, one request a connection.
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

/// A bridge whose gateway is behind that relay.
pub(crate) struct Older {
    pub(crate) bridge: Bridge,
    _relay: JoinSet<()>,
    _folder: tempfile::TempDir,
}

/// Starts the relay, and a bridge with this executor.
pub(crate) async fn behind_relay(executor: &str) -> Older {
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
    let bridge = hermes.bridge(folder.path(), executor).env("HERMES_API_BASE", &base).up();
    assert_eq!(readiness(&bridge, executor), "ready", "{}", bridge.banner);
    Older { bridge, _relay: accepting, _folder: folder }
}
