//! Cases that every executor must pass at the real gateway. The modules named after executors select the cases that
//! apply to each, and add its own.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use talaria_fakes::{FakePlatform, PROVIDER_KEY, Provider, free_port, soon};

use crate::bridge::{Bridge, message};
use crate::partner::{Partner, Shared};
use crate::stream::Stream;

pub(crate) const COMPLETED: &str = "TASK_STATE_COMPLETED";
pub(crate) const CANCELED: &str = "TASK_STATE_CANCELED";
pub(crate) const INPUT_REQUIRED: &str = "TASK_STATE_INPUT_REQUIRED";
pub(crate) const FAILED: &str = "TASK_STATE_FAILED";

/// An image of one pixel.
const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A bridge for one test, at the shared gateway.
pub(crate) struct Case {
    pub(crate) bridge: Bridge,
    pub(crate) hermes: Shared,
    _folder: tempfile::TempDir,
}

impl Case {
    pub(crate) async fn of(executor: &str) -> Self {
        let hermes = Partner::shared().await;
        let folder = tempfile::tempdir().unwrap();
        Self { bridge: hermes.up(folder.path(), executor), hermes, _folder: folder }
    }
}

/// A message in a context, with a command for the model.
pub(crate) fn in_context(context: &str, command: &str) -> Value {
    let mut params = message(&Provider::turn(command).0);
    params["message"]["contextId"] = json!(context);
    params
}

/// Sends and waits; returns the text of the reply or of the failure.
pub(crate) async fn answer(bridge: &Bridge, params: Value) -> String {
    let answer = bridge.call("SendMessage", params).await;
    let result = &answer["result"];
    // The last artifact: a task that has asked a question may have more.
    let artifacts = result["task"]["artifacts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let places = [
        &result["message"]["parts"][0]["text"],
        artifacts.last().map_or(&Value::Null, |artifact| &artifact["parts"][0]["text"]),
        &result["task"]["status"]["message"]["parts"][0]["text"],
    ];
    places.into_iter().find_map(Value::as_str).unwrap_or_else(|| panic!("no text: {answer}")).to_owned()
}

/// The earlier messages of the context as the model sees them.
pub(crate) async fn history(bridge: &Bridge, context: &str) -> Vec<String> {
    let said = answer(bridge, in_context(context, "history")).await;
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("not a history: {said}"))
}

/// The texts without the names of their turns.
pub(crate) fn words(texts: &[String]) -> Vec<&str> {
    texts.iter().map(|text| text.split_once(": ").map_or(text.as_str(), |(_, words)| words)).collect()
}

pub(crate) async fn replies(executor: &str) {
    let case = Case::of(executor).await;
    assert_eq!(answer(&case.bridge, message(&Provider::turn("say hello there").0)).await, "hello there");
    let long = answer(&case.bridge, message(&Provider::turn("long 2000").0)).await;
    assert_eq!(long, "0123456789".repeat(2000), "a long answer comes whole");
}

pub(crate) async fn streams(executor: &str) {
    let case = Case::of(executor).await;
    let stream = Stream::send(&case.bridge, &Provider::turn("count 8").0).await.end().await;
    assert_eq!((stream.state.as_str(), stream.text.trim_end()), (COMPLETED, "1 2 3 4 5 6 7 8"));
    assert!(stream.pieces > 1, "it came in one piece");
}

pub(crate) async fn reports_tools(executor: &str) {
    let case = Case::of(executor).await;
    let stream = Stream::send(&case.bridge, &Provider::turn("run echo from the terminal").0).await;
    let stream = stream.end().await;
    assert_eq!(stream.state, COMPLETED, "{}", stream.status);
    assert_eq!(
        stream.tools,
        [("terminal".into(), "started".into()), ("terminal".into(), "completed".into())]
    );
    assert!(stream.text.starts_with("the tool said: "), "{}", stream.text);
    assert!(stream.text.contains("from the terminal"), "{}", stream.text);
}

/// A context is remembered, in buffered and streamed turns alike, and no other context sees it.
pub(crate) async fn continues(executor: &str) {
    let case = Case::of(executor).await;
    let bridge = &case.bridge;
    assert_eq!(answer(bridge, in_context("painting", "say blue")).await, "blue");
    let streamed = Stream::open(bridge, in_context("painting", "say green")).await.end().await;
    assert_eq!(streamed.text, "green");
    let seen = history(bridge, "painting").await;
    assert_eq!(words(&seen), ["say blue", "blue", "say green", "green"]);
    assert_eq!(history(bridge, "cooking").await, [""; 0], "another context");
}

