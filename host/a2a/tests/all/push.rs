//! Push notification configurations in every binding and version, and the notifications themselves.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use talaria_a2a::{Notification, Token};
use talaria_turns::{PushConfig, PushFailure, PushNotification, PushSender};
use tokio::sync::Notify;

use crate::kit::{Host, message, message_03, patiently};

const V1: (&str, &str) = ("A2A-Version", "1.0");
const URL: &str = "https://hooks.example/a";

/// Records the notifications instead of sending them.
#[derive(Default)]
struct Posted {
    pushes: Mutex<Vec<Push>>,
    came: Notify,
}

#[derive(Debug, Clone)]
struct Push {
    url: String,
    headers: Vec<(String, String)>,
    body: Value,
}

#[async_trait]
impl PushSender for Posted {
    async fn admits(&self, url: &str) -> Result<(), String> {
        if url.contains("127.0.0.1") { Err("a webhook may not be at loopback".into()) } else { Ok(()) }
    }

    async fn deliver(&self, config: &PushConfig, notification: &PushNotification) -> Result<(), PushFailure> {
        let Notification { headers, body } = Notification::new(config, notification).unwrap();
        let text = |value: SecretString| value.expose_secret().to_owned();
        self.pushes.lock().unwrap().push(Push {
            url: config.url.clone(),
            headers: headers.into_iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
            body: serde_json::from_slice(&body).unwrap(),
        });
        self.came.notify_waiters();
        Ok(())
    }
}

impl Posted {
    async fn until(&self, count: usize) -> Vec<Push> {
        patiently(async {
            loop {
                let came = self.came.notified();
                let pushes = self.pushes.lock().unwrap().clone();
                if pushes.len() >= count {
                    return pushes;
                }
                came.await;
            }
        })
        .await
    }
}

async fn host() -> (Host, Arc<Posted>) {
    let posted = Arc::new(Posted::default());
    (Host::pushing(Arc::clone(&posted) as _, |_| {}).await, posted)
}

