//! Callers that take too much: they are told so, and the others are served.

use serde_json::{Value, json};
use talaria_egress::Response;
use talaria_fakes::guest;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::bridge::{Bridge, Start, admin, message, request};
use crate::swap::until;

const TOKENS: [(&str, &str); 2] = [("ALICE", "alice-token-0123456789"), ("BOB", "bob-token-0123456789")];

/// A host with two named callers and the probe as its executor. `limits` are alice's.
fn start(folder: &tempfile::TempDir, limits: &str, more: &str) -> Bridge {
    let executors = folder.path().join("executors");
    std::fs::create_dir(&executors).unwrap();
    std::fs::write(executors.join("probe.wasm"), guest("probe")).unwrap();
    let config = format!(
        "[executors]\ndefault = \"probe\"\n[a2a.auth]\ntokens = [\n\
         {{ name = \"alice\", token = {{ env = \"ALICE\" }}, limits = {{ {limits} }} }},\n\
         {{ name = \"bob\", token = {{ env = \"BOB\" }} }},\n]\n{more}"
    );
    let mut start = Start::new(folder.path()).config(&config);
    for (name, token) in TOKENS {
        start = start.env(name, token);
    }
    start.up()
}

/// Makes a raw JSON-RPC call of 1.0 as a caller: 0 is alice, 1 is bob.
async fn call(bridge: &Bridge, caller: usize, method: &str, params: Value) -> Response {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
    post(bridge, caller, "/", "1.0", &body).await
}

async fn post(bridge: &Bridge, caller: usize, path: &str, version: &str, body: &str) -> Response {
    let bearer = format!("Bearer {}", TOKENS[caller].1);
    let headers =
        [("a2a-version", version), ("content-type", "application/json"), ("authorization", &bearer)];
    request(bridge.url(), "POST", path, &headers, body).await
}

fn json_of(response: &Response) -> Value {
    serde_json::from_slice(&response.body).unwrap()
}

/// Sends a message and returns the text of the answer, or of the failure.
async fn say(bridge: &Bridge, caller: usize, text: &str) -> String {
    let response = call(bridge, caller, "SendMessage", message(text)).await;
    let answer = json_of(&response);
    let result = &answer["result"];
    let parts = [&result["message"]["parts"], &result["task"]["status"]["message"]["parts"]];
    let mut texts = parts.iter().filter_map(|parts| parts[0]["text"].as_str());
    texts.next_back().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Checks that a response is a 429 with a time to retry, and returns its text.
fn refused(response: &Response) -> String {
    let text = String::from_utf8_lossy(&response.body).into_owned();
    assert_eq!(response.status, 429, "{text}");
    let after = response.headers.iter().find(|(name, _)| name == "retry-after");
    let seconds: u32 = after.expect("a time to retry").1.parse().unwrap();
    assert!(seconds > 0, "{seconds}");
    text
}

async fn refusals(bridge: &Bridge, reason: &str) -> u64 {
    let (_, metrics) = admin(bridge, "GET", "/metrics").await;
    let name = format!("talaria_requests_refused_total{{reason=\"{reason}\"}} ");
    let text = metrics.as_str().unwrap().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("{reason}: {text}")).parse().unwrap()
}

#[tokio::test]
async fn crashing_messages_of_one_caller_do_not_stop_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(&folder, "", "");
    // The other one was not seen yet: it is served all the same.
    for number in 0..6 {
        say(&bridge, 0, &format!("panic {number}")).await;
    }
    assert_eq!(say(&bridge, 1, "echo hello").await, "hello");
    let held_back = say(&bridge, 0, "echo hello").await;
    assert!(held_back.contains("messages of this caller"), "{held_back}");
    for number in 0..6 {
        say(&bridge, 0, "panic now").await;
        say(&bridge, 0, &format!("panic again {number}")).await;
        assert_eq!(say(&bridge, 1, &format!("echo {number}")).await, number.to_string());
    }
    let (status, ready) = admin(&bridge, "GET", "/readyz").await;
    assert_eq!((status, &ready["executors"]["probe"]["state"]), (200, &json!("ready")), "{ready}");
    let (_, metrics) = admin(&bridge, "GET", "/metrics").await;
    let line = "talaria_executor_callers_held_back{executor=\"probe\"} 1";
    assert!(metrics.as_str().unwrap().lines().any(|found| found == line), "{metrics}");
}

