//! The bridge as a workspace: the platform registers it, calls it, reads its pages, and stops it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use talaria_egress::Response;
use talaria_fakes::{FakeGateway, FakePlatform, Reply, soon};

use crate::bridge::{Bridge, Start};

/// The folders of a workspace.
pub(super) struct Folders {
    root: tempfile::TempDir,
}

impl Folders {
    pub(super) fn new(config: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("bridge")).unwrap();
        let folders = Self { root };
        folders.write("config.yaml", config);
        folders
    }

    pub(super) fn configs(&self) -> PathBuf {
        self.root.path().join("configs")
    }

    pub(super) fn bridge(&self) -> PathBuf {
        self.root.path().join("bridge")
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.configs().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn start<'a>(
    bridge: &'a Path,
    folders: &Folders,
    platform: &FakePlatform,
    gateway: &FakeGateway,
) -> Start<'a> {
    Start::new(bridge)
        .env("WORKSPACE_ID", "ws-1")
        .env("WORKSPACE_CONFIG_PATH", &folders.configs().to_string_lossy())
        .env("PLUGINS_DIR", &folders.root.path().join("shared").to_string_lossy())
        .env("PLATFORM_URL", &platform.url())
        .env("HERMES_API_BASE", &gateway.base_url())
}

/// Sends a message as the platform's proxy does, and returns the status and the text that the proxy finds in the answer.
async fn proxied(bridge: &Bridge, secret: Option<&str>, text: &str) -> (u16, Option<String>) {
    let message = json!({ "kind": "message", "messageId": format!("m-{text}"), "role": "user", "parts": [{ "kind": "text", "text": text }], "contextId": "canvas-ws-1" });
    let body =
        json!({ "jsonrpc": "2.0", "id": "1", "method": "message/send", "params": { "message": message } });
    let bearer = secret.map(|secret| format!("Bearer {secret}"));
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
    let response = bridge.request("POST", "/", &headers, &body.to_string()).await;
    let answer: Value = serde_json::from_slice(&response.body).unwrap();
    // The proxy reads `result.parts[].kind`.
    let parts = answer["result"]["parts"].as_array().cloned().unwrap_or_default();
    let text = parts.iter().find(|part| part["kind"] == "text").and_then(|part| part["text"].as_str());
    (response.status, text.map(str::to_owned))
}

async fn get(bridge: &Bridge, path: &str, token: Option<&str>) -> Response {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = bearer.as_deref().map(|bearer| ("authorization", bearer)).into_iter().collect();
    bridge.request("GET", path, &headers, "").await
}

fn body(response: &Response) -> Value {
    serde_json::from_slice(&response.body).unwrap()
}

const CONFIG: &str = "name: Researcher\ndescription: Finds papers.\nversion: 2.0.0\nruntime: hermes\nmodel: hermes-4\n\
                      prompt_files: [system.md]\nskills: [papers]\ninitial_prompt: say hello\n";

// Waiting for the bridge blocks a thread.
#[tokio::test(flavor = "multi_thread")]
async fn the_platform_registers_a_workspace_and_calls_it() {
    let folders = Folders::new(CONFIG);
    folders.write("system.md", "You find papers.");
    folders.write(
        "skills/papers/SKILL.md",
        "---\nname: Papers\ndescription: Finds papers\ntags: [search]\n---\nSearch first.",
    );
    let platform = FakePlatform::start().await;
    platform.set_surroundings(json!([]), "Be kind.");
    let gateway = FakeGateway::always(Reply::completion("found")).await;
    let at = folders.bridge();
    let bridge = start(&at, &folders, &platform, &gateway).up();
    platform.registered(1).await;
    let registration = &platform.registrations()[0];
    assert_eq!((&registration["id"], &registration["url"]), (&json!("ws-1"), &json!(bridge.url())));
    let card = &registration["agent_card"];
    assert_eq!(
        (&card["name"], &card["version"], &card["skills"][0]["name"]),
        (&json!("Researcher"), &json!("2.0.0"), &json!("Papers"))
    );
    let (_, heard) = platform
        .heartbeat(0, "the executor's capabilities", |beat| {
            beat["runtime_metadata"]["capabilities"].is_object()
        })
        .await;
    let token = fs::read_to_string(folders.configs().join(".auth_token")).unwrap();
    assert_eq!(Some(token.as_str()), platform.token().as_deref());
    assert_eq!(folders.configs().join(".auth_token").metadata().unwrap().mode() & 0o777, 0o600);

    assert_eq!(proxied(&bridge, None, "papers on fish").await, (200, Some("found".into())));
    let request = gateway
        .requests()
        .into_iter()
        .find(|request| request.json().to_string().contains("fish"))
        .unwrap()
        .json();
    assert_eq!(request["model"], "hermes-4");
    let system = request["messages"][0]["content"].as_str().unwrap();
    for part in
        ["# Platform Instructions\n\nBe kind.", "You find papers.", "### Papers\nFinds papers\nSearch first."]
    {
        assert!(system.contains(part), "{part}: {system}");
    }
    let (beat, _) = platform.heartbeat(heard, "the end of the turn", |beat| beat["active_tasks"] == 0).await;
    assert_eq!(
        (&beat["error_rate"], &beat["runtime_metadata"]["executor"]),
        (&json!(0.0), &json!("chat-completions"))
    );

    // The initial prompt went through the proxy once.
    let sent = platform.message().await;
    assert_eq!(sent["params"]["message"]["parts"][0]["text"], "say hello");
    assert!(folders.configs().join(".initial_prompt_done").exists());

    // An edit applies to the next turn.
    folders.write("system.md", "You find books.");
    proxied(&bridge, None, "books on fish").await;
    let request = gateway
        .requests()
        .into_iter()
        .find(|request| request.json().to_string().contains("books on fish"))
        .unwrap();
    assert!(request.json()["messages"][0]["content"].as_str().unwrap().contains("You find books."));

    let card = body(&get(&bridge, "/.well-known/agent.json", None).await);
    assert_eq!((&card["name"], &card["skills"][0]["id"]), (&json!("Researcher"), &json!("papers")));
}

