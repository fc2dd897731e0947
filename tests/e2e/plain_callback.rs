//! Callbacks in a shape that the operator describes: another path, another header, another JSON.

use serde_json::json;
use talaria_fakes::{FakePlugin, Step};

use crate::bridge::{Start, request};

const CONFIG: &str = r#"
[executors]
default = "my-gateway"
[callback]
listen = "127.0.0.1:0"
secret = { env = "REPLY_SECRET" }
[callback.plain]
path = "/hooks/replies"
secret_header = "x-api-key"
message_id = "/data/in_reply_to"
content = "/data/text"
chat = "/data/room"
[executor.my-gateway]
component = "builtin:plugin-callback"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_in_the_operators_own_shape_reaches_its_turn() {
    // It takes messages and answers none of them by itself.
    let gateway = FakePlugin::start(|_| vec![Step::Wait]).await;
    let folder = tempfile::tempdir().unwrap();
    let settings = format!("settings = {{ inbound_url = \"{}\" }}\n", gateway.inbound_url());
    let bridge =
        Start::new(folder.path()).config(&format!("{CONFIG}{settings}")).env("REPLY_SECRET", "s3cret").up();
    let url = bridge.banner["callback"].as_str().unwrap();
    let root = url.strip_suffix("/hooks/replies").expect("the path of the configuration");
    let task = bridge.start_turn("hi").await;
    let [message] = gateway.received(1).await.try_into().unwrap();
    assert_eq!(message.callback_url(), url);

    let reply = json!({
        "event": "answered",
        "data": { "in_reply_to": message.id(), "room": message.chat(), "text": "the answer" },
    });
    let post = |path: &'static str, headers: Vec<(&'static str, &'static str)>, body: String| async move {
        let response = request(root, "POST", path, &headers, &body).await;
        (response.status, String::from_utf8(response.body.to_vec()).unwrap())
    };
    let unauthorized = (401, r#"{"ok":false,"error":"unauthorized"}"#.to_owned());
    assert_eq!(post("/hooks/replies", vec![("x-api-key", "wrong")], reply.to_string()).await, unauthorized);
    let hermes = post("/a2a/reply", vec![("x-api-key", "s3cret")], reply.to_string()).await;
    assert_eq!(hermes.0, 404, "the path of the plugin is gone");
    let authorized = vec![("x-api-key", "s3cret")];
    let other_shape = json!({ "reply_to": message.id(), "content": "x" }).to_string();
    assert_eq!(
        post("/hooks/replies", authorized.clone(), other_shape).await,
        (400, r#"{"ok":false,"error":"a string is required at `/data/text`"}"#.to_owned())
    );
    assert_eq!(
        post("/hooks/replies", authorized, reply.to_string()).await,
        (200, r#"{"ok":true}"#.to_owned())
    );
    let task = bridge.in_state(&task, "TASK_STATE_COMPLETED").await;
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "the answer");
}
