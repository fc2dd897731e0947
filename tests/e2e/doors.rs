//! What a web page in a browser on this machine can reach: nothing, on any port.
//!
//! The requests are those that browsers send, byte for byte where it matters: `Host`, `Origin`, `Sec-Fetch-*`, media types
//! that need no preflight.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, FakePlatform, FakePlugin, Reply, Step, free_port, soon};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bridge::{Bridge, Start, admin, message, request, run, stderr, talaria};

/// Sends a request and returns the status and the body.
async fn send(url: &str, head: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
    let mut text = format!("{head} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("\r\n{body}"));
    soon("an answer", async {
        let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        (status, serde_json::from_str(body).unwrap_or_default())
    })
    .await
}

fn host(url: &str) -> &str {
    url.trim_start_matches("http://")
}

/// The name of a page whose name server was made to say 127.0.0.1.
fn rebound(url: &str) -> String {
    format!("evil.example:{}", url.rsplit(':').next().unwrap())
}

async fn refused(bridge: &Bridge) -> u64 {
    let (_, metrics) = admin(bridge, "GET", "/metrics").await;
    let name = "talaria_requests_refused_total{reason=\"foreign\"} ";
    let line = metrics.as_str().unwrap().lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    line.unwrap().parse().unwrap()
}

async fn tasks(bridge: &Bridge) -> u64 {
    bridge.call("ListTasks", json!({})).await["result"]["totalSize"].as_u64().unwrap()
}

#[tokio::test]
async fn a_page_cannot_make_a_browser_drive_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    let url = bridge.url();
    let v1 =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("hi") }).to_string();
    let old_message = json!({ "kind": "message", "messageId": "m", "role": "user", "parts": [{ "kind": "text", "text": "hi" }] });
    let v03 =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "message/send", "params": { "message": old_message } });
    let v03 = v03.to_string();
    let rest = message("hi").to_string();
    let here = ("host", host(url));
    let asks = [
        ("POST /", ("a2a-version", "1.0"), &v1),
        ("POST /", ("accept", "*/*"), &v03),
        ("POST /message:send", ("a2a-version", "1.0"), &rest),
        ("POST /v1/message:send", ("accept", "*/*"), &rest),
    ];
    let json_body = ("content-type", "application/json");
    let text_body = ("content-type", "text/plain;charset=UTF-8");
    let form_body = ("content-type", "application/x-www-form-urlencoded");
    let cross = ("sec-fetch-site", "cross-site");
    let mut attacks = 0;
    for (head, more, body) in asks {
        for page in [
            // fetch(…, {mode: "no-cors"}), sendBeacon, a form, a sandboxed frame, a page on another port.
            vec![("origin", "https://evil.example"), cross, text_body],
            vec![("origin", "https://evil.example"), json_body],
            vec![("origin", "https://evil.example"), cross, form_body],
            vec![("origin", "null"), text_body],
            vec![("origin", "http://127.0.0.1:3000"), ("sec-fetch-site", "same-site"), json_body],
            vec![cross, json_body],
        ] {
            let headers: Vec<_> = [here, more].into_iter().chain(page).collect();
            let (status, answer) = send(url, head, &headers, body).await;
            assert_eq!(status, 403, "{head} {headers:?}: {answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains("another site"), "{answer}");
            assert_eq!(answer["jsonrpc"].is_string(), head == "POST /", "{answer}");
            attacks += 1;
        }
        // An old browser says nothing about the page, but cannot send JSON for it.
        for media in [text_body, form_body, ("accept", "*/*")] {
            let (status, answer) = send(url, head, &[here, more, media], body).await;
            assert_eq!(status, 415, "{head} {media:?}: {answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains("Content-Type"), "{answer}");
        }
    }
    assert_eq!(tasks(&bridge).await, 0, "nothing was started");
    assert_eq!(refused(&bridge).await, attacks);
    let (status, answer) = send(url, "POST /", &[here, ("a2a-version", "1.0"), json_body], &v1).await;
    assert_eq!(status, 200, "a program is served: {answer}");
}

#[tokio::test]
async fn a_page_cannot_read_tasks_by_pointing_its_name_here() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    let id = bridge.start_turn("my secret plan").await;
    let (url, name) = (bridge.url(), rebound(bridge.url()));
    let origin = format!("http://{name}");
    let rebinding = [("host", name.as_str()), ("a2a-version", "1.0"), ("sec-fetch-site", "same-origin")];
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "ListTasks" }).to_string();
    for (head, body) in [
        ("GET /tasks".to_owned(), ""),
        (format!("GET /tasks/{id}"), ""),
        (format!("GET /v1/tasks/{id}"), ""),
        ("GET /.well-known/agent-card.json".into(), ""),
        ("POST /".into(), list.as_str()),
        ("GET /nothing".into(), ""),
    ] {
        let page = [("origin", origin.as_str()), ("content-type", "application/json")];
        let headers: Vec<_> = rebinding.into_iter().chain(page).collect();
        let (status, answer) = send(url, &head, &headers, body).await;
        assert_eq!(status, 403, "{head}: {answer}");
        assert!(!answer.to_string().contains("secret plan"), "{answer}");
        assert!(answer.to_string().contains("`a2a.url`"), "{answer}");
    }
    for hosts in [vec![], vec![("host", host(url)), ("host", name.as_str())]] {
        assert_eq!(send(url, "GET /tasks", &hosts, "").await.0, 400, "{hosts:?}");
    }
    let name = format!("localhost:{}", url.rsplit(':').next().unwrap());
    assert_eq!(send(url, "GET /tasks", &[("host", &name), ("a2a-version", "1.0")], "").await.0, 200);
    drop(bridge);

    // A proxy on this machine passes the public name on; `a2a.url` makes it known.
    let here = format!("http://127.0.0.1:{}", free_port());
    let start = Start::new(folder.path()).config("[a2a]\nurl = \"https://agents.example/a\"\n");
    let _bridge = start.in_place_of(&here).arg("--demo").up();
    for (name, answer) in [("agents.example", 200), ("agents.example:443", 200), ("evil.example", 403)] {
        let (status, _) = send(&here, "GET /tasks", &[("host", name), ("a2a-version", "1.0")], "").await;
        assert_eq!(status, answer, "{name}");
    }
}

