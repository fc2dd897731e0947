//! What the operator reads: a line for each turn and each request, the guests' own lines, and JSON that programs can read.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value, json};
use talaria_fakes::{FakeGateway, Reply, guest, soon};

use crate::bridge::{Start, message};
use crate::swap::ask;

/// A JSON object whose keys are all different.
struct Event(Map<String, Value>);

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Event;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object without a key that is there twice")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
                let mut event = Map::new();
                while let Some((key, value)) = map.next_entry::<String, Value>()? {
                    if event.insert(key.clone(), value).is_some() {
                        return Err(serde::de::Error::custom(format!("{key} is there twice")));
                    }
                }
                Ok(Event(event))
            }
        }
        from.deserialize_map(Keys)
    }
}

/// The events of a log in JSON. Fails for a line that is not JSON, and for a field that is there twice, in its spans too.
fn events(log: &Path) -> Vec<Map<String, Value>> {
    let text = std::fs::read_to_string(log).unwrap();
    let read = |line: &str| {
        let Event(event) = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let mut seen: BTreeSet<String> = event.keys().cloned().collect();
        for span in event.get("spans").and_then(Value::as_array).into_iter().flatten() {
            for key in span.as_object().unwrap().keys().filter(|key| *key != "name") {
                assert!(seen.insert(key.clone()), "{key} is there twice: {line}");
            }
        }
        event
    };
    text.lines().map(read).collect()
}

fn of_target<'a>(events: &'a [Map<String, Value>], target: &str) -> Vec<&'a Map<String, Value>> {
    events.iter().filter(|event| event["target"] == target).collect()
}

async fn turn_is_logged(log: &Path) {
    while !std::fs::read_to_string(log).unwrap().contains("\"target\":\"turn\"") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn every_turn_and_every_request_has_a_line_with_the_same_task() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let gateway = FakeGateway::always(Reply::completion("hi")).await;
    let config = "[executors]\ndefault = \"chat-completions\"\n[store]\nurl = \"memory:\"\n";
    let bridge = Start::new(folder.path())
        .config(config)
        .env("HERMES_API_BASE", &gateway.base_url())
        .arg("--log-format=json")
        .arg("--log=info,access=debug")
        .log(&log)
        .up();
    bridge.say("hello").await;
    let missing = bridge.call("GetTask", json!({ "id": "no-such-task" })).await;
    assert_eq!(missing["error"]["code"], -32001);
    soon("the line of the turn", turn_is_logged(&log)).await;

    let events = events(&log);
    let turn = of_target(&events, "turn")[0];
    assert_eq!(
        (&turn["level"], &turn["state"], &turn["executor"]),
        (&json!("INFO"), &json!("completed"), &json!("chat-completions"),)
    );
    for time in ["queued", "guest", "upstream", "first_text", "total"] {
        assert!(turn[time].as_f64().is_some_and(|millis| millis > 0.0), "{time}: {turn:?}");
    }
    assert!(turn["upstream"].as_f64() <= turn["total"].as_f64(), "{turn:?}");
    assert!(turn["bytes"].as_u64().is_some_and(|bytes| bytes > 0) && turn["version"].is_string(), "{turn:?}");
    let requests = of_target(&events, "access");
    let sent = requests.iter().find(|line| line["rpc"] == "SendMessage").unwrap();
    assert_eq!(
        (&sent["level"], &sent["task"], &sent["status"]),
        (&json!("DEBUG"), &turn["task"], &json!(200))
    );
    assert!(sent["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{sent:?}");
    let rejected = requests.iter().find(|line| line["rpc"] == "GetTask").unwrap();
    assert_eq!((&rejected["level"], &rejected["code"]), (&json!("INFO"), &json!(-32001)));
    assert_eq!(rejected["task"], "no-such-task");
    assert!(rejected["why"].as_str().unwrap().contains("no-such-task"), "{rejected:?}");
}

#[tokio::test]
async fn a_failed_turn_says_why_and_what_the_upstream_said() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let refusal = "no capacity left, key sk-abcdefghijklmnopqrstuvwxyz123456";
    let gateway = FakeGateway::always(Reply::status(503, "text/plain", refusal)).await;
    let config = "[executors]\ndefault = \"chat-completions\"\n[store]\nurl = \"memory:\"\n";
    let bridge = Start::new(folder.path())
        .config(config)
        .env("HERMES_API_BASE", &gateway.base_url())
        .arg("--log-format=json")
        .log(&log)
        .up();
    bridge.call("SendMessage", message("hello")).await;
    soon("the line of the turn", turn_is_logged(&log)).await;
    let events = events(&log);
    let turn = of_target(&events, "turn")[0];
    assert_eq!(
        (&turn["level"], &turn["state"], &turn["upstream_status"]),
        (&json!("WARN"), &json!("failed"), &json!(503),)
    );
    assert!(turn["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{turn:?}");
    let body = turn["upstream_body"].as_str().unwrap();
    assert!(body.contains("no capacity left") && !body.contains("sk-abc"), "{body}");
}

/// The configuration of a host with two guests that print: one by the SDK, one by WASI.
fn with_guests(folder: &Path) -> &'static str {
    let executors = folder.join("executors");
    std::fs::create_dir(&executors).unwrap();
    for name in ["hostile", "wasi-fetch"] {
        std::fs::write(executors.join(format!("{name}.wasm")), guest(name)).unwrap();
    }
    "[executors]\ndefault = \"conformance\"\ncaller_may_choose = true\n[store]\nurl = \"memory:\"\n"
}

#[tokio::test]
async fn json_has_no_banner_no_notes_and_no_field_twice() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let config = with_guests(folder.path());
    let bridge = Start::new(folder.path()).config(config).arg("--log-format=json").log(&log).up();
    for attack in ["log 3", "spans 3 10", "panic now", "stdout 2 a line", "call POST http://127.0.0.1:9/x"] {
        ask(&bridge, "hostile", attack).await;
    }
    ask(&bridge, "wasi-fetch", "STDOUT 2 a line").await;
    bridge.terminate();
    assert_eq!(bridge.end().0, Some(0));
    let events = events(&log);
    assert_eq!(of_target(&events, "turn").len(), 6);
    let printed = |executor: &str| {
        let guests = of_target(&events, "guest").into_iter();
        let own = guests.filter(|line| line["message"] == "a line" && line["executor"] == executor);
        own.map(|line| (line["level"].clone(), line.get("stream").cloned())).collect::<Vec<_>>()
    };
    let (info, error) = ((json!("INFO"), None), (json!("ERROR"), None));
    assert_eq!(printed("hostile"), [info.clone(), info, error]);
    let (out, err) = ((json!("INFO"), Some(json!("stdout"))), (json!("INFO"), Some(json!("stderr"))));
    assert_eq!(printed("wasi-fetch"), [out.clone(), out, err]);
}

#[tokio::test]
async fn what_a_guest_prints_is_bounded_and_scrubbed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let config = with_guests(folder.path());
    let bridge = Start::new(folder.path()).config(config).log(&log).up();
    let secret = "sk-abcdefghijklmnopqrstuvwxyz123456";
    let line = format!("100000 {} {secret}", "x".repeat(100));
    assert_eq!(ask(&bridge, "hostile", &format!("stdout {line}")).await, "printed");
    assert_eq!(ask(&bridge, "wasi-fetch", &format!("STDOUT {line}")).await, "printed");
    bridge.kill();
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.len() < 512 << 10, "{} bytes of log", text.len());
    assert!(text.contains("stream=\"stdout\"") && !text.contains(secret), "{text}");
}
