//! A fake HTTP proxy on loopback: it opens tunnels, all of them to one place, and records what it was asked for.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::port::listen;

/// A proxy. Dropping it closes its port and all its tunnels.
pub struct FakeProxy {
    address: SocketAddr,
    asked: Asked,
    _accepting: JoinSet<()>,
}

type Asked = Arc<Mutex<Vec<String>>>;

// === impl FakeProxy ===

impl FakeProxy {
    /// A proxy that leads to this server, whatever it is asked for.
    pub async fn to(server: SocketAddr) -> Self {
        Self::start(Some(server), "HTTP/1.1 200 Connection established\r\nvia: fake\r\n\r\n".into()).await
    }

    /// A proxy that answers with these bytes and opens no tunnel.
    pub async fn answering(head: &str) -> Self {
        Self::start(None, head.to_owned()).await
    }

    async fn start(server: Option<SocketAddr>, answer: String) -> Self {
        let listener = listen().await;
        let address = listener.local_addr().unwrap();
        let asked = Asked::default();
        let (seen, mut accepting) = (Arc::clone(&asked), JoinSet::new());
        accepting.spawn(async move {
            let mut tunnels = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                tunnels.spawn(serve(stream, server, answer.clone(), Arc::clone(&seen)));
            }
        });
        Self { address, asked, _accepting: accepting }
    }

    /// The value of `HTTPS_PROXY`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The heads of the requests so far.
    #[must_use]
    pub fn heads(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The destinations that tunnels were asked for.
    #[must_use]
    pub fn destinations(&self) -> Vec<String> {
        let named = |head: &String| Some(head.strip_prefix("CONNECT ")?.split(' ').next()?.to_owned());
        self.heads().iter().filter_map(named).collect()
    }
}

async fn serve(mut stream: TcpStream, server: Option<SocketAddr>, answer: String, asked: Asked) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(String::from_utf8_lossy(&head).into_owned());
    if stream.write_all(answer.as_bytes()).await.is_err() {
        return;
    }
    if let Some(server) = server
        && let Ok(mut upstream) = TcpStream::connect(server).await
    {
        let _closed = copy_bidirectional(&mut stream, &mut upstream).await;
    }
}