#[tokio::test]
async fn the_same_crashing_message_again_and_again_holds_nobody_back() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(&folder, "", "");
    for _ in 0..12 {
        assert!(say(&bridge, 0, "panic now").await.contains("crashed"));
    }
    assert_eq!(say(&bridge, 0, "echo hello").await, "hello");
    assert_eq!(say(&bridge, 1, "echo hello").await, "hello");
}

#[tokio::test]
async fn a_caller_over_its_share_of_turns_is_told_when_to_retry() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(&folder, "turns = 1", "");
    let mut long = message("sleep 600000");
    long["configuration"] = json!({ "returnImmediately": true });
    let response = call(&bridge, 0, "SendMessage", long).await;
    let task = json_of(&response)["result"]["task"]["id"].clone();
    assert!(task.is_string(), "{}", json_of(&response));

    let rpc = |method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string()
    };
    let new = message("echo hi");
    let parts = json!([{ "kind": "text", "text": "echo hi" }]);
    let v03 = json!({ "message": { "kind": "message", "messageId": "m1", "role": "user", "parts": parts } });
    let content = json!([{ "text": "echo hi" }]);
    let v03_rest = json!({ "message": { "messageId": "m1", "role": "ROLE_USER", "content": content } });
    for (path, version, body) in [
        ("/", "1.0", rpc("SendMessage", new.clone())),
        ("/", "1.0", rpc("SendStreamingMessage", new.clone())),
        ("/message:send", "1.0", new.to_string()),
        ("/", "0.3", rpc("message/send", v03)),
        ("/v1/message:send", "0.3", v03_rest.to_string()),
    ] {
        let said = refused(&post(&bridge, 0, path, version, &body).await);
        assert!(said.contains("raise `limits.caller.turns`"), "{path} {version}: {said}");
    }
    assert_eq!(refusals(&bridge, "caller-turns").await, 5);
    assert_eq!(say(&bridge, 1, "echo hello").await, "hello");
    call(&bridge, 0, "CancelTask", json!({ "id": task })).await;
    until("there is room again", async || {
        call(&bridge, 0, "SendMessage", message("echo hi")).await.status == 200
    })
    .await;
}

#[tokio::test]
async fn messages_and_webhooks_of_a_caller_are_limited_per_minute() {
    let folder = tempfile::tempdir().unwrap();
    let bridge =
        start(&folder, "turns_per_minute = 3, webhooks_per_minute = 1", "[push]\nallow_private = true\n");
    let answer = json_of(&call(&bridge, 0, "SendMessage", message("echo hi")).await);
    let context = answer["result"]["message"]["contextId"].clone();
    let listed = json_of(&call(&bridge, 0, "ListTasks", json!({ "contextId": context })).await);
    let task = &listed["result"]["tasks"][0]["id"];
    let set = |id: &str| json!({ "taskId": task, "id": id, "url": "http://127.0.0.1:9/hook" });
    let first = call(&bridge, 0, "CreateTaskPushNotificationConfig", set("one")).await;
    assert!(json_of(&first)["error"].is_null(), "{}", json_of(&first));
    let said = refused(&call(&bridge, 0, "CreateTaskPushNotificationConfig", set("two")).await);
    assert!(said.contains("raise `limits.caller.webhooks_per_minute`"), "{said}");
    for _ in 0..2 {
        assert_eq!(say(&bridge, 0, "echo hi").await, "hi");
    }
    let said = refused(&call(&bridge, 0, "SendMessage", message("echo hi")).await);
    assert!(said.contains("raise `limits.caller.turns_per_minute`"), "{said}");
    assert_eq!(say(&bridge, 1, "echo hello").await, "hello");
    assert_eq!((refusals(&bridge, "caller-rate").await, refusals(&bridge, "caller-webhooks").await), (1, 1));
}

