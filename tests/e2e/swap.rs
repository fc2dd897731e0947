//! Executors that are added, changed and removed while the host serves: from the folder, by upload and by rollback.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use talaria_client::{ClientError, Delivery, Message, Protocol};
use talaria_fakes::{FakeGateway, Reply, guest, soon};

use crate::bridge::{Bridge, Start, client, request, run, stderr, stdout, talaria};

pub(super) const TOKEN: &str = "operators-own";

/// A grant of what the component `probe` declares, without which it is not ready.
pub(super) const PROBE: &str = "[grant]\negress = [\"* http://127.0.0.1:9/*\"]\n";

/// Settings of the component `probe` with a grant for them.
fn probe_at(base: &str) -> String {
    format!("[settings]\nbase_url = \"{base}\"\n[grant]\negress = [\"* {base}/*\"]\n")
}

/// A folder with `executors/` and a configuration that lets callers choose.
pub(super) struct Site(tempfile::TempDir);

impl Site {
    pub(super) fn new(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("executors")).unwrap();
        let config = format!(
            "[executors]\ndefault = \"conformance\"\ncaller_may_choose = true\nprobe_every = \"50ms\"\n\
             [admin]\nlisten = \"127.0.0.1:0\"\ntoken = {{ env = \"OPERATOR\" }}\n{more}"
        );
        std::fs::write(folder.path().join("talaria.toml"), config).unwrap();
        Self(folder)
    }

    pub(super) fn up(&self) -> Bridge {
        Start::new(self.0.path()).env("OPERATOR", TOKEN).up()
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join("executors").join(name)
    }

    pub(super) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.file(name), content).unwrap();
    }
}

/// Returns the answer of an executor, or the message of the error.
pub(super) async fn ask(bridge: &Bridge, executor: &str, text: &str) -> String {
    answer_of(bridge.url(), executor, text).await
}

async fn answer_of(url: &str, executor: &str, text: &str) -> String {
    let message = Message::new(text).with("talaria/executor", executor);
    match client(url, Protocol::V1_0).send(&message, Delivery::Whole).await {
        Ok(answer) => answer.to_string(),
        Err(ClientError::Rejected { message, .. }) => message,
        Err(error) => panic!("{error}"),
    }
}

async fn admin(bridge: &Bridge, method: &str, path: &str, media: &str, body: &str) -> (u16, Value) {
    let url = bridge.banner["admin"].as_str().expect("an address");
    let token = format!("Bearer {TOKEN}");
    let headers = [("authorization", token.as_str()), ("content-type", media)];
    let response = request(url, method, path, &headers, body).await;
    (response.status, serde_json::from_slice(&response.body).unwrap_or(Value::Null))
}

pub(super) async fn get(bridge: &Bridge, path: &str) -> Value {
    admin(bridge, "GET", path, "", "").await.1
}

/// Waits until a condition holds.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

pub(super) async fn answers(bridge: &Bridge, executor: &str, text: &str, wanted: &str) {
    until(&format!("{executor} answers {text:?} with {wanted:?}"), async || {
        ask(bridge, executor, text).await == wanted
    })
    .await;
}