/// Creates a task that waits for input, so that it stays open.
async fn asking(host: &Host) -> String {
    let sent = host.call("SendMessage", &json!({ "message": message("ask") })).await;
    sent["result"]["task"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_life_of_a_configuration_in_1_0_over_json_rpc() {
    let (host, _) = host().await;
    let task = asking(&host).await;
    let secret = json!({ "scheme": "Bearer", "credentials": "s3cret" });
    let config = json!({ "taskId": task, "id": "c", "url": URL, "token": "t0k", "authentication": secret });
    let shown = json!({ "id": "c", "taskId": task, "url": URL, "authentication": { "scheme": "Bearer" } });
    assert_eq!(host.call("CreateTaskPushNotificationConfig", &config).await["result"], shown);
    let one = json!({ "taskId": task, "id": "c" });
    assert_eq!(host.call("GetTaskPushNotificationConfig", &one).await["result"], shown);
    let all = json!({ "taskId": task });
    let listed = host.call("ListTaskPushNotificationConfigs", &all).await["result"].clone();
    assert_eq!(listed, json!({ "configs": [shown] }));
    for _ in 0..2 {
        assert_eq!(host.call("DeleteTaskPushNotificationConfig", &one).await["result"], json!({}));
    }
    assert_eq!(host.call("GetTaskPushNotificationConfig", &one).await["error"]["code"], -32001);
    assert_eq!(host.call("ListTaskPushNotificationConfigs", &all).await["result"], json!({ "configs": [] }));
}

#[tokio::test]
async fn the_life_of_a_configuration_in_1_0_over_http() {
    let (host, _) = host().await;
    let task = asking(&host).await;
    for prefix in ["", "/acme"] {
        let all = format!("{prefix}/tasks/{task}/pushNotificationConfigs");
        let json_body = ("content-type", "application/json");
        let body = json!({ "url": URL }).to_string();
        let made = host.request("POST", &all, &[V1, json_body], body.as_bytes()).await;
        assert_eq!(made.status, 200, "{made:?}");
        let id = made.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(made.json(), json!({ "id": id, "taskId": task, "url": URL }));
        let one = format!("{all}/{id}");
        assert_eq!(host.request("GET", &one, &[V1], b"").await.json(), made.json());
        let listed = host.request("GET", &all, &[V1], b"").await;
        assert_eq!(listed.json(), json!({ "configs": [made.json()] }));
        for _ in 0..2 {
            let gone = host.request("DELETE", &one, &[V1], b"").await;
            assert_eq!((gone.status, gone.json()), (200, json!({})));
        }
        assert_eq!(host.request("GET", &one, &[V1], b"").await.status, 404);
    }
}

#[tokio::test]
async fn the_life_of_a_configuration_in_0_3_over_json_rpc() {
    let (host, _) = host().await;
    let task = asking(&host).await;
    let secret = json!({ "schemes": ["Bearer"], "credentials": "s3cret" });
    let config = json!({ "url": URL, "token": "t0k", "authentication": secret });
    let shown = json!({ "taskId": task, "pushNotificationConfig": {
        "id": task, "url": URL, "authentication": { "schemes": ["Bearer"] },
    } });
    let set = json!({ "taskId": task, "pushNotificationConfig": config });
    for _ in 0..2 {
        let made = host.call("tasks/pushNotificationConfig/set", &set).await;
        assert_eq!(made["result"], shown, "without an id a task has one configuration");
    }
    let of_task = json!({ "id": task });
    assert_eq!(host.call("tasks/pushNotificationConfig/get", &of_task).await["result"], shown);
    let one = json!({ "id": task, "pushNotificationConfigId": task });
    assert_eq!(host.call("tasks/pushNotificationConfig/get", &one).await["result"], shown);
    assert_eq!(host.call("tasks/pushNotificationConfig/list", &of_task).await["result"], json!([shown]));
    let gone = host.call("tasks/pushNotificationConfig/delete", &one).await;
    assert_eq!((&gone["result"], gone.get("result").is_some()), (&Value::Null, true));
    assert_eq!(host.call("tasks/pushNotificationConfig/get", &of_task).await["error"]["code"], -32001);
}

#[tokio::test]
async fn the_life_of_a_configuration_in_0_3_over_http() {
    let (host, _) = host().await;
    let task = asking(&host).await;
    let all = format!("/v1/tasks/{task}/pushNotificationConfigs");
    let body = json!({ "parent": format!("tasks/{task}"), "configId": "c", "config": {
        "pushNotificationConfig": { "url": URL, "token": "t0k" },
    } });
    let headers = [("content-type", "application/json")];
    let made = host.request("POST", &all, &headers, body.to_string().as_bytes()).await;
    let shown = json!({
        "name": format!("tasks/{task}/pushNotificationConfigs/c"),
        "pushNotificationConfig": { "id": "c", "url": URL },
    });
    assert_eq!((made.status, made.json()), (200, shown.clone()));
    assert_eq!(host.request("GET", &format!("{all}/c"), &[], b"").await.json(), shown);
    assert_eq!(host.request("GET", &all, &[], b"").await.json(), json!({ "configs": [shown] }));
    assert_eq!(host.request("DELETE", &format!("{all}/c"), &[], b"").await.json(), json!({}));
    assert_eq!(host.request("GET", &format!("{all}/c"), &[], b"").await.status, 404);
}

#[tokio::test]
async fn a_send_with_a_configuration_answers_with_the_task_and_pushes_every_event() {
    let (host, posted) = host().await;
    let config = json!({ "url": URL, "token": "t0k", "authentication": { "scheme": "Bearer", "credentials": "s3cret" } });
    let params =
        json!({ "message": message("hi"), "configuration": { "taskPushNotificationConfig": config } });
    let task = host.call("SendMessage", &params).await["result"]["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let pushes = posted.until(3).await;
    let kinds: Vec<_> =
        pushes.iter().map(|push| push.body.as_object().unwrap().keys().next().unwrap()).collect();
    assert_eq!(kinds, ["statusUpdate", "artifactUpdate", "statusUpdate"]);
    for push in &pushes {
        assert_eq!(push.url, URL);
        for (name, value) in [
            ("authorization", "Bearer s3cret"),
            ("x-a2a-notification-token", "t0k"),
            ("a2a-notification-token", "t0k"),
            ("content-type", "application/a2a+json"),
        ] {
            assert!(push.headers.contains(&(name.into(), value.into())), "{name}: {:?}", push.headers);
        }
    }
    assert_eq!(pushes[2].body["statusUpdate"]["taskId"], task["id"]);
    assert_eq!(pushes[2].body["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn notifications_of_0_3_hold_the_task() {
    let (host, posted) = host().await;
    let config = json!({ "url": URL });
    let params =
        json!({ "message": message_03("hi"), "configuration": { "pushNotificationConfig": config } });
    let task = host.call("message/send", &params).await["result"].clone();
    assert_eq!(task["kind"], "task");
    let last = patiently(async {
        let mut count = 1;
        loop {
            let pushes = posted.until(count).await;
            let last = pushes.last().unwrap().clone();
            if last.body["status"]["state"] == "completed" {
                return last;
            }
            count = pushes.len() + 1;
        }
    })
    .await;
    assert_eq!((&last.body["kind"], &last.body["id"]), (&json!("task"), &task["id"]));
    assert_eq!(last.body["artifacts"], task["artifacts"]);
    assert!(last.headers.contains(&("content-type".into(), "application/json".into())));
}

#[tokio::test]
async fn rejects_a_bad_address_with_its_reason_and_changes_nothing() {
    let (host, _) = host().await;
    let task = asking(&host).await;
    let made = host.made();
    let bad = json!({ "taskId": task, "url": "http://127.0.0.1/h" });
    let rejected = host.call("CreateTaskPushNotificationConfig", &bad).await["error"].clone();
    assert_eq!(rejected["code"], -32602);
    assert_eq!(rejected["data"][1]["fieldViolations"][0]["field"], "url");
    let configuration = json!({ "taskPushNotificationConfig": { "url": "http://127.0.0.1/h" } });
    let send = json!({ "message": message("hi"), "configuration": configuration });
    assert_eq!(host.call("SendMessage", &send).await["error"]["code"], -32602);
    assert_eq!(host.made(), made);
    let listed = host.call("ListTaskPushNotificationConfigs", &json!({ "taskId": task })).await;
    assert_eq!(listed["result"], json!({ "configs": [] }));
    for (number, code) in [(10, -32004)] {
        for nth in 0..number {
            let config = json!({ "taskId": task, "id": format!("c{nth}"), "url": URL });
            assert!(host.call("CreateTaskPushNotificationConfig", &config).await["error"].is_null());
        }
        let more = json!({ "taskId": task, "id": "more", "url": URL });
        assert_eq!(host.call("CreateTaskPushNotificationConfig", &more).await["error"]["code"], code);
    }
}

#[tokio::test]
async fn the_configurations_of_another_caller_are_hidden() {
    let posted = Arc::new(Posted::default());
    let host = Host::pushing(posted, |config| {
        let token = |name: &str, secret: &str| Token::new(name, SecretString::from(secret)).unwrap();
        config.tokens = vec![token("owner", "one"), token("other", "two")];
    })
    .await;
    let owner = [("authorization", "Bearer one")];
    let sent = host.call_as(&owner, "SendMessage", &json!({ "message": message("ask") })).await.json();
    let task = &sent["result"]["task"]["id"];
    let config = json!({ "taskId": task, "id": "c", "url": URL });
    let made = host.call_as(&owner, "CreateTaskPushNotificationConfig", &config).await.json();
    assert_eq!(made["result"]["id"], "c");
    for method in [
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
    ] {
        let answer = host.call_as(&[("authorization", "Bearer two")], method, &config).await.json();
        assert_eq!(answer["error"]["code"], -32001, "{method}");
    }
    let still = host.call_as(&owner, "GetTaskPushNotificationConfig", &config).await.json();
    assert_eq!(still["result"]["id"], "c");
}
