//! Memory: with 512 MiB, no caller can get the host killed. Each test attacks the real binary, reads from the kernel what
//! the host took at most, and then has an ordinary turn answered. The last one does so in a control group like a container's,
//! whose processes the kernel kills at 512 MiB.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Recorded, Reply, soon};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::bridge::{Bridge, Start, admin, message};
use crate::control_group::ControlGroup;

const MIB: usize = 1 << 20;
/// What the host may take of 512 MiB.
const MOST: usize = 400 * MIB;

/// A bridge with 512 MiB, and its gateway, which never answers a message with the text `hang`.
struct Site {
    bridge: Bridge,
    _gateway: FakeGateway,
    _folder: tempfile::TempDir,
    group: Option<ControlGroup>,
}

impl Site {
    /// With 512 MiB that are configured.
    async fn start() -> Self {
        Self::start_in(None).await
    }

    /// With the limit of a group, or without one with what is configured.
    async fn start_in(group: Option<ControlGroup>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let gateway = FakeGateway::start(|request: &Recorded| {
            let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let content =
                &body["messages"].as_array().and_then(|all| all.last()).unwrap_or(&Value::Null)["content"];
            // A text alone, or the first of several parts.
            match content.as_str().or(content[0]["text"].as_str()) {
                Some("hang") => Reply::hang(),
                _ => Reply::completion("fine"),
            }
        })
        .await;
        let memory = if group.is_some() { "" } else { "[limits]\nmemory = \"512MiB\"\n" };
        let config = format!(
            "{memory}[store]\nurl = \"sqlite:tasks.db\"\n\
             [executor.chat-completions.settings]\nbase_url = \"{}\"\n",
            gateway.base_url()
        );
        let log = folder.path().join("log");
        let bridge = Start::new(folder.path())
            .env("API_SERVER_KEY", "k-0123456789abcdef")
            .log(&log)
            .prefix(group.iter().flat_map(ControlGroup::prefix))
            .config(&config)
            .up();
        Self { bridge, _gateway: gateway, _folder: folder, group }
    }