#[tokio::test]
async fn a_page_cannot_use_the_admin_server() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    let url = bridge.banner["admin"].as_str().unwrap();
    let name = rebound(url);
    for path in ["/executors", "/metrics", "/healthz", "/push/undelivered", "/audit"] {
        let (status, answer) = send(url, &format!("GET {path}"), &[("host", &name)], "").await;
        assert_eq!(status, 403, "{path}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("`admin.token`"), "{answer}");
        let page = [("host", host(url)), ("sec-fetch-site", "cross-site")];
        assert_eq!(send(url, &format!("GET {path}"), &page, "").await.0, 403, "{path}");
    }
    let page = [("host", host(url)), ("origin", "https://evil.example")];
    let (status, _) = send(url, "POST /push/undelivered/t/i/retry", &page, "").await;
    assert_eq!(status, 403);
    let (status, _) = send(url, "POST /executors/chat-completions/reload", &page, "").await;
    assert_eq!(status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_cannot_read_the_pages_of_a_workspace() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let gateway = FakeGateway::always(Reply::completion("hi")).await;
    let bridge = Start::new(folder.path())
        .env("WORKSPACE_ID", "ws-1")
        .env("WORKSPACE_CONFIG_PATH", &folder.path().to_string_lossy())
        .env("PLATFORM_URL", &platform.url())
        .env("HERMES_API_BASE", &gateway.base_url())
        .up();
    let (url, name) = (bridge.url(), rebound(bridge.url()));
    for (path, answer) in [("/transcript", 401), ("/capabilities", 200), ("/config-schema", 200)] {
        let head = format!("GET {path}");
        assert_eq!(send(url, &head, &[("host", &name)], "").await.0, 403, "{path}");
        let page = [("host", host(url)), ("origin", "https://evil.example")];
        assert_eq!(send(url, &head, &page, "").await.0, 403, "{path}");
        assert_eq!(send(url, &head, &[("host", host(url))], "").await.0, answer, "{path}");
    }
}

/// A bridge whose turns go to a plugin without a secret.
fn with_plugin<'a>(folder: &'a Path, plugin: &FakePlugin, port: u16) -> Start<'a> {
    Start::new(folder).config(&format!(
        "[executors]\ndefault = \"plugin-callback\"\n[callback]\nlisten = \"127.0.0.1:{port}\"\n\
         [executor.plugin-callback.settings]\ninbound_url = \"{}\"\n",
        plugin.inbound_url()
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_secret_only_the_address_of_the_request_takes_replies() {
    let plugin = FakePlugin::start(|_| vec![Step::Wait]).await;
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let bridge = with_plugin(folder.path(), &plugin, port).log(&folder.path().join("log")).up();
    let task = bridge.start_turn("hi").await;
    let sent = plugin.received(1).await[0].clone();
    let (url, token) = sent.callback_url().rsplit_once('/').unwrap();
    assert_eq!(url, format!("http://127.0.0.1:{port}/a2a/reply"));
    let root = format!("http://127.0.0.1:{port}");
    let forged = json!({ "chat_id": sent.chat(), "reply_to": sent.id(), "content": "forged" }).to_string();
    let json_body = ("content-type", "application/json");
    for path in ["/a2a/reply", "/a2a/reply/", "/a2a/reply/0123456789abcdef"] {
        let (status, answer) =
            send(&root, &format!("POST {path}"), &[("host", host(&root)), json_body], &forged).await;
        assert_eq!((status, &answer["error"]), (401, &json!("unauthorized")), "{path}");
    }
    let known = format!("POST /a2a/reply/{token}");
    for page in [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        let text_body = ("content-type", "text/plain");
        assert_eq!(
            send(&root, &known, &[("host", host(&root)), page, text_body], &forged).await.0,
            403,
            "{page:?}"
        );
    }
    assert_eq!(send(&root, &known, &[("host", &rebound(&root)), json_body], &forged).await.0, 403);
    assert_eq!(bridge.task(&task).await["status"]["state"], "TASK_STATE_WORKING", "nobody answered");

    // The address stays the same, so a reply that comes after a restart arrives.
    bridge.kill();
    let file = folder.path().join("talaria.callback-token");
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    let bridge = with_plugin(folder.path(), &plugin, port).log(&folder.path().join("log")).up();
    let real = json!({ "chat_id": sent.chat(), "reply_to": sent.id(), "content": "the answer" }).to_string();
    assert_eq!(request(&root, "POST", &format!("/a2a/reply/{token}"), &[], &real).await.status, 200);
    let ended = bridge.in_state(&task, "TASK_STATE_COMPLETED").await;
    assert_eq!(ended["artifacts"][0]["parts"][0]["text"], "the answer");
    bridge.terminate();
    assert_eq!(bridge.end().0, Some(0));
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("callback rejected"), "{log}");
    assert!(!log.contains(token), "the token is a secret");
}

#[test]
fn callbacks_from_beyond_loopback_need_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let start = |secret: Option<&str>| {
        let mut command = talaria(folder.path());
        command.args(["check"]).env("MOLECULE_A2A_PLATFORM_ENABLED", "1");
        command.env("MOLECULE_A2A_CALLBACK_HOST", "0.0.0.0").env("HERMES_API_BASE", "http://127.0.0.1:1/v1");
        if let Some(secret) = secret {
            command.env("MOLECULE_A2A_PLATFORM_SHARED_SECRET", secret);
        }
        run(&mut command)
    };
    let open = start(None);
    assert_eq!(open.status.code(), Some(64), "{}", stderr(&open));
    let said = stderr(&open);
    assert!(said.contains("set MOLECULE_A2A_PLATFORM_SHARED_SECRET here and for the plugin"), "{said}");
    assert_ne!(start(Some("a-shared-secret")).status.code(), Some(64));
}
