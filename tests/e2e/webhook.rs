//! A webhook on loopback.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A webhook that keeps what it is sent. It answers 503 until it is told to work.
pub(crate) struct Webhook {
    pub(crate) url: String,
    kept: Arc<Mutex<Vec<Delivery>>>,
    works: Arc<Mutex<bool>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Webhook {
    pub(crate) async fn start(works: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (kept, works) = (Arc::new(Mutex::default()), Arc::new(Mutex::new(works)));
        let hook = Self { url, kept, works };
        let (kept, works) = (Arc::clone(&hook.kept), Arc::clone(&hook.works));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&kept), Arc::clone(&works)));
            }
        });
        hook
    }

    pub(crate) fn kept(&self) -> Vec<Delivery> {
        self.kept.lock().unwrap().clone()
    }

    /// The updates of a task, in the order in which they came; what came twice in a row is one.
    pub(crate) fn told(&self, task: &str) -> Vec<Value> {
        let of_task =
            |body: &Value| body.as_object().unwrap().values().any(|update| update["taskId"] == task);
        let kept = self.kept.lock().unwrap();
        let mut told: Vec<_> =
            kept.iter().map(|delivery| &delivery.body).filter(|body| of_task(body)).cloned().collect();
        told.dedup();
        told
    }

    /// Forgets what came so far.
    pub(crate) fn forget(&self) {
        self.kept.lock().unwrap().clear();
    }

    /// Takes what comes from now on.
    pub(crate) fn work(&self) {
        *self.works.lock().unwrap() = true;
    }
}

async fn serve(mut stream: TcpStream, kept: Arc<Mutex<Vec<Delivery>>>, works: Arc<Mutex<bool>>) {
    let mut bytes = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut bytes).await {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let length: usize = length.parse().unwrap();
        if bytes.len() < end + 4 + length {
            continue;
        }
        let body = serde_json::from_slice(&bytes[end + 4..end + 4 + length]).unwrap();
        bytes.drain(..end + 4 + length);
        let works = *works.lock().unwrap();
        if works {
            kept.lock().unwrap().push(Delivery { head, body });
        }
        let status = if works { "204 No Content" } else { "503 Service Unavailable" };
        stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.unwrap();
    }
}
