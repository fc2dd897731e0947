//! Turns through hermes-agent's plugin: the prompt goes out as a POST, the reply comes back as a callback.
//!
//! The tests need several threads, because starting a bridge blocks one while the plugin answers its probe.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_client::{Delivery, Message};
use talaria_fakes::{FakeGateway, FakePlatform, FakePlugin, Inbound, Reply, Step, free_port, soon};

use crate::bridge::{Bridge, Start, admin, request};
use crate::webhook::Webhook;

/// A bridge whose turns go to the plugin. The callback listener is on `port`; 0 lets the system choose.
fn start<'a>(folder: &'a Path, plugin: &FakePlugin, port: u16, more: &str) -> Start<'a> {
    Start::new(folder).config(&format!(
        "[executors]\ndefault = \"plugin-callback\"\nprobe_every = \"50ms\"\n\
         [callback]\nlisten = \"127.0.0.1:{port}\"\n\
         [executor.plugin-callback.settings]\ninbound_url = \"{}\"\n{more}",
        plugin.inbound_url()
    ))
}

fn bridge(folder: &Path, plugin: &FakePlugin) -> Bridge {
    start(folder, plugin, 0, "").up()
}

fn answer(task: &Value) -> &Value {
    &task["artifacts"][0]["parts"][0]["text"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_posted_and_its_reply_is_a_callback() {
    let plugin = FakePlugin::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path(), &plugin);
    assert_eq!(bridge.say("hi").await, "echo: hi");
    let [sent] = plugin.messages().try_into().unwrap();
    let (url, token) = sent.callback_url().rsplit_once('/').unwrap();
    assert_eq!(url, bridge.banner["callback"].as_str().unwrap());
    assert_eq!(token.len(), 64, "the banner does not show it");
    assert_eq!(plugin.receipts(), [(200, json!({ "ok": true }))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_of_the_python_bridge_is_enough() {
    let echo = |message: &talaria_fakes::Inbound| vec![Step::Answer(format!("echo: {}", message.content()))];
    let plugin = FakePlugin::with_secret(Some("a-shared-secret"), echo).await;
    let gateway = FakeGateway::always(Reply::completion("from the gateway")).await;
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let bridge = Start::new(folder.path())
        .env("MOLECULE_A2A_PLATFORM_ENABLED", "true")
        .env("MOLECULE_A2A_PLATFORM_HOST", "127.0.0.1")
        .env("MOLECULE_A2A_PLATFORM_PORT", &plugin.port().to_string())
        .env("MOLECULE_A2A_PLATFORM_SHARED_SECRET", "a-shared-secret")
        .env("MOLECULE_A2A_CALLBACK_HOST", "127.0.0.1")
        .env("MOLECULE_A2A_CALLBACK_PORT", &port.to_string())
        .env("HERMES_API_BASE", &gateway.base_url())
        .up();
    let url = format!("http://127.0.0.1:{port}");
    assert_eq!(bridge.banner["callback"], format!("{url}/a2a/reply"));
    assert_eq!(bridge.say("hi").await, "echo: hi");
    assert!(gateway.requests().is_empty());
    let forged = json!({ "content": "x", "reply_to": "y" }).to_string();
    let refused = request(&url, "POST", "/a2a/reply", &[], &forged).await;
    assert_eq!((refused.status, &*refused.body), (401, br#"{"ok":false,"error":"unauthorized"}"#.as_slice()));
    bridge.terminate();
    let (code, log) = bridge.end();
    assert_eq!(code, Some(0));
    assert!(!log.contains("a-shared-secret"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_after_a_kill_and_restart_reaches_its_turn() {
    let plugin = FakePlugin::start(|_| vec![Step::Wait, Step::Answer("the answer".into())]).await;
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let before = start(folder.path(), &plugin, port, "").up();
    let task = before.start_turn("hi").await;
    let chat = plugin.received(1).await[0].chat().to_owned();
    before.kill();
    let after = start(folder.path(), &plugin, port, "").up();
    plugin.release(&chat);
    let task = after.in_state(&task, "TASK_STATE_COMPLETED").await;
    assert_eq!(answer(&task), "the answer");
    assert_eq!(plugin.messages().len(), 1, "nothing is sent twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_the_plugin_retries_after_a_restart_reaches_its_turn() {
    let wait = |_: &Inbound| vec![Step::Wait, Step::Answer("the answer".into())];
    // A gateway that was restarted knows the configured address only, which needs a secret.
    let plugin = FakePlugin::with_secret(Some("a-shared-secret"), wait).await;
    let secret = ("MOLECULE_A2A_PLATFORM_SHARED_SECRET", "a-shared-secret");
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let before = start(folder.path(), &plugin, port, "").env(secret.0, secret.1).up();
    let url = before.banner["callback"].as_str().unwrap().to_owned();
    let task = before.start_turn("hi").await;
    let chat = plugin.received(1).await[0].chat().to_owned();
    before.kill();
    plugin.release(&chat);
    plugin.gave_up(1).await;
    let after = start(folder.path(), &plugin, port, "").env(secret.0, secret.1).up();
    after.in_state(&task, "TASK_STATE_WORKING").await;
    plugin.recover(&url).await;
    let task = after.in_state(&task, "TASK_STATE_COMPLETED").await;
    assert_eq!(answer(&task), "the answer", "without the gateway's prefix");
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_queued_for_a_chat_survive_a_kill() {
    let plugin = FakePlugin::start(|message| match message.content() {
        "first" => vec![Step::Wait, Step::Answer("answer to first".into())],
        other => vec![Step::Answer(format!("answer to {other}"))],
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let workspace = "chat_id = [\"workspace\"]\nworkspace_id = \"w\"\n";
    let before = start(folder.path(), &plugin, port, workspace).up();
    let mut tasks = vec![before.start_turn("first").await];
    plugin.received(1).await;
    for text in ["second", "third"] {
        let task = before.start_turn(text).await;
        before.in_state(&task, "TASK_STATE_WORKING").await;
        tasks.push(task);
    }
    before.kill();
    let after = start(folder.path(), &plugin, port, workspace).up();
    plugin.release("workspace:w");
    let first = after.in_state(&tasks[0], "TASK_STATE_COMPLETED").await;
    assert_eq!(answer(&first), "answer to first");
    let mut expected = vec!["first"];
    for (task, text) in tasks.iter().zip(["first", "second", "third"]).skip(1) {
        let task = after.settled(task).await;
        // A turn that was killed before it stored its place in the queue fails and says so.
        if task["status"]["state"] == "TASK_STATE_FAILED" {
            assert_eq!(task["status"]["message"]["parts"][0]["text"], "interrupted by a restart");
            continue;
        }
        assert_eq!(answer(&task), &format!("answer to {text}"));
        expected.push(text);
    }
    // They belong to three contexts, whose relative order a restart does not keep.
    let messages = plugin.messages();
    let mut sent: Vec<_> = messages.iter().map(|message| message.content()).collect();
    assert_eq!(sent.first(), Some(&"first"), "it was running already");
    sent.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sent, expected, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_requested_and_granted_over_a2a() {
    let plugin = FakePlugin::start(|_| vec![Step::Approval("rm -rf /tmp/x".into())]).await;
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let before = start(folder.path(), &plugin, port, "").up();
    let task = before.start_turn("clean up").await;
    let asking = before.in_state(&task, "TASK_STATE_INPUT_REQUIRED").await;
    let question = asking["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(question.contains("rm -rf /tmp/x") && question.contains("`approve`"), "{question}");
    // The question survives a kill too.
    before.kill();
    let after = start(folder.path(), &plugin, port, "").up();
    after.send(Message::new("approve").to_task(&task), Delivery::Detached).await;
    let ended = after.in_state(&task, "TASK_STATE_COMPLETED").await;
    assert_eq!(answer(&ended), "ran rm -rf /tmp/x");
    assert_eq!(plugin.commands(), ["/approve"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_task_stops_the_agent() {
    let plugin = FakePlugin::start(|_| vec![Step::Wait]).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path(), &plugin);
    let task = bridge.start_turn("forever").await;
    plugin.received(1).await;
    let cancelled = bridge.client().cancel_task(&task).await.unwrap();
    assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELED", "{cancelled}");
    assert_eq!(plugin.commanded(1).await, ["/stop"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notice_becomes_the_status_of_its_task() {
    let plugin = FakePlugin::start(|_| {
        vec![Step::Notice("⏳ Working — 3 min".into()), Step::Wait, Step::Answer("done".into())]
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path(), &plugin);
    let task = bridge.start_turn("hi").await;
    let shows_text = |task: &Value| task["status"]["message"]["parts"][0]["text"].is_string();
    let noticed = bridge.until(&task, "shows the notice in its status", shows_text).await;
    assert_eq!(noticed["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(noticed["status"]["message"]["parts"][0]["text"], "⏳ Working — 3 min");
    plugin.release(plugin.messages()[0].chat());
    bridge.in_state(&task, "TASK_STATE_COMPLETED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fallback_takes_turns_while_the_plugin_is_down() {
    let plugin = FakePlugin::echo().await;
    let gateway = FakeGateway::always(Reply::completion("from the gateway")).await;
    plugin.set_down(true);
    let folder = tempfile::tempdir().unwrap();
    let toml = format!(
        "[executors]\nprobe_every = \"20ms\"\n[callback]\nlisten = \"127.0.0.1:0\"\n\
         [executor.plugin-callback.settings]\ninbound_url = \"{}\"\n",
        plugin.inbound_url()
    );
    let bridge = Start::new(folder.path())
        .config(&toml)
        .env("MOLECULE_A2A_PLATFORM_ENABLED", "true")
        .env("HERMES_API_BASE", &gateway.base_url())
        .up();
    let lines = bridge.banner["executors"].as_array().unwrap();
    let line = lines.iter().find(|line| line["name"] == "plugin-callback").unwrap();
    assert_eq!((&line["default"], &line["stand_in"]), (&json!(true), &json!("chat-completions")), "{line}");
    assert_eq!(line["readiness"]["state"], "not-ready");
    assert_eq!(bridge.say("one").await, "from the gateway", "the bridge starts and takes turns");
    for (down, from) in [(false, "echo: hi"), (true, "from the gateway"), (false, "echo: hi")] {
        plugin.set_down(down);
        soon("turns move by themselves", async {
            while bridge.say("hi").await != from {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fallback_the_answer_says_that_the_plugin_is_down() {
    let plugin = FakePlugin::echo().await;
    plugin.set_down(true);
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path(), &plugin);
    let said = bridge.say("hi").await;
    assert!(said.starts_with("[hermes plugin POST error] the plugin answered 503"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fallback_takes_turns_of_a_refused_default() {
    let gateway = FakeGateway::always(Reply::completion("from the gateway")).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("broken.wasm"), b"no component").unwrap();
    let bridge = Start::new(folder.path())
        .config(
            "[executors]\ndefault = \"broken\"\n[executor.broken]\ncomponent = \"broken.wasm\"\n\
             fallback = \"chat-completions\"\n",
        )
        .env("HERMES_API_BASE", &gateway.base_url())
        .up();
    assert_eq!(bridge.banner["refused"][0]["name"], "broken");
    assert_eq!(bridge.say("hi").await, "from the gateway");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_answers_waiting_callers() {
    let plugin = FakePlugin::start(|_| vec![Step::Wait]).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path(), &plugin);
    let (said, ()) = tokio::join!(bridge.say("forever"), async {
        plugin.received(1).await;
        bridge.terminate();
    });
    assert_eq!(said, "[hermes plugin error] executor shutting down");
    assert_eq!(bridge.end().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_a_callback_port_that_is_in_use() {
    let plugin = FakePlugin::echo().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let port = taken.local_addr().unwrap().port();
    drop(start(folder.path(), &plugin, port, ""));
    let mut command = crate::bridge::talaria(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let output = tokio::task::spawn_blocking(move || crate::bridge::run(&mut command)).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = crate::bridge::stderr(&output);
    assert!(said.contains(&format!("cannot listen for callbacks on 127.0.0.1:{port}")), "{said}");
    assert!(said.contains("`callback.listen`"), "{said}");
}

/// The late reply shows in the task, as a push notification, and on the admin server.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_reply_becomes_an_artifact_of_its_failed_task() {
    let plugin = FakePlugin::start(|_| vec![Step::Wait, Step::AnswerTwice("the answer".into())]).await;
    let folder = tempfile::tempdir().unwrap();
    let hook = Webhook::start(true).await;
    let more = "reply_timeout_seconds = 0.2\nchat_id = [\"context\"]\n[push]\nallow_private = true\n\
                [store]\nurl = \"sqlite:tasks.db\"\n";
    let first = start(folder.path(), &plugin, 0, more).up();
    let answer = first.send(Message::new("hello").in_context("late"), Delivery::Whole).await;
    assert_eq!(answer.text(), "[hermes plugin reply timeout after 0s]");
    assert_eq!(answer.status.state.as_deref(), Some("failed"));
    let id = answer.status.task.unwrap();
    let push = json!({ "taskId": id, "url": hook.url });
    first.call("CreateTaskPushNotificationConfig", push).await;
    plugin.release("late");
    plugin.posted(2).await;
    let late = late_reply(&first, &id).await;
    assert_eq!(late["status"]["state"], "TASK_STATE_FAILED");
    assert_eq!(
        late["artifacts"].as_array().unwrap().len(),
        1,
        "a reply that was posted twice is stored once: {late}"
    );
    assert_eq!(
        (&late["artifacts"][0]["artifactId"], answer_text(&late)),
        (&json!("late-reply"), "the answer")
    );
    let told = soon("the webhook is notified", async {
        loop {
            if let Some(told) = hook.updates(&id).pop() {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(told["artifactUpdate"]["artifact"]["parts"][0]["text"], "the answer", "{told}");
    let (_, mailbox) = admin(&first, "GET", "/mailbox").await;
    assert_eq!((&mailbox["turns"]["late"], &mailbox["late"][0]["begins"]), (&json!(1), &json!("the answer")));
    assert_eq!(mailbox["late"][0]["task"], id);
    let (_, metrics) = admin(&first, "GET", "/metrics").await;
    assert!(metrics.as_str().unwrap().contains("talaria_mailbox_turns{state=\"late\"} 1\n"), "{metrics}");
    drop(first);

    let second = start(folder.path(), &plugin, 0, more).up();
    let after = second.task(&id).await;
    assert_eq!(after["artifacts"], late["artifacts"], "a restart changes nothing");
}

/// In a workspace nobody watches failed tasks, so the platform shows a late reply to the person who asked, but not to a peer.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_reply_is_shown_to_the_person_who_asked() {
    let answers = |message: &Inbound| vec![Step::Wait, Step::Answer(format!("re: {}", message.content()))];
    let plugin = FakePlugin::start(answers).await;
    let (folder, platform) = (tempfile::tempdir().unwrap(), FakePlatform::start().await);
    let more = "reply_timeout_seconds = 0.2\nchat_id = [\"context\"]\n[store]\nurl = \"sqlite:tasks.db\"\n";
    let workspace = |start: Start<'_>| {
        let at = folder.path().to_string_lossy();
        start
            .env("WORKSPACE_ID", "ws-1")
            .env("WORKSPACE_CONFIG_PATH", &at)
            .env("PLATFORM_URL", &platform.url())
            .up()
    };
    let bridge = workspace(start(folder.path(), &plugin, 0, more));
    for (chat, peer) in [("peers", Some("ws-2")), ("persons", None)] {
        let mut message = Message::new(chat).in_context(chat);
        if let Some(peer) = peer {
            message = message.with("peer_id", peer);
        }
        let answer = bridge.send(message, Delivery::Whole).await;
        assert_eq!(answer.text(), "[hermes plugin reply timeout after 0s]");
        let tasks = bridge.call("ListTasks", json!({ "contextId": chat })).await["result"]["tasks"].take();
        plugin.release(chat);
        late_reply(&bridge, tasks[0]["id"].as_str().unwrap()).await;
    }
    assert_eq!(platform.notices().await, [json!({ "message": "re: persons" })]);
    drop(bridge);

    let again = workspace(start(folder.path(), &plugin, 0, more));
    platform.registered(2).await;
    assert!(again.call("ListTasks", json!({})).await["result"]["tasks"].is_array());
    assert_eq!(platform.notices().await.len(), 1, "once, even after a restart");
}

async fn late_reply(bridge: &Bridge, id: &str) -> Value {
    bridge.until(id, "has the late reply", |task| !task["artifacts"].is_null()).await
}

fn answer_text(task: &Value) -> &str {
    answer(task).as_str().unwrap()
}
