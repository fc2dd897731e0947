//! A bare connection for reading streams, without a parser: a thousand of them must cost this process less than they cost
//! the bridge. For the same reason the measured loops do not use `talaria-client`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::gateway::Gateway;
use crate::http1;
use crate::mark::Mark;
use crate::process::Server;

/// A connection with at most one stream on it.
pub(crate) struct Stream {
    socket: TcpStream,
    address: SocketAddr,
    /// Bytes that were read, and how many of them were searched for marks.
    held: Vec<u8>,
    searched: usize,
    /// Whether the stream has ended and no other was requested.
    over: bool,
}

/// The ends of a response's head and of a chunked body.
const HEAD_END: &[u8] = b"\r\n\r\n";
const BODY_END: &[u8] = b"\r\n0\r\n\r\n";
/// How long turns may take to reach the upstream.
const ARRIVE: Duration = Duration::from_secs(60);
/// Bytes per read.
const READ: usize = 16 << 10;

/// Starts streamed turns and waits until they reach the upstream.
pub(crate) async fn senders(server: &Server, gateway: &Gateway, count: usize) -> Result<Vec<Stream>> {
    let before = gateway.turns();
    let mut opening = JoinSet::new();
    for _ in 0..count {
        let mut stream = Stream::connect(server.address).await?;
        opening.spawn(async move { stream.send().await.map(|()| stream) });
    }
    let mut streams = Vec::new();
    while let Some(opened) = opening.join_next().await {
        streams.push(opened?.with_context(|| server.said())?);
    }
    let arrived = timeout(ARRIVE, gateway.asked(before + count)).await;
    arrived.with_context(|| {
        format!("{} of {count} turns reached the upstream: {}", gateway.turns() - before, server.said())
    })??;
    Ok(streams)
}

// === impl Stream ===

impl Stream {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        Self::connect_with(address, None).await
    }

    /// Connects a reader that will not read, with small kernel buffers.
    pub(crate) async fn connect_small(address: SocketAddr) -> Result<Self> {
        const KERNEL: u32 = 4 << 10;
        Self::connect_with(address, Some(KERNEL)).await
    }

    async fn connect_with(address: SocketAddr, receive: Option<u32>) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = receive {
            socket.set_recv_buffer_size(bytes)?;
        }
        let socket = socket.connect(address).await?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, address, held: Vec::new(), searched: 0, over: false })
    }

    /// Sends a message and requests a stream.
    pub(crate) async fn send(&mut self) -> Result<()> {
        self.call("SendStreamingMessage", &http1::message()).await
    }

    /// Subscribes to a task.
    pub(crate) async fn subscribe(&mut self, task: &str) -> Result<()> {
        self.call("SubscribeToTask", &json!({ "id": task })).await
    }

    async fn call(&mut self, method: &str, params: &Value) -> Result<()> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.post("/", &body).await
    }

    /// Posts a request and reads the head of the response, which must be a stream. Requests pieces as artifacts, so that
    /// each mark comes once: the other forms repeat the whole answer at the end.
    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Result<()> {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\na2a-version: 1.0\r\n\
             a2a-extensions: urn:talaria:stream:artifact\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.over = false;
        self.socket.write_all(request.as_bytes()).await?;
        let end = self.find(HEAD_END).await?;
        let head: Vec<u8> = self.held.drain(..end).collect();
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let is_stream = head.starts_with("http/1.1 200") && head.contains("text/event-stream");
        ensure!(is_stream, "not a stream: {head}{}", String::from_utf8_lossy(&self.held));
        Ok(())
    }

    /// Returns the id of the stream's task from its first event. The rest of the input so far is skipped.
    pub(crate) async fn task(&mut self) -> Result<String> {
        const BEFORE: &[u8] = b"\"task\":{\"id\":\"";
        let start = self.find(BEFORE).await?;
        self.held.drain(..start);
        let end = self.find(b"\"").await?;
        let id = self.held.drain(..end).take(end - 1).collect();
        Ok(String::from_utf8(id)?)
    }

    /// Waits for a piece with a mark.
    pub(crate) async fn first(&mut self) -> Result<()> {
        let mut found = false;
        while !found {
            let more = self.marks(|_| found = true).await?;
            ensure!(more || found, "the stream ended before its first piece");
        }
        Ok(())
    }

    /// Reports the marks in the bytes so far and reads once more. Returns false at the end.
    pub(crate) async fn marks(&mut self, each: impl FnMut(Mark)) -> Result<bool> {
        if self.over {
            return Ok(false);
        }
        let new = self.held.get(self.searched..).unwrap_or_default();
        let searched = self.searched + Mark::all_in(new, each);
        if self.held.ends_with(BODY_END) {
            self.held.clear();
            self.searched = 0;
            self.over = true;
            return Ok(false);
        }
        // The end of the body may be cut off, like a mark.
        let gone = searched.min(self.held.len().saturating_sub(BODY_END.len()));
        self.held.drain(..gone);
        self.searched = searched - gone;
        Ok(self.read().await? > 0)
    }

    /// Reads to the end of the stream, so that the connection can be reused.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        while self.marks(|_| ()).await? {}
        Ok(())
    }

    /// Reads until the bytes are found. Returns the position after them.
    async fn find(&mut self, what: &[u8]) -> Result<usize> {
        loop {
            if let Some(at) = self.held.windows(what.len()).position(|window| window == what) {
                return Ok(at + what.len());
            }
            let read = self.read().await.context("no answer")?;
            ensure!(read > 0, "the stream ended early: {}", String::from_utf8_lossy(&self.held));
        }
    }

    async fn read(&mut self) -> Result<usize> {
        self.held.reserve(READ);
        Ok(self.socket.read_buf(&mut self.held).await?)
    }
}
