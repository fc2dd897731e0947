//! A fake webhook on loopback.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A webhook that records deliveries. While it does not work it answers 503.
pub(crate) struct Webhook {
    pub(crate) url: String,
    deliveries: Arc<Mutex<Vec<Delivery>>>,
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
        let (deliveries, works) = (Arc::new(Mutex::default()), Arc::new(Mutex::new(works)));
        let webhook = Self { url, deliveries, works };
        let (deliveries, works) = (Arc::clone(&webhook.deliveries), Arc::clone(&webhook.works));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&deliveries), Arc::clone(&works)));
            }
        });
        webhook
    }

    pub(crate) fn deliveries(&self) -> Vec<Delivery> {
        self.deliveries.lock().unwrap().clone()
    }

    /// The updates of a task in order of arrival; repeated deliveries count once.
    pub(crate) fn updates(&self, task: &str) -> Vec<Value> {
        let of_task =
            |body: &Value| body.as_object().unwrap().values().any(|update| update["taskId"] == task);
        let deliveries = self.deliveries.lock().unwrap();
        let mut updates: Vec<_> =
            deliveries.iter().map(|delivery| &delivery.body).filter(|body| of_task(body)).cloned().collect();
        updates.dedup();
        updates
    }

    /// Drops the recorded deliveries.
    pub(crate) fn clear(&self) {
        self.deliveries.lock().unwrap().clear();
    }

    /// Accepts deliveries from now on.
    pub(crate) fn work(&self) {
        *self.works.lock().unwrap() = true;
    }
}

async fn serve(mut stream: TcpStream, deliveries: Arc<Mutex<Vec<Delivery>>>, works: Arc<Mutex<bool>>) {
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
            deliveries.lock().unwrap().push(Delivery { head, body });
        }
        let status = if works { "204 No Content" } else { "503 Service Unavailable" };
        stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.unwrap();
    }
}
