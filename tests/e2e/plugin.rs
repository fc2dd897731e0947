//! Turns through hermes-agent's plugin: there by a post, back by a callback.
//!
//! Several threads, since starting a bridge blocks one while the plugin answers its probe.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, FakePlatform, FakePlugin, Inbound, Reply, Step, free_port, soon};

use crate::bridge::{Bridge, Start, admin, message, request};
use crate::webhook::Webhook;

/// A bridge whose turns go to the plugin. The callback listener is on `port`; 0 lets the system pick.
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

/// Sends without waiting; the id of the task.
async fn send(bridge: &Bridge, text: &str) -> Value {
    let mut params = message(text);
    params["configuration"] = json!({ "returnImmediately": true });
    bridge.call("SendMessage", params).await["result"]["task"]["id"].take()
}

async fn in_state(bridge: &Bridge, id: &Value, state: &str) -> Value {
    soon(&format!("the task is {state}"), async {
        loop {
            let task = bridge.call("GetTask", json!({ "id": id })).await["result"].take();
            if task["status"]["state"] == state {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

fn answer(task: &Value) -> &Value {
    &task["artifacts"][0]["parts"][0]["text"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_goes_there_by_a_post_and_comes_back_by_a_callback() {
    let plugin = FakePlugin::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path(), &plugin);
    assert_eq!(bridge.say("hi").await, "echo: hi");
    let [sent] = plugin.messages().try_into().unwrap();
    assert_eq!(sent.callback_url(), bridge.banner["callback"].as_str().unwrap());
    assert_eq!(plugin.receipts(), [(200, json!({ "ok": true }))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_of_the_seeds_is_enough() {
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
async fn a_reply_that_comes_after_a_kill_and_a_restart_lands() {
    let plugin = FakePlugin::start(|_| vec![Step::Wait, Step::Answer("the answer".into())]).await;
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let before = start(folder.path(), &plugin, port, "").up();
    let task = send(&before, "hi").await;
    let chat = plugin.received(1).await[0].chat().to_owned();
    before.kill();
    let after = start(folder.path(), &plugin, port, "").up();
    plugin.release(&chat);
    let task = in_state(&after, &task, "TASK_STATE_COMPLETED").await;
    assert_eq!(answer(&task), "the answer");
    assert_eq!(plugin.messages().len(), 1, "nothing is sent twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_owed_while_the_bridge_was_down_lands() {
    let plugin = FakePlugin::start(|_| vec![Step::Wait, Step::Answer("the answer".into())]).await;
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let before = start(folder.path(), &plugin, port, "").up();
    let url = before.banner["callback"].as_str().unwrap().to_owned();
    let task = send(&before, "hi").await;
    let chat = plugin.received(1).await[0].chat().to_owned();
    before.kill();
    plugin.release(&chat);
    plugin.gave_up(1).await;
    let after = start(folder.path(), &plugin, port, "").up();
    in_state(&after, &task, "TASK_STATE_WORKING").await;
    plugin.recover(&url).await;
    let task = in_state(&after, &task, "TASK_STATE_COMPLETED").await;
    assert_eq!(answer(&task), "the answer", "without what the gateway put before it");
}

/// A task that is over, one way or the other.
async fn settled(bridge: &Bridge, id: &Value) -> Value {
    soon("the task is over", async {
        loop {
            let task = bridge.call("GetTask", json!({ "id": id })).await["result"].take();
            if ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED"]
                .contains(&task["status"]["state"].as_str().unwrap())
            {
                return task;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_in_line_for_a_chat_survive_a_kill() {
    let plugin = FakePlugin::start(|message| match message.content() {
        "first" => vec![Step::Wait, Step::Answer("answer to first".into())],
        other => vec![Step::Answer(format!("answer to {other}"))],
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let workspace = "chat_id = [\"workspace\"]\nworkspace_id = \"w\"\n";
    let before = start(folder.path(), &plugin, port, workspace).up();
    let mut tasks = vec![send(&before, "first").await];
    plugin.received(1).await;
    for text in ["second", "third"] {
        let task = send(&before, text).await;
        in_state(&before, &task, "TASK_STATE_WORKING").await;
        tasks.push(task);
    }
    before.kill();
    let after = start(folder.path(), &plugin, port, workspace).up();
    plugin.release("workspace:w");
    let first = in_state(&after, &tasks[0], "TASK_STATE_COMPLETED").await;
    assert_eq!(answer(&first), "answer to first");
    let mut expected = vec!["first"];
    for (task, text) in tasks.iter().zip(["first", "second", "third"]).skip(1) {
        let task = settled(&after, task).await;
        // Where the end came before the turn had kept its place, it says so.
        if task["status"]["state"] == "TASK_STATE_FAILED" {
            assert_eq!(task["status"]["message"]["parts"][0]["text"], "interrupted by a restart");
            continue;
        }
        assert_eq!(answer(&task), &format!("answer to {text}"));
        expected.push(text);
    }
    // They came from three conversations, whose order among each other a restart does not keep.
    let messages = plugin.messages();
    let mut sent: Vec<_> = messages.iter().map(|message| message.content()).collect();
    assert_eq!(sent.first(), Some(&"first"), "it was under way");
    sent.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sent, expected, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_asked_for_and_given_over_a2a() {
    let plugin = FakePlugin::start(|_| vec![Step::Approval("rm -rf /tmp/x".into())]).await;
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let before = start(folder.path(), &plugin, port, "").up();
    let task = send(&before, "clean up").await;
    let asking = in_state(&before, &task, "TASK_STATE_INPUT_REQUIRED").await;
    let question = asking["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(question.contains("rm -rf /tmp/x") && question.contains("`approve`"), "{question}");
    // The question outlives the bridge, too.
    before.kill();
    let after = start(folder.path(), &plugin, port, "").up();
    let mut approval = message("approve");
    approval["message"]["taskId"] = task.clone();
    approval["configuration"] = json!({ "returnImmediately": true });
    after.call("SendMessage", approval).await;
    let ended = in_state(&after, &task, "TASK_STATE_COMPLETED").await;
    assert_eq!(answer(&ended), "ran rm -rf /tmp/x");
    assert_eq!(plugin.commands(), ["/approve"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_task_is_stopped_and_ends_itself() {
    let plugin = FakePlugin::start(|_| vec![Step::Wait]).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path(), &plugin);
    let task = send(&bridge, "forever").await;
    plugin.received(1).await;
    let cancelled = bridge.call("CancelTask", json!({ "id": task })).await;
    assert_eq!(cancelled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{cancelled}");
    assert_eq!(plugin.commanded(1).await, ["/stop"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn notices_are_seen_by_whoever_watches() {
    let plugin = FakePlugin::start(|_| {
        vec![Step::Notice("⏳ Working — 3 min".into()), Step::Wait, Step::Answer("done".into())]
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path(), &plugin);
    let task = send(&bridge, "hi").await;
    let said = soon("the notice is the task's status", async {
        loop {
            let task = bridge.call("GetTask", json!({ "id": task })).await["result"].take();
            if let Some(text) = task["status"]["message"]["parts"][0]["text"].as_str() {
                return (task["status"]["state"].clone(), text.to_owned());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(said, (json!("TASK_STATE_WORKING"), "⏳ Working — 3 min".into()));
    plugin.release(plugin.messages()[0].chat());
    in_state(&bridge, &task, "TASK_STATE_COMPLETED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_down_is_stood_in_for_until_it_is_back() {
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
    assert_eq!(bridge.say("one").await, "from the gateway", "the boot did not fail, and turns are taken");
    for (down, from) in [(false, "echo: hi"), (true, "from the gateway"), (false, "echo: hi")] {
        plugin.set_down(down);
        soon("turns go where they should by themselves", async {
            while bridge.say("hi").await != from {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fallback_the_answer_is_honest() {
    let plugin = FakePlugin::echo().await;
    plugin.set_down(true);
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path(), &plugin);
    let said = bridge.say("hi").await;
    assert!(said.starts_with("[hermes plugin POST error] the plugin answered 503"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_that_is_refused_is_stood_in_for_too() {
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
async fn a_shutdown_answers_whoever_waits() {
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
async fn a_taken_callback_port_is_a_failed_start_that_says_so() {
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

/// Whatever a client can see of it: the task, a push, and the operator's server.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_comes_after_the_timeout_joins_its_task() {
    let plugin = FakePlugin::start(|_| vec![Step::Wait, Step::AnswerTwice("the answer".into())]).await;
    let folder = tempfile::tempdir().unwrap();
    let hook = Webhook::start(true).await;
    let more = "reply_timeout_seconds = 0.2\nchat_id = [\"context\"]\n[push]\nallow_private = true\n\
                [store]\nurl = \"sqlite:tasks.db\"\n";
    let first = start(folder.path(), &plugin, 0, more).up();
    let mut params = message("hello");
    params["message"]["contextId"] = json!("late");
    let answer = first.call("SendMessage", params).await["result"]["task"].take();
    assert_eq!(answer["status"]["message"]["parts"][0]["text"], "[hermes plugin reply timeout after 0s]");
    assert_eq!(answer["status"]["state"], "TASK_STATE_FAILED");
    let id = answer["id"].clone();
    let push = json!({ "taskId": id, "url": hook.url });
    first.call("CreateTaskPushNotificationConfig", push).await;
    plugin.release("late");
    plugin.posted(2).await;
    let late = late_reply(&first, &id).await;
    assert_eq!(late["status"]["state"], "TASK_STATE_FAILED");
    assert_eq!(late["artifacts"].as_array().unwrap().len(), 1, "what was posted twice is there once: {late}");
    assert_eq!(
        (&late["artifacts"][0]["artifactId"], answer_text(&late)),
        (&json!("late-reply"), "the answer")
    );
    let told = soon("the webhook is told", async {
        loop {
            if let Some(told) = hook.told(id.as_str().unwrap()).pop() {
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
    let after = second.call("GetTask", json!({ "id": id })).await["result"].take();
    assert_eq!(after["artifacts"], late["artifacts"], "a restart changes nothing");
}

/// In a workspace nobody looks at a task that failed: the person who asked is shown the reply, and a peer is not.
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
        let mut params = message(chat);
        params["message"]["contextId"] = json!(chat);
        if let Some(peer) = peer {
            params["message"]["metadata"] = json!({ "peer_id": peer });
        }
        let answer = bridge.call("SendMessage", params).await["result"]["message"].take();
        assert_eq!(answer["parts"][0]["text"], "[hermes plugin reply timeout after 0s]", "{answer}");
        let tasks = bridge.call("ListTasks", json!({ "contextId": chat })).await["result"]["tasks"].take();
        plugin.release(chat);
        late_reply(&bridge, &tasks[0]["id"]).await;
    }
    assert_eq!(platform.notices().await, [json!({ "message": "re: persons" })]);
    drop(bridge);

    let again = workspace(start(folder.path(), &plugin, 0, more));
    platform.registered(2).await;
    assert!(again.call("ListTasks", json!({})).await["result"]["tasks"].is_array());
    assert_eq!(platform.notices().await.len(), 1, "once, over a restart too");
}

async fn late_reply(bridge: &Bridge, id: &Value) -> Value {
    soon("the late reply is in its task", async {
        loop {
            let task = bridge.call("GetTask", json!({ "id": id })).await["result"].take();
            if !task["artifacts"].is_null() {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

fn answer_text(task: &Value) -> &str {
    answer(task).as_str().unwrap()
}