/// The caller reads the failure, without the key in it.
pub(crate) async fn passes_failures_on(executor: &str) {
    let case = Case::of(executor).await;
    let said = answer(&case.bridge, message(&Provider::turn("fail 401").0)).await;
    assert!(said.starts_with("[hermes-agent error] "), "{said}");
    assert!(said.contains("no such account") && !said.contains(PROVIDER_KEY), "{said}");
    let stream = Stream::send(&case.bridge, &Provider::turn("fail 401").0).await.end().await;
    assert_eq!(stream.state, FAILED);
    assert!(stream.status.contains("no such account"), "{}", stream.status);
    assert!(!stream.status.contains(PROVIDER_KEY), "{}", stream.status);
}

/// A cancel in the middle of an answer makes the agent close its connection to the model, and the context can go on.
pub(crate) async fn cancels(executor: &str) {
    let case = Case::of(executor).await;
    let (text, turn) = Provider::turn("talk");
    let mut params = message(&text);
    params["message"]["contextId"] = json!("talk");
    let mut stream = Stream::open(&case.bridge, params).await;
    // Before the first words hermes-agent 0.19 cannot always close the connection.
    stream.until("its first words", |stream| !stream.text.is_empty()).await;
    cancel(&case.bridge, &stream.task).await;
    case.hermes.model.let_go(&turn).await;
    stream.until("the end", |stream| stream.state == CANCELED).await;
    assert_eq!(case.hermes.model.times(&turn), 1, "the agent did not ask again");
    // The gateway stores a cancelled turn later, so the next one may not see it yet.
    assert_eq!(answer(&case.bridge, in_context("talk", "say on")).await, "on");
}

/// A cancel in the middle of a tool's work ends that work.
pub(crate) async fn stops_tools(executor: &str) {
    let case = Case::of(executor).await;
    let pid = case.hermes.gateway.scratch().join("pid");
    let (text, turn) = Provider::turn(&format!("run echo $$ > {}; sleep 3600", pid.display()));
    let mut params = message(&text);
    params["message"]["contextId"] = json!("tool");
    let mut stream = Stream::open(&case.bridge, params).await;
    let pid: u32 =
        patiently("the tool works", || std::fs::read_to_string(&pid).ok()?.trim().parse().ok()).await;
    cancel(&case.bridge, &stream.task).await;
    stream.until("the end", |stream| stream.state == CANCELED).await;
    let lives = || Command::new("kill").args(["-0", &pid.to_string()]).stderr(Stdio::null()).status();
    patiently("the tool's process is gone", || (!lives().unwrap().success()).then_some(())).await;
    assert_eq!(case.hermes.model.times(&turn), 1, "the agent did not go on");
    assert_eq!(answer(&case.bridge, in_context("tool", "say free")).await, "free", "the context can go on");
}

/// The caller is asked about a command that needs approval, and the answer decides.
pub(crate) async fn asks_for_approval(executor: &str) {
    let case = Case::of(executor).await;
    for (decision, is_run) in [("approve", true), ("deny", false)] {
        let folder = case.hermes.gateway.scratch();
        let (text, _) = Provider::turn(&format!("run rm -rf {}", folder.display()));
        let mut stream = Stream::send(&case.bridge, &text).await;
        stream.until("the question", |stream| stream.state == INPUT_REQUIRED).await;
        assert!(stream.status.contains(&format!("rm -rf {}", folder.display())), "{}", stream.status);
        assert!(folder.exists(), "it was run before the answer");
        let mut params = message(decision);
        params["message"]["taskId"] = json!(stream.task);
        let said = answer(&case.bridge, params).await;
        assert!(said.starts_with("the tool said: "), "{decision}: {said}");
        assert_eq!(!folder.exists(), is_run, "{decision}: {said}");
    }
}