    fn address(&self) -> &str {
        self.bridge.url().trim_start_matches("http://")
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// A value of `/proc/PID/status`, in bytes.
    fn memory(&self, name: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.bridge.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<usize>().unwrap() * 1024
    }

    /// What callers make the host hold, as the host counts it.
    async fn used(&self) -> usize {
        self.metric("talaria_memory_used_bytes ").await
    }

    async fn metric(&self, name: &str) -> usize {
        let (_, text) = admin(&self.bridge, "GET", "/metrics").await;
        let text = text.as_str().unwrap();
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
    }

    /// Checks what the host took, and that it serves others, now or as soon as memory is given back.
    async fn survived(&self) {
        let took = self.memory("VmHWM");
        assert!(took < MOST, "the host took {} MiB", took / MIB);
        soon("an ordinary turn is answered", async {
            loop {
                let answer = self.post(&message("hello")).await;
                match answer.0 {
                    429 => tokio::time::sleep(Duration::from_millis(100)).await,
                    _ => {
                        assert!(answer.1.contains("fine"), "{answer:?}");
                        return;
                    }
                }
            }
        })
        .await;
    }

    /// Waits until everything is given back.
    async fn quiet(&self) {
        soon("the memory is given back", async {
            while self.used().await > MIB {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }

    /// Sends a message and returns the status and the body.
    async fn post(&self, params: &Value) -> (u16, String) {
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params }).to_string();
        let mut stream = self.connect().await;
        let _ = stream.write_all(&request(body.as_bytes())).await;
        answer(&mut stream).await
    }
}

fn request(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

async fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let _ = soon("the bridge answers", stream.read_to_end(&mut bytes)).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    if status == 429 {
        assert!(text.to_ascii_lowercase().contains("\r\nretry-after: "), "{text}");
    }
    (status, text)
}

/// A message that the host accepts and answers when its turn has ended, or at once.
fn detached(text: &str) -> Value {
    let mut params = message(text);
    params["configuration"] = json!({ "returnImmediately": true });
    params
}

#[tokio::test]
async fn messages_that_do_not_fit_their_executor_are_rejected_and_harm_nobody() {
    let site = Site::start().await;
    for _ in 0..6 {
        let (status, text) = site.post(&message(&"x".repeat(14 * MIB))).await;
        assert_eq!(status, 413, "{text}");
        assert!(text.contains("raise `executor.chat-completions.grant.memory`"), "{text}");
    }
    let (_, listed) = admin(&site.bridge, "GET", "/metrics").await;
    assert!(
        listed.as_str().unwrap().contains("talaria_executor_quarantined{executor=\"chat-completions\"} 0")
    );
    site.survived().await;
}

/// Sends sixty turns of 4 MiB that wait. Returns the ids of those that were accepted, and how many were rejected.
async fn wait_with_large_turns(site: &Site) -> (Vec<String>, usize) {
    let (mut waiting, mut busy) = (Vec::new(), 0);
    for _ in 0..60 {
        let mut params = detached("hang");
        let image = json!({ "raw": "AAAA".repeat(MIB), "mediaType": "image/png" });
        params["message"]["parts"].as_array_mut().unwrap().push(image);
        let (status, said) = site.post(&params).await;
        match status {
            200 => {
                let (_, body) = said.split_once("\r\n\r\n").unwrap();
                let body: Value = serde_json::from_str(body).unwrap();
                waiting.push(body["result"]["task"]["id"].as_str().unwrap().to_owned());
            }
            429 => busy += 1,
            _ => panic!("{said:.200}"),
        }
    }
    (waiting, busy)
}

#[tokio::test]
async fn many_large_waiting_turns_do_not_take_the_hosts_memory() {
    let site = Site::start().await;
    let (waiting, busy) = wait_with_large_turns(&site).await;
    assert!(waiting.len() > 2 && busy > 30, "{} wait, {busy} were rejected", waiting.len());
    let took = site.memory("VmHWM");
    assert!(took < MOST, "the host took {} MiB", took / MIB);
    for id in waiting {
        site.bridge.call("CancelTask", json!({ "id": id })).await;
    }
    site.survived().await;
    site.quiet().await;
}

/// Opens sixty connections with a body of 15 MiB each, whose last byte never comes.
async fn withhold_last_bytes(site: &Site) -> Vec<TcpStream> {
    let body = vec![b' '; 15 * MIB];
    let bytes = request(&body);
    let mut held = JoinSet::new();
    for _ in 0..60 {
        let mut stream = site.connect().await;
        let bytes = bytes[..bytes.len() - 1].to_vec();
        held.spawn(async move {
            let _ = stream.write_all(&bytes).await;
            stream
        });
    }
    held.join_all().await
}

#[tokio::test]
async fn bodies_that_lack_their_last_byte_do_not_take_the_hosts_memory() {
    let site = Site::start().await;
    let held = withhold_last_bytes(&site).await;
    site.survived().await;
    drop(held);
    site.quiet().await;
}

/// Sends a hundred bodies of 15 MiB over one connection at once. None of them is accepted.
async fn multiplex_large_bodies(site: &Site) {
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(site.connect().await))
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage",
                       "params": detached(&"x".repeat(15 * MIB)) });
    let body = Bytes::from(body.to_string());
    let mut sent = JoinSet::new();
    for _ in 0..100 {
        let request = http::Request::post(format!("http://{}/", site.address()))
            .header("a2a-version", "1.0")
            .header("content-type", "application/json")
            .body(Full::new(body.clone()))
            .unwrap();
        let mut sender = sender.clone();
        sent.spawn(
            async move { sender.send_request(request).await.map(|response| response.status().as_u16()) },
        );
    }
    while let Some(status) = soon("all are answered", sent.join_next()).await {
        let status = status.unwrap().unwrap();
        assert!([413, 429].contains(&status), "{status}");
    }
    connection.abort();
}

