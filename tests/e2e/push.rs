//! Push notifications to a webhook on loopback: delivered, retried, kept across a `kill -9`, and rejected for forbidden
//! addresses.

use serde_json::{Value, json};
use talaria_fakes::{guest, soon};

use crate::bridge::{Bridge, Start, admin, message};
use crate::webhook::{Delivery, Webhook};

const CONFIG: &str = "[executors]\ndefault = \"probe\"\n[store]\nurl = \"sqlite:tasks.db\"\n";
const PRIVATE: &str = "[push]\nallow_private = true\npause = \"10ms\"\ntries = 1000\n";

/// Waits until the task is over and returns all deliveries.
async fn until_over(hook: &Webhook) -> Vec<Delivery> {
    soon("the last push comes", async {
        loop {
            let kept = hook.deliveries();
            let over =
                |last: &Delivery| last.body["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED";
            if kept.last().is_some_and(over) {
                return kept;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let executors = folder.path().join("executors");
    std::fs::create_dir(&executors).unwrap();
    std::fs::write(executors.join("probe.wasm"), guest("probe")).unwrap();
    folder
}

fn start(folder: &tempfile::TempDir, more: &str) -> Bridge {
    Start::new(folder.path()).config(&format!("{CONFIG}{more}")).up()
}

async fn send(bridge: &Bridge, text: &str, url: &str) -> Value {
    let mut params = message(text);
    let authentication = json!({ "scheme": "Bearer", "credentials": "s3cret-credentials" });
    let hook = json!({ "id": "h", "url": url, "token": "t0ken", "authentication": authentication });
    params["configuration"] = json!({ "taskPushNotificationConfig": hook });
    bridge.call("SendMessage", params).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_reaches_the_webhook_with_its_credentials() {
    let (folder, hook) = (folder(), Webhook::start(true).await);
    let bridge = start(&folder, PRIVATE);
    let answer = send(&bridge, "echo hello", &hook.url).await;
    let task = &answer["result"]["task"];
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "hello", "{answer}");
    let kept = until_over(&hook).await;
    for Delivery { head, body } in &kept {
        assert!(head.starts_with("post /hook "), "{head}");
        for line in [
            "authorization: bearer s3cret-credentials",
            "x-a2a-notification-token: t0ken",
            "a2a-notification-token: t0ken",
            "content-type: application/a2a+json",
        ] {
            assert!(head.lines().any(|found| found == line), "{line} in {head}");
        }
        let update = body.as_object().unwrap().values().next().unwrap();
        assert_eq!(update["taskId"], task["id"]);
    }
    let shown =
        bridge.call("GetTaskPushNotificationConfig", json!({ "taskId": task["id"], "id": "h" })).await;
    assert_eq!(shown["result"]["url"], hook.url.as_str());
    assert!(!shown.to_string().contains("s3cret") && !shown.to_string().contains("t0ken"), "{shown}");
    bridge.terminate();
    let (_, said) = bridge.end();
    assert!(!said.contains("s3cret") && !said.contains("t0ken"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_pending_at_a_kill_are_sent_after_the_restart() {
    let (folder, hook) = (folder(), Webhook::start(false).await);
    let bridge = start(&folder, PRIVATE);
    let answer = send(&bridge, "echo hello", &hook.url).await;
    assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{answer}");
    bridge.kill();
    assert_eq!(hook.deliveries().len(), 0);
    hook.work();
    let _bridge = start(&folder, PRIVATE);
    let kept = until_over(&hook).await;
    assert_eq!(kept[0].body["statusUpdate"]["status"]["state"], "TASK_STATE_WORKING");
}

#[tokio::test(flavor = "multi_thread")]
async fn loopback_and_other_bad_addresses_are_rejected_by_default_and_nothing_is_sent() {
    let (folder, hook) = (folder(), Webhook::start(true).await);
    let bridge = start(&folder, "");
    for bad in [
        hook.url.as_str(),
        "http://localhost/h",
        "http://[::1]/h",
        "http://[::ffff:127.0.0.1]/h",
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/h",
        "http://0x7f.1/h",
        "ftp://example.com/h",
        "https://user:secret@example.com/h",
        "file:///etc/passwd",
        "nonsense",
        "",
    ] {
        let answer = send(&bridge, "echo hello", bad).await;
        assert_eq!(answer["error"]["code"], -32602, "{bad}: {answer}");
    }
    let listed = bridge.call("ListTasks", json!({})).await;
    assert_eq!(listed["result"]["totalSize"], 0, "{listed}");
    assert_eq!(hook.deliveries().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_webhook_is_listed_and_can_be_retried() {
    let (folder, hook) = (folder(), Webhook::start(false).await);
    let bridge = start(&folder, "[push]\nallow_private = true\npause = \"1ms\"\ntries = 2\n");
    let answer = send(&bridge, "echo hello", &format!("{}?key=s3cret-query", hook.url)).await;
    let task = answer["result"]["task"]["id"].as_str().unwrap();
    let listed = soon("it is given up", async {
        loop {
            let listed = admin(&bridge, "GET", "/push/undelivered").await.1;
            if listed["undelivered"] != json!([]) {
                return listed;
            }
        }
    })
    .await;
    let [entry] = listed["undelivered"].as_array().unwrap().as_slice() else { panic!("{listed}") };
    assert_eq!((&entry["task"], &entry["id"], &entry["tries"]), (&json!(task), &json!("h"), &json!(2)));
    assert_eq!((&entry["url"], &entry["owner"]), (&json!(hook.url), &json!(null)));
    assert_eq!(entry["why"], "the webhook answered 503");
    assert!(!listed.to_string().contains("s3cret") && !listed.to_string().contains("t0ken"), "{listed}");

    for unknown in [format!("/push/undelivered/{task}/other/retry"), "/push/undelivered/x/h/retry".into()] {
        assert_eq!(admin(&bridge, "POST", &unknown).await.0, 404, "{unknown}");
    }
    hook.work();
    assert_eq!(admin(&bridge, "POST", entry["retry"].as_str().unwrap()).await.0, 202);
    until_over(&hook).await;
    assert_eq!(admin(&bridge, "GET", "/push/undelivered").await.1, json!({ "undelivered": [] }));
    let metrics = admin(&bridge, "GET", "/metrics").await.1;
    let metrics = metrics.as_str().unwrap();
    for line in [
        "talaria_push_deliveries_total{result=\"failed\"} 2",
        "talaria_push_deliveries_total{result=\"delivered\"} ",
        "talaria_push_given_up_total 1\n",
    ] {
        assert!(metrics.contains(line), "{line} is not in:\n{metrics}");
    }
}