/// Returns the card of this version.
async fn card(bridge: &Bridge, version: &str) -> Value {
    body(&bridge.request("GET", "/.well-known/agent-card.json", &[("a2a-version", version)], "").await)
}

fn skills(card: &Value) -> Vec<&str> {
    let skills = card["skills"].as_array().into_iter().flatten();
    skills.filter_map(|skill| skill["id"].as_str()).collect()
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_reaches_the_card_and_the_platform_once() {
    let folders = Folders::new("name: Researcher\nskills: [papers]\n");
    folders.write("skills/papers/SKILL.md", "---\nname: Papers\ndescription: Finds papers\n---\nSearch.");
    let mut platform = FakePlatform::start().await;
    let gateway = FakeGateway::always(Reply::completion("found")).await;
    let at = folders.bridge();
    // `talaria.toml` takes precedence over `config.yaml`, also after an edit.
    let bridge = start(&at, &folders, &platform, &gateway).config("[a2a.card]\nversion = \"9.9.9\"\n").up();
    platform.registered(1).await;
    let first = card(&bridge, "1.0").await;
    assert_eq!((skills(&first), &first["version"]), (vec!["papers"], &json!("9.9.9")));

    folders.write("skills/books/SKILL.md", "---\nname: Books\ndescription: Finds books\n---\nSearch.");
    folders.write("config.yaml", "name: Librarian\nversion: 3.0.0\nskills: [papers, books]\n");
    for version in ["1.0", "0.3"] {
        until("the card has the new skill", async || {
            skills(&card(&bridge, version).await) == ["papers", "books"]
        })
        .await;
        let now = card(&bridge, version).await;
        assert_eq!((&now["name"], &now["version"]), (&json!("Librarian"), &json!("9.9.9")), "{version}");
    }
    let told = platform.told_card(1).await;
    assert_eq!((&told["name"], skills(&told)), (&json!("Librarian"), vec!["papers", "books"]));
    assert_eq!((&told["version"], &told["url"]), (&json!("9.9.9"), &json!(bridge.url())));

    // A file that does not affect the card, and turns, which cause heartbeats, do not update the platform.
    folders.write("system-prompt.md", "You find books.");
    let heard = platform.heartbeats().len();
    proxied(&bridge, None, "books on fish").await;
    platform.heartbeat(heard, "the end of the turn", |beat| beat["active_tasks"] == 0).await;
    // If the file becomes invalid, its last valid content applies, to turns too.
    folders.write("config.yaml", "skills: [");
    proxied(&bridge, None, "anything else").await;
    assert_eq!(skills(&card(&bridge, "1.0").await), ["papers", "books"]);
    assert_eq!((platform.cards().len(), platform.registrations().len()), (1, 1));

    platform.go_down();
    folders.write("config.yaml", "name: Librarian\nskills: [books]\n");
    until("the card lost a skill", async || skills(&card(&bridge, "1.0").await) == ["books"]).await;
    platform.come_back().await;
    // A turn causes the next heartbeat, which would otherwise be sent within half a minute.
    proxied(&bridge, None, "are you back").await;
    assert_eq!(skills(&platform.told_card(2).await), ["books"]);
    assert_eq!((platform.cards().len(), platform.registrations().len()), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_the_platform_are_for_the_platform_only() {
    let folders = Folders::new("runtime: hermes\n");
    let platform = FakePlatform::start().await;
    let gateway = FakeGateway::always(Reply::completion("the answer")).await;
    let at = folders.bridge();
    let bridge = start(&at, &folders, &platform, &gateway).config("[a2a.auth]\nopen = false\n").up();
    platform.registered(1).await;
    assert_eq!(proxied(&bridge, None, "let me in").await.0, 401);
    soon("the platform's secret", async {
        while proxied(&bridge, Some("inbound-secret-1"), "from the proxy").await.0 == 401 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for (path, token) in [
        ("/transcript", None),
        ("/transcript", Some("wrong")),
        ("/capabilities", None),
        ("/config-schema", Some("workspace-token-1")),
    ] {
        assert_eq!(get(&bridge, path, token).await.status, 401, "{path} {token:?}");
    }
    let page = body(&get(&bridge, "/transcript", Some("workspace-token-1")).await);
    assert_eq!(
        (&page["runtime"], &page["supported"], &page["more"]),
        (&json!("hermes"), &json!(true), &json!(false))
    );
    let said: Vec<_> = page["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (line["type"].as_str().unwrap(), line["content"].as_str().unwrap()))
        .collect();
    assert_eq!(said[0], ("user", "from the proxy"), "{said:?}");
    assert!(said.contains(&("assistant", "the answer")), "{said:?}");
    let next = format!("/transcript?since={}&limit=5", page["cursor"]);
    assert_eq!(body(&get(&bridge, &next, Some("workspace-token-1")).await)["lines"], json!([]));
    for bad in ["since=x", "limit=-1", "since=1.5"] {
        assert_eq!(
            get(&bridge, &format!("/transcript?{bad}"), Some("workspace-token-1")).await.status,
            400,
            "{bad}"
        );
    }
    assert_eq!(bridge.request("POST", "/transcript", &[], "").await.status, 405);

    let able = body(&get(&bridge, "/capabilities", Some("inbound-secret-1")).await);
    assert_eq!(able["capabilities"].as_object().unwrap().len(), 7, "{able}");
    let schema = body(&get(&bridge, "/config-schema", Some("inbound-secret-1")).await);
    assert!(schema["properties"]["base_url"].is_object(), "{schema}");

    // A new secret applies from the heartbeat that delivers it.
    platform.set_secret("inbound-secret-2");
    proxied(&bridge, Some("inbound-secret-1"), "wake up").await;
    soon("the new secret", async {
        while get(&bridge, "/capabilities", Some("inbound-secret-2")).await.status == 401 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(get(&bridge, "/capabilities", Some("inbound-secret-1")).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_leaves_a_snapshot_and_a_start_reads_it() {
    let folders = Folders::new("");
    let platform = FakePlatform::start().await;
    let gateway = FakeGateway::always(Reply::completion("use sk-proj-abcdefghijklmnop")).await;
    let at = folders.bridge();
    let bridge = start(&at, &folders, &platform, &gateway).up();
    proxied(&bridge, None, "before the stop").await;
    bridge.terminate();
    let (code, said) = bridge.end();
    assert_eq!(code, Some(0), "{said}");
    let path = folders.configs().join(".agent_snapshot.json");
    let snapshot: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((&snapshot["workspace_id"], &snapshot["active_tasks"]), (&json!("ws-1"), &json!(0)));
    assert_eq!(snapshot["session_id"], "canvas-ws-1");
    let text = snapshot.to_string();
    assert!(
        text.contains("before the stop") && text.contains("[REDACTED:sk_token]") && !text.contains("sk-proj"),
        "{text}"
    );

    let again = start(&at, &folders, &platform, &gateway).up();
    let page = body(&get(&again, "/transcript", Some("workspace-token-1")).await);
    assert_eq!(page["lines"][0]["content"], "before the stop");
    let since = page["cursor"].clone();
    proxied(&again, None, "before the kill").await;
    again.kill();

    fs::write(&path, "{ half").unwrap();
    let again = start(&at, &folders, &platform, &gateway).up();
    assert_eq!(proxied(&again, None, "it works").await.0, 200);
    assert!(folders.configs().join(".agent_snapshot.json.broken").exists());
    let page = body(&get(&again, &format!("/transcript?since={since}"), Some("workspace-token-1")).await);
    assert_eq!(page["lines"][0]["content"], "before the kill", "a reader continues at its position: {page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_transcript_is_the_agents_own_if_it_can_be_read() {
    let folders = Folders::new("");
    let platform = FakePlatform::start().await;
    let remembers = Arc::new(AtomicBool::new(true));
    let able = Arc::clone(&remembers);
    let gateway = FakeGateway::start(move |request| match request.path.split('?').next() {
        _ if request.method == "POST" => Reply::completion("the answer"),
        _ if !able.load(Ordering::SeqCst) => Reply::status(404, "text/plain", "404: Not Found"),
        Some("/api/sessions") => Reply::json(&json!({ "data": [{ "id": "talaria-1" }] })),
        Some("/api/sessions/talaria-1/messages") => {
            let row = |id: u32, role: &str, text: &str| json!({ "id": id, "role": role, "content": text });
            Reply::json(&json!({ "data": [row(7, "user", "hello"), row(8, "assistant", "I remember")] }))
        }
        _ => Reply::json(&json!({ "status": "ok" })),
    })
    .await;
    let at = folders.bridge();
    let bridge = start(&at, &folders, &platform, &gateway).env("API_SERVER_KEY", "0123456789abcdef").up();
    proxied(&bridge, None, "through the bridge").await;
    let read = async |query: &str| {
        let page = body(&get(&bridge, &format!("/transcript{query}"), Some("workspace-token-1")).await);
        let lines = page["lines"].as_array().cloned().unwrap_or_default();
        let texts: Vec<_> = lines.iter().map(|line| line["content"].as_str().unwrap().to_owned()).collect();
        (texts, page)
    };
    let (texts, page) = read("?limit=1").await;
    assert_eq!((texts, &page["more"]), (vec!["hello".to_owned()], &json!(true)));
    assert_eq!(page["source"], "chat-completions: what the agent remembers");
    let (texts, page) = read(&format!("?since={}", page["cursor"])).await;
    assert_eq!((texts, &page["more"]), (vec!["I remember".to_owned()], &json!(false)));
    assert_eq!(page["lines"][0]["session_id"], "talaria-1");
    let (texts, other) = read("?source=bridge").await;
    assert_eq!(
        (texts[0].as_str(), &other["source"]),
        ("through the bridge", &json!("talaria: events of tasks"))
    );
    let unknown = get(&bridge, "/transcript?source=nowhere", Some("workspace-token-1")).await;
    assert_eq!(unknown.status, 400);

    // An older gateway has no sessions.
    remembers.store(false, Ordering::SeqCst);
    let (texts, other) = read("").await;
    assert_eq!(texts[0], "through the bridge");
    let source = other["source"].as_str().unwrap();
    assert!(source.contains("cannot read what the agent remembers: [hermes-agent error 404]"), "{source}");
    let (texts, later) = read(&format!("?since={}", page["cursor"])).await;
    assert_eq!((texts.len(), &later["cursor"]), (0, &page["cursor"]), "a reader keeps its position");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_down_is_reported_in_replies_and_heartbeats() {
    let folders = Folders::new("");
    let platform = FakePlatform::start().await;
    let gone = FakeGateway::always(Reply::completion("x")).await;
    let base = gone.base_url();
    drop(gone);
    let at = folders.bridge();
    let other = FakeGateway::always(Reply::completion("x")).await;
    let bridge = start(&at, &folders, &platform, &other).env("HERMES_API_BASE", &base).up();
    let (beat, _) = platform.heartbeat(0, "the wedge", |beat| beat["runtime_state"] == "wedged").await;
    assert!(beat["sample_error"].as_str().unwrap().starts_with("chat-completions is not ready:"), "{beat}");
    let (status, text) = proxied(&bridge, None, "anybody there").await;
    assert_eq!(status, 200, "not a status that the platform takes for a dead container");
    assert!(text.unwrap().starts_with("[hermes-agent unreachable]"));
    platform.heartbeat(0, "the failed turn", |beat| beat["error_rate"] == 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_runtime_config_apply_and_the_others_are_warnings() {
    let folders = Folders::new(
        "name: Researcher\nruntime_config:\n  system_prompt: Be brief.\n  base_url: http://evil.example/v1\n  hystory: none\n",
    );
    let platform = FakePlatform::start().await;
    let gateway = FakeGateway::always(Reply::completion("found")).await;
    let at = folders.bridge();
    let bridge = start(&at, &folders, &platform, &gateway).up();
    assert_eq!(proxied(&bridge, None, "papers on fish").await, (200, Some("found".into())));
    let asked = gateway.requests().into_iter().find(|request| request.body.windows(4).any(|w| w == b"fish"));
    assert_eq!(asked.unwrap().json()["messages"][0]["content"], "Be brief.");
    bridge.terminate();
    let (_, log) = bridge.end();
    for said in ["`base_url` has no effect", "`hystory` has no effect: the executor has no such setting"] {
        assert!(log.contains(said), "{said} is not in:\n{log}");
    }
}