/// Returns the changes of an executor, each as `actor change`.
pub(super) async fn changes(bridge: &Bridge, executor: &str) -> Vec<String> {
    let audit = get(bridge, "/audit").await;
    let entries = audit["changes"].as_array().unwrap_or_else(|| panic!("{audit}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_this = entries.iter().filter(|entry| entry["executor"] == executor);
    of_this.map(|entry| format!("{} {}", text(&entry["who"]), text(&entry["what"]))).collect()
}

#[tokio::test]
async fn an_executor_takes_turns_while_its_component_is_in_the_folder() {
    let site = Site::new("");
    let bridge = site.up();
    assert!(ask(&bridge, "mine", "hello").await.contains("names no executor"));

    // The policy is written first, then half of the component, then all of it.
    site.put("mine.toml", probe_at("http://one"));
    let whole = guest("probe");
    site.put("mine.wasm", &whole[..whole.len() / 2]);
    until("the half is refused", async || !get(&bridge, "/executors/mine").await["refused"].is_null()).await;
    site.put("mine.wasm", &whole);
    answers(&bridge, "mine", "echo hello", "hello").await;
    let shown = get(&bridge, "/executors/mine").await;
    assert_eq!(shown["current"]["readiness"], json!({ "state": "ready" }), "{shown}");
    assert!(shown["refused"].is_null(), "{shown}");

    // Only the settings change.
    site.put("mine.toml", probe_at("http://two"));
    until("the settings change", async || ask(&bridge, "mine", "turn").await.contains("http://two")).await;
    // The new component takes no settings.
    site.put("mine.toml", "");
    site.put("mine.wasm", guest("echo"));
    answers(&bridge, "mine", "echo hello", "echo hello").await;

    std::fs::remove_file(site.file("mine.wasm")).unwrap();
    until("it is gone", async || ask(&bridge, "mine", "hello").await.contains("names no executor")).await;
    let mut changes = changes(&bridge, "mine").await;
    // Two files that change together may make one version or two.
    changes.dedup();
    assert_eq!(changes, ["folder refused", "folder loaded", "folder swapped", "folder removed"]);
}

#[tokio::test]
async fn a_broken_version_leaves_the_last_good_one_even_after_a_restart() {
    let site = Site::new("");
    site.put("mine.wasm", guest("echo"));
    let bridge = site.up();
    assert_eq!(ask(&bridge, "mine", "hello").await, "hello");
    let refused = [
        (guest("trap-describe"), "", "describe"),
        (guest("probe"), "[settings]\nsetup = \"invalid\"", "setup failed"),
        (guest("probe"), "[settings]\nbase_url = 7", "base_url"),
        (guest("probe"), "dedline = \"1s\"", "did you mean `deadline`?"),
    ];
    for (component, policy, why) in refused {
        site.put("mine.wasm", component);
        site.put("mine.toml", policy);
        until(why, async || {
            get(&bridge, "/executors/mine").await["refused"].as_str().is_some_and(|said| said.contains(why))
        })
        .await;
        assert_eq!(ask(&bridge, "mine", "hello").await, "hello", "the last good version takes turns");
    }
    bridge.kill();
    let bridge = site.up();
    assert_eq!(ask(&bridge, "mine", "hello").await, "hello", "also after a restart");
    let shown = get(&bridge, "/executors/mine").await;
    assert!(shown["refused"].as_str().is_some_and(|said| said.contains("deadline")), "{shown}");

    site.put("mine.toml", PROBE);
    answers(&bridge, "mine", "echo hello", "hello").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_whose_upstream_is_down_waits_while_the_ready_one_serves() {
    let first = FakeGateway::always(Reply::completion("first")).await;
    // Nothing listens at this address yet.
    let door = format!("127.0.0.1:{}", talaria_fakes::free_port());
    let site = Site::new("");
    let policy =
        |base: &str| format!("[settings]\nbase_url = \"{base}\"\n[grant]\negress = [\"* {base}/*\"]\n");
    site.put("mine.wasm", std::fs::read(dist("chat-completions")).unwrap());
    site.put("mine.toml", policy(&first.base_url()));
    let bridge = site.up();
    assert_eq!(ask(&bridge, "mine", "hello").await, "first");

    site.put("mine.toml", policy(&format!("http://{door}/v1")));
    until("it waits", async || !get(&bridge, "/executors/mine").await["waiting"].is_null()).await;
    assert_eq!(ask(&bridge, "mine", "hello").await, "first", "the ready version takes turns");
    let _second = FakeGateway::start_at(&door, |_| Reply::completion("second")).await;
    answers(&bridge, "mine", "hello", "second").await;
    assert_eq!(changes(&bridge, "mine").await, ["start loaded", "folder waiting", "host swapped"]);
}

fn dist(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../guests/dist/{name}.wasm"))
}

#[tokio::test]
async fn a_rollback_stays_until_a_file_changes() {
    let site = Site::new("");
    site.put("mine.toml", PROBE);
    site.put("mine.wasm", guest("echo"));
    let bridge = site.up();
    let (status, said) = admin(&bridge, "POST", "/executors/mine/rollback", "", "").await;
    assert_eq!(status, 409, "{said}");
    site.put("mine.wasm", guest("probe"));
    answers(&bridge, "mine", "echo hello", "hello").await;
    let (status, said) = admin(&bridge, "POST", "/executors/mine/rollback", "", "").await;
    assert_eq!(status, 200, "{said}");
    assert_eq!(ask(&bridge, "mine", "echo hello").await, "echo hello");

    bridge.kill();
    let bridge = site.up();
    assert_eq!(ask(&bridge, "mine", "echo hello").await, "echo hello", "a restart does not undo it");
    // Roll forward to the component in the folder.
    let (status, said) = admin(&bridge, "POST", "/executors/mine/reload", "", "").await;
    assert_eq!(status, 200, "{said}");
    assert_eq!(ask(&bridge, "mine", "echo hello").await, "hello");
    let changes = changes(&bridge, "mine").await;
    assert_eq!(
        changes,
        ["start loaded", "folder swapped", "admin rolled-back", "start loaded", "admin swapped"]
    );
    // The command finds the host by its configuration.
    let admin_url = bridge.banner["admin"].as_str().unwrap().trim_start_matches("http://");
    let config = std::fs::read_to_string(site.0.path().join("talaria.toml")).unwrap();
    std::fs::write(site.0.path().join("same.toml"), config.replace("127.0.0.1:0", admin_url)).unwrap();
    let rollback = |name: &str| {
        let args = ["executor", "rollback", name, "--config", "same.toml"];
        run(talaria(site.0.path()).args(args).env("OPERATOR", TOKEN))
    };
    let output = rollback("mine");
    assert!(stdout(&output).starts_with("mine is back at echo "), "{output:?}");
    assert_eq!(ask(&bridge, "mine", "echo hello").await, "echo hello");
    let output = rollback("nobody");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("there is no executor `nobody`"), "{output:?}");
    assert_eq!(admin(&bridge, "POST", "/executors/nobody/reload", "", "").await.0, 404);
    assert_eq!(admin(&bridge, "POST", "/executors/conformance/rollback", "", "").await.0, 409);
}

#[tokio::test]
async fn an_upload_is_probed_before_anything_is_written() {
    let site = Site::new("");
    let bridge = site.up();
    let base64 = |bytes: &[u8]| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
    let both = |wasm: &[u8], policy: &str| json!({ "component": base64(wasm), "policy": policy }).to_string();
    let put = async |media: &str, body: &str| admin(&bridge, "PUT", "/executors/mine", media, body).await;

    for (media, body, status) in [
        ("text/plain", "x".to_owned(), 415),
        ("application/json", "{".to_owned(), 400),
        ("application/json", json!({ "component": "***" }).to_string(), 400),
        ("application/json", "{}".to_owned(), 400),
        ("application/toml", "deadline = \"1s\"".to_owned(), 409),
        ("application/wasm", "no component".to_owned(), 422),
        ("application/json", both(&guest("trap-describe"), ""), 422),
        ("application/json", both(&guest("probe"), "dedline = \"1s\""), 422),
    ] {
        let (said, answer) = put(media, &body).await;
        assert_eq!(said, status, "{media}: {answer}");
        assert_eq!(std::fs::read_dir(site.file("")).unwrap().count(), 0, "{media}: nothing is written");
    }
    let (status, said) = put("application/json", &both(&guest("probe"), &probe_at("http://up"))).await;
    assert_eq!((status, &said["status"]), (200, &json!("takes turns")), "{said}");
    assert!(ask(&bridge, "mine", "turn").await.contains("http://up"));
    let (status, said) = put("application/toml", &probe_at("http://down")).await;
    assert_eq!(status, 200, "{said}");
    assert!(ask(&bridge, "mine", "turn").await.contains("http://down"));
    let (status, _) = admin(&bridge, "PUT", "/executors/conformance/", "application/toml", "").await;
    assert_eq!(status, 404);

    assert_eq!(admin(&bridge, "DELETE", "/executors/mine", "", "").await.0, 200);
    assert!(ask(&bridge, "mine", "hello").await.contains("names no executor"));
    assert_eq!(std::fs::read_dir(site.file("")).unwrap().count(), 0);
    assert_eq!(admin(&bridge, "DELETE", "/executors/mine", "", "").await.0, 404);
    assert_eq!(admin(&bridge, "DELETE", "/executors/conformance", "", "").await.0, 409);
    assert_eq!(changes(&bridge, "mine").await, ["admin loaded", "admin swapped", "admin removed"]);
}

#[tokio::test]
async fn nothing_changes_without_the_operators_token() {
    let site = Site::new("");
    let bridge = site.up();
    let url = bridge.banner["admin"].as_str().unwrap();
    let paths = [("PUT", "/executors/x"), ("DELETE", "/executors/x"), ("POST", "/executors/x/reload")];
    for (method, path) in paths {
        let response = request(url, method, path, &[("authorization", "Bearer wrong")], "").await;
        assert_eq!(response.status, 401, "{method} {path}");
    }
    // Without a configured token nobody can authenticate as the operator.
    let folder = tempfile::tempdir().unwrap();
    let open = Start::new(folder.path()).arg("--demo").up();
    let url = open.banner["admin"].as_str().unwrap();
    for (method, path) in paths {
        let response = request(url, method, path, &[], "").await;
        let said = String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!(response.status, 403, "{method} {path}: {said}");
        assert!(said.contains("admin.token"), "{said}");
    }
    assert_eq!(request(url, "GET", "/executors", &[], "").await.status, 200);
}

/// Components are replaced by good and by broken ones under a load of turns. No turn fails, and a turn ends on the component that
/// it began on.
#[tokio::test(flavor = "multi_thread")]
async fn a_swap_fails_no_turn() {
    let site = Site::new("");
    site.put("mine.toml", PROBE);
    site.put("mine.wasm", guest("probe"));
    let bridge = Arc::new(site.up());
    let long = tokio::spawn({
        let bridge = Arc::clone(&bridge);
        async move { ask(&bridge, "mine", "sleep 6000").await }
    });
    let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (bridge, stop, turns) = (Arc::clone(&bridge), Arc::clone(&stop), Arc::clone(&turns));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let said = ask(&bridge, "mine", "echo hello").await;
                    assert!(said == "hello" || said == "echo hello", "{said}");
                    turns.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for (component, answer) in [("echo", "echo hello"), ("probe", "hello"), ("echo", "echo hello")] {
        site.put("mine.wasm", "broken");
        until("the broken one is refused", async || {
            !get(&bridge, "/executors/mine").await["refused"].is_null()
        })
        .await;
        site.put("mine.wasm", guest(component));
        answers(&bridge, "mine", "echo hello", answer).await;
    }
    stop.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.expect("no turn failed");
    }
    assert_eq!(long.await.unwrap(), "true", "it ended on the component that it began on");
    assert!(turns.load(Ordering::SeqCst) > 20);
}

/// Kubernetes updates a mounted folder by replacing one link, through which all files are linked.
#[tokio::test]
async fn notices_a_volume_that_is_swapped_by_a_link() {
    let site = Site::new("");
    let folder = site.file("");
    for (version, component) in [("..1", "probe"), ("..2", "echo")] {
        std::fs::create_dir(folder.join(version)).unwrap();
        std::fs::write(folder.join(version).join("mine.wasm"), guest(component)).unwrap();
    }
    std::os::unix::fs::symlink("..1", folder.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/mine.wasm", folder.join("mine.wasm")).unwrap();
    let bridge = site.up();
    assert_eq!(ask(&bridge, "mine", "echo hello").await, "hello");
    std::os::unix::fs::symlink("..2", folder.join("..data.new")).unwrap();
    std::fs::rename(folder.join("..data.new"), folder.join("..data")).unwrap();
    answers(&bridge, "mine", "echo hello", "echo hello").await;
}

/// Returns the output modes in the card of this version.
async fn output_modes(bridge: &Bridge, version: &str) -> Value {
    let headers = [("a2a-version", version)];
    let response = bridge.request("GET", "/.well-known/agent-card.json", &headers, "").await;
    serde_json::from_slice::<Value>(&response.body).unwrap()["defaultOutputModes"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_card_follows_the_output_modes_of_the_executors() {
    let site = Site::new("");
    let gateway = FakeGateway::always(Reply::json(&json!({ "data": [] }))).await;
    let base = gateway.base_url();
    let hermes =
        format!("[settings]\nbase_url = \"{base}\"\nmodel = \"m\"\n[grant]\negress = [\"* {base}/*\"]");
    let bridge = site.up();
    let (text, both) = (json!(["text/plain"]), json!(["text/plain", "application/json"]));
    assert_eq!(output_modes(&bridge, "1.0").await, text);

    // It declares that it answers with JSON too.
    site.put("mine.toml", &hermes);
    site.put("mine.wasm", guest("hermes"));
    for version in ["1.0", "0.3"] {
        until("the card offers JSON", async || output_modes(&bridge, version).await == both).await;
    }

    // The component is replaced, then removed.
    site.put("mine.toml", "");
    site.put("mine.wasm", guest("echo"));
    until("the card offers text alone", async || output_modes(&bridge, "1.0").await == text).await;
    site.put("mine.toml", &hermes);
    site.put("mine.wasm", guest("hermes"));
    until("the card offers JSON again", async || output_modes(&bridge, "1.0").await == both).await;
    std::fs::remove_file(site.file("mine.wasm")).unwrap();
    until("the card offers text alone again", async || output_modes(&bridge, "1.0").await == text).await;
}