/// Polls until there is a value.
pub(crate) async fn patiently<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    soon(what, async {
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

pub(crate) async fn cancel(bridge: &Bridge, task: &str) {
    let answer = bridge.call("CancelTask", json!({ "id": task })).await;
    if answer["result"]["status"]["state"] != CANCELED {
        panic!("{answer}: {}", bridge.call("GetTask", json!({ "id": task })).await);
    }
}

/// Waits until the task is in that state.
pub(crate) async fn in_state(bridge: &Bridge, id: &Value, state: &str) -> Value {
    soon(&format!("the task is {state}"), async {
        loop {
            let task = bridge.call("GetTask", json!({ "id": id })).await["result"].take();
            if task["status"]["state"] == state {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

/// The gateway dies in the middle of a turn: the turn fails, and once the gateway is back the context goes on.
pub(crate) async fn survives_the_gateway(executor: &str) {
    let mut hermes = Partner::own(Default::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = hermes.up(folder.path(), executor);
    assert_eq!(answer(&bridge, in_context("long", "say before")).await, "before");
    let (text, turn) = Provider::turn("talk");
    let mut params = message(&text);
    params["message"]["contextId"] = json!("long");
    let mut stream = Stream::open(&bridge, params).await;
    hermes.model.asked(&turn).await;
    hermes.gateway.kill();
    stream.until("the end", |stream| stream.state == FAILED).await;
    assert!(stream.status.starts_with("[hermes-agent unreachable] "), "{}", stream.status);
    let down = answer(&bridge, in_context("long", "say meanwhile")).await;
    assert!(down.starts_with("[hermes-agent unreachable] "), "{down}");
    hermes.gateway.restart().await;
    let seen = soon("the gateway answers", history(&bridge, "long")).await;
    assert_eq!(words(&seen)[..2], ["say before", "before"], "{seen:?}");
}

/// The workspace's transcript shows what the agent remembers of this bridge's contexts, and nothing else of the
/// gateway.
pub(crate) async fn shows_its_transcript(executor: &str) {
    let hermes = Partner::shared().await;
    let (folder, platform) = (tempfile::tempdir().unwrap(), FakePlatform::start().await);
    let bridge = hermes
        .bridge(folder.path(), executor)
        .env("WORKSPACE_ID", "ws-1")
        .env("WORKSPACE_CONFIG_PATH", &folder.path().to_string_lossy())
        .env("PLATFORM_URL", &platform.url())
        .env("HERMES_API_BASE", &hermes.gateway.api());
    // The plugin itself has no transcript; its fallback has one.
    let inbound = hermes.gateway.inbound();
    let port = inbound.rsplit(':').next().and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let bridge = match executor {
        "plugin-callback" => {
            let on = bridge.env("MOLECULE_A2A_PLATFORM_ENABLED", "true");
            on.env("MOLECULE_A2A_PLATFORM_PORT", port)
                .env("MOLECULE_A2A_CALLBACK_PORT", &free_port().to_string())
        }
        _ => bridge,
    };
    let bridge = bridge.up();
    platform.registered(1).await;
    let (said, name) = Provider::turn("say I was here");
    assert_eq!(answer(&bridge, message(&said)).await, "I was here");
    let (token, mut since) = (format!("Bearer {}", platform.token().unwrap()), json!(0));
    let mut lines = Vec::new();
    soon("the agent remembers", async {
        while !lines.iter().any(|line: &Value| line["content"] == "I was here") {
            let path = format!("/transcript?since={since}&limit=1000");
            let page = bridge.request("GET", &path, &[("authorization", &token)], "").await;
            let page: Value = serde_json::from_slice(&page.body).unwrap();
            let source = page["source"].as_str().unwrap_or_default();
            assert!(source.ends_with(": what the agent remembers"), "{page}");
            lines.extend(page["lines"].as_array().cloned().unwrap_or_default());
            since = page["cursor"].clone();
        }
    })
    .await;
    let mine = |line: &&Value| line["type"] == "user" && line["content"].to_string().contains(&name);
    assert_eq!(lines.iter().filter(mine).count(), 1, "each message once");
    assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["session_id"].is_string()));
}

/// The model sees an image that came with a message.
pub(crate) async fn shows_images(executor: &str) {
    let case = Case::of(executor).await;
    let (text, turn) = Provider::turn("look");
    let mut params = message(&text);
    let image = json!({ "raw": IMAGE, "mediaType": "image/png" });
    params["message"]["parts"].as_array_mut().unwrap().push(image);
    assert_eq!(answer(&case.bridge, params).await, "1 images");
    assert_eq!(case.hermes.model.images(&turn), [format!("data:image/png;base64,{IMAGE}")]);
}
