//! A client for streams that sees every byte.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kit::{Answer, Host, patiently, read_answer};

/// An open stream.
pub(crate) struct Sse {
    tcp: TcpStream,
    pub(crate) head: Answer,
    /// The body in its chunked encoding, and the decoded text.
    raw: Vec<u8>,
    text: Vec<u8>,
    ended: bool,
}

/// One frame, which may be a comment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Frame {
    pub(crate) id: Option<u64>,
    pub(crate) data: Option<Value>,
    pub(crate) comment: Option<String>,
    pub(crate) retry: Option<u64>,
}

/// A keep-alive comment, which no empty line follows.
const KEEP_ALIVE: &[u8] = b": keep-alive\n";

impl Sse {
    /// Opens a stream; returns the answer if it is not a stream.
    pub(crate) async fn open(
        host: &Host,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Self, Answer> {
        let mut tcp = host.connect().await;
        let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", host.address).into_bytes();
        for (name, value) in headers {
            bytes.extend(format!("{name}: {value}\r\n").into_bytes());
        }
        bytes.extend(format!("content-length: {}\r\n\r\n", body.len()).into_bytes());
        bytes.extend(body);
        patiently(async {
            tcp.write_all(&bytes).await.unwrap();
            let mut head = read_answer(&mut tcp, false).await;
            if head.header("content-type") != Some("text/event-stream") {
                return Err(head);
            }
            let raw = std::mem::take(&mut head.body);
            Ok(Self { tcp, head, raw, text: Vec::new(), ended: false })
        })
        .await
    }

    /// Returns the next frame verbatim, without its empty line, which the last frame may lack; `None` at the end.
    pub(crate) async fn next_raw(&mut self) -> Option<String> {
        patiently(async {
            loop {
                self.unchunk();
                if self.text.starts_with(KEEP_ALIVE) {
                    self.text.drain(..KEEP_ALIVE.len());
                    return Some(": keep-alive".into());
                }
                if let Some(at) = self.text.windows(2).position(|window| window == b"\n\n") {
                    let rest = self.text.split_off(at + 2);
                    let mut frame = std::mem::replace(&mut self.text, rest);
                    frame.truncate(at);
                    return Some(String::from_utf8(frame).unwrap());
                }
                if self.ended {
                    let rest = String::from_utf8(std::mem::take(&mut self.text)).unwrap();
                    let closes = rest.starts_with(": closing\n") && rest.ends_with('\n');
                    assert!(rest.is_empty() || closes, "half a frame: {rest:?}");
                    return closes.then_some(rest);
                }
                let read = self.tcp.read_buf(&mut self.raw).await.unwrap();
                assert_ne!(read, 0, "the connection ended in the middle of a stream");
            }
        })
        .await
    }

    /// Waits for bytes and returns all that have arrived; `None` at the end.
    pub(crate) async fn next_bytes(&mut self) -> Option<String> {
        patiently(async {
            loop {
                self.unchunk();
                if !self.text.is_empty() {
                    return Some(String::from_utf8(std::mem::take(&mut self.text)).unwrap());
                }
                if self.ended {
                    return None;
                }
                let read = self.tcp.read_buf(&mut self.raw).await.unwrap();
                assert_ne!(read, 0, "the connection ended in the middle of a stream");
            }
        })
        .await
    }

    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let raw = self.next_raw().await?;
        let mut frame = Frame { id: None, data: None, comment: None, retry: None };
        for line in raw.lines() {
            if let Some(comment) = line.strip_prefix(": ") {
                frame.comment = Some(comment.to_owned());
            } else if let Some(id) = line.strip_prefix("id: ") {
                assert_eq!(frame.data, None, "the id stands before the data");
                frame.id = Some(id.parse().unwrap());
            } else if let Some(retry) = line.strip_prefix("retry: ") {
                frame.retry = Some(retry.parse().unwrap());
            } else if let Some(data) = line.strip_prefix("data: ") {
                assert_eq!(frame.data, None, "one line of data: {raw}");
                frame.data = Some(serde_json::from_str(data).unwrap());
            } else {
                panic!("unexpected line: {line:?}");
            }
        }
        Some(frame)
    }

    /// Returns all frames until the end.
    pub(crate) async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    fn unchunk(&mut self) {
        while let Some(at) = self.raw.windows(2).position(|window| window == b"\r\n") {
            let size = usize::from_str_radix(std::str::from_utf8(&self.raw[..at]).unwrap(), 16).unwrap();
            let end = at + 2 + size + 2;
            if self.raw.len() < end {
                return;
            }
            self.text.extend_from_slice(&self.raw[at + 2..at + 2 + size]);
            self.raw.drain(..end);
            self.ended |= size == 0;
        }
    }
}