/// Opens two connections of alice with a body of 15 MiB each, whose last byte never comes.
async fn withhold_last_bytes(bridge: &Bridge) -> [TcpStream; 2] {
    let size = 15 << 20;
    let head = format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\ncontent-type: application/json\r\n\
         authorization: Bearer {}\r\ncontent-length: {size}\r\n\r\n",
        TOKENS[0].1
    );
    let bytes = [head.as_bytes(), &vec![b' '; size - 1]].concat();
    let open = async || {
        let mut stream = TcpStream::connect(bridge.url().trim_start_matches("http://")).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        stream
    };
    let held = [open().await, open().await];
    until("both bodies are held", async || used(bridge).await > 29 << 20).await;
    held
}

/// The memory that callers make the host hold.
async fn used(bridge: &Bridge) -> usize {
    let (_, metrics) = admin(bridge, "GET", "/metrics").await;
    let mut lines = metrics.as_str().unwrap().lines();
    lines.find_map(|line| line.strip_prefix("talaria_memory_used_bytes ")).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_caller_that_takes_all_of_its_memory_leaves_the_others_theirs() {
    let folder = tempfile::tempdir().unwrap();
    // Callers may take 128 MiB, requests 64 of it, and those of one caller 32.
    let bridge = start(&folder, "", "[limits]\nmemory = \"256MiB\"\n");
    let held = withhold_last_bytes(&bridge).await;
    let large = format!("echo {}", "x".repeat(4 << 20));
    let said = refused(&call(&bridge, 0, "SendMessage", message(&large)).await);
    assert!(said.contains("raise `limits.caller.memory`"), "{said}");
    assert!(refusals(&bridge, "caller-memory").await > 0);
    assert_eq!(say(&bridge, 1, &large).await.len(), 4 << 20);
    drop(held);
    until("her memory is given back", async || {
        call(&bridge, 0, "SendMessage", message("echo hi")).await.status == 200
    })
    .await;
}

#[tokio::test]
async fn a_caller_beyond_its_tasks_loses_its_own_oldest_and_nobody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(&folder, "tasks = 8", "");
    assert_eq!(say(&bridge, 1, "echo mine").await, "mine");
    for number in 0..10 {
        assert_eq!(say(&bridge, 0, &format!("echo {number}")).await, number.to_string());
    }
    let total = async |caller| {
        json_of(&call(&bridge, caller, "ListTasks", json!({})).await)["result"]["totalSize"].clone()
    };
    until("the oldest tasks are deleted", async || total(0).await == 8).await;
    assert_eq!(total(1).await, 1);
}

#[tokio::test]
async fn a_disk_that_is_nearly_full_rejects_new_messages_in_plain_words() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(&folder, "", "[store]\nmin_free = \"1000000GiB\"\n");
    let said = refused(&call(&bridge, 1, "SendMessage", message("echo hi")).await);
    assert!(said.contains("the store is full") && said.contains("`store.min_free`"), "{said}");
    assert_eq!(refusals(&bridge, "store-full").await, 1);
    let (status, ready) = admin(&bridge, "GET", "/readyz").await;
    assert_eq!((status, &ready["store"]["state"]), (503, &json!("not-ready")), "{ready}");
    assert!(ready["store"].to_string().contains("`store.min_free`"), "{ready}");
    let (_, metrics) = admin(&bridge, "GET", "/metrics").await;
    assert!(metrics.as_str().unwrap().contains("\ntalaria_store_size_bytes "), "{metrics}");
}