#[tokio::test]
async fn one_connection_with_many_streams_does_not_take_the_hosts_memory() {
    let site = Site::start().await;
    multiplex_large_bodies(&site).await;
    site.survived().await;
    site.quiet().await;
}

/// Has twenty turns of 3 MiB answered.
async fn fill_the_store(site: &Site) {
    let text = "x".repeat(3 * MIB);
    for _ in 0..20 {
        soon("a large turn is answered", async {
            while site.post(&message(&text)).await.0 == 429 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
}

/// Opens a hundred connections that ask for a list of all tasks and never read it.
async fn stall_lists(site: &Site) -> Vec<TcpStream> {
    let list = b"GET /tasks?pageSize=100&includeArtifacts=true HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\n\r\n";
    let mut stalled = Vec::new();
    for _ in 0..100 {
        let mut stream = site.connect().await;
        stream.write_all(list).await.unwrap();
        stalled.push(stream);
    }
    stalled
}

#[tokio::test]
async fn lists_of_large_tasks_and_readers_that_stall_do_not_take_the_hosts_memory() {
    let site = Site::start().await;
    fill_the_store(&site).await;
    let stalled = stall_lists(&site).await;
    site.survived().await;
    let page = site.bridge.request("GET", "/tasks?pageSize=100", &[("a2a-version", "1.0")], "").await;
    assert!([200, 429].contains(&page.status), "{}", page.status);
    assert!(page.body.len() < 8 * MIB, "{} bytes", page.body.len());
    drop(stalled);
    site.quiet().await;
}

/// Sends sixty bodies at once that take many times their size when they are parsed. None of them is accepted.
async fn plant_trees(site: &Site) {
    let mut params = detached("");
    params["message"]["parts"] = json!([{ "data": { "zeros": vec![0; 400_000] } }]);
    let mut sent = JoinSet::new();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params }).to_string();
    for _ in 0..60 {
        let mut stream = site.connect().await;
        let bytes = request(body.as_bytes());
        sent.spawn(async move {
            let _ = stream.write_all(&bytes).await;
            answer(&mut stream).await.0
        });
    }
    for status in sent.join_all().await {
        assert!([413, 429].contains(&status), "{status}");
    }
}

#[tokio::test]
async fn bodies_that_become_large_trees_do_not_take_the_hosts_memory() {
    let site = Site::start().await;
    plant_trees(&site).await;
    site.survived().await;
    site.quiet().await;
}

/// Attacks in all ways at once. The host survives.
async fn attack(site: &Site) {
    fill_the_store(site).await;
    let ((waiting, _), held, stalled, (), ()) = tokio::join!(
        wait_with_large_turns(site),
        withhold_last_bytes(site),
        stall_lists(site),
        multiplex_large_bodies(site),
        plant_trees(site),
    );
    let took = site.memory("VmHWM");
    assert!(took < MOST, "the host took {} MiB", took / MIB);
    for id in waiting {
        site.bridge.call("CancelTask", json!({ "id": id })).await;
    }
    site.survived().await;
    drop((held, stalled));
    site.quiet().await;
}

#[tokio::test]
async fn all_attacks_at_once_do_not_take_the_hosts_memory() {
    attack(&Site::start().await).await;
}

/// Where the test may make no group, the same amount is configured: then nobody is killed, but what was taken is read.
#[tokio::test]
async fn in_a_container_of_512_mib_no_attack_gets_a_process_killed() {
    let site = Site::start_in(ControlGroup::with_memory(512 * MIB)).await;
    assert_eq!(site.metric("talaria_memory_limit_bytes ").await, 256 * MIB, "half of what the group has");
    attack(&site).await;
    if let Some(group) = &site.group {
        assert!(group.has(site.bridge.id()), "the host runs in it");
        assert_eq!(group.kills(), 0);
    }
}
