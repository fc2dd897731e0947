//! The messages to the plugin.

use serde_json::json;
use talaria_fakes::{FakePlugin, Step};
use talaria_rig::MailHost;
use talaria_turns::{Principal, Turn};

use super::{SECRET, rig, with_metadata};

#[tokio::test]
async fn a_turn_is_sent_in_the_shape_of_the_python_bridge() {
    let (plugin, mail) = (FakePlugin::echo().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await;
    let turn = rig.turn("hi");
    let chat = turn.task.to_string();
    assert_eq!(rig.execute(turn).await.text(), "echo: hi");
    let [sent] = plugin.messages().try_into().unwrap();
    assert_eq!(
        sent.body,
        json!({
            "chat_id": chat, "peer_id": chat, "peer_name": chat, "content": "hi",
            "message_id": sent.id(), "callback_url": mail.url,
        })
    );
    assert_eq!(sent.secret, None);
    let digits = |id: &str| id.len() == 32 && id.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
    assert!(digits(sent.id()), "{}", sent.id());
}

#[tokio::test]
async fn the_secret_is_sent_if_it_is_set() {
    let echo = |message: &talaria_fakes::Inbound| vec![Step::Answer(message.content().into())];
    let plugin = FakePlugin::with_secret(Some("s3cret-s3cret"), echo).await;
    let mail = MailHost::on(std::sync::Arc::new(talaria_store::Memory::new(1)), Some("s3cret-s3cret")).await;
    let rig = rig(&plugin, &mail).await.secret(SECRET, "s3cret-s3cret");
    assert_eq!(rig.run("hi").await.text(), "hi");
    assert_eq!(plugin.messages()[0].secret.as_deref(), Some("s3cret-s3cret"));
}

#[tokio::test]
async fn the_callers_own_description_is_sent() {
    let (plugin, mail) = (FakePlugin::echo().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await;
    let metadata = json!({
        "peer_id": "p1", "peer_name": "ops", "peer_role": "sre", "session": { "thread_id": "t1" },
        "history": [
            { "role": "user", "parts": [{ "kind": "text", "text": "one" }, { "kind": "text", "text": "two" }] },
            { "role": "agent", "parts": [{ "kind": "text", "text": " three " }] },
            { "role": "system", "content": "not passed on" },
            { "role": "agent", "parts": [] },
            { "role": "assistant", "content": "four" },
            "nonsense",
        ],
    });
    rig.execute(with_metadata(rig.turn("hi"), metadata)).await.result.unwrap();
    let sent = &plugin.messages()[0].body;
    assert_eq!((&sent["peer_id"], &sent["peer_name"]), (&json!("p1"), &json!("ops")));
    assert_eq!((&sent["peer_role"], &sent["thread_id"]), (&json!("sre"), &json!("t1")));
    assert_eq!(
        sent["messages_history"],
        json!([
            { "role": "user", "content": "one two" },
            { "role": "assistant", "content": "three" },
            { "role": "assistant", "content": "four" },
        ])
    );
}

#[tokio::test]
async fn the_newest_messages_of_a_long_history_are_sent() {
    let (plugin, mail) = (FakePlugin::echo().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await;
    for (bytes, kept) in [(1, 20), (100 << 10, 2), (300 << 10, 0)] {
        let line = |nth: usize| json!({ "role": "user", "content": format!("{nth} {}", "x".repeat(bytes)) });
        let history: Vec<_> = (0..30).map(line).collect();
        rig.execute(with_metadata(rig.turn("hi"), json!({ "history": history }))).await.result.unwrap();
        let sent = plugin.messages().pop().unwrap().body;
        let lines = sent["messages_history"].as_array().cloned().unwrap_or_default();
        assert_eq!(lines, history[30 - kept..], "of {bytes} bytes each");
    }
}

#[tokio::test]
async fn a_text_that_begins_with_a_slash_is_not_sent_as_a_command() {
    let (plugin, mail) = (FakePlugin::echo().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await;
    for text in ["/yolo", "/approve always", "/stop", "/usr/bin/env is a path", "//"] {
        assert_eq!(rig.run(text).await.text(), format!("echo:  {text}"));
    }
    assert_eq!(rig.run("1/2").await.text(), "echo: 1/2", "others go as they are");
    assert!(plugin.commands().is_empty(), "{:?}", plugin.commands());
}

#[tokio::test]
async fn a_blank_prompt_is_answered_without_a_call() {
    let (plugin, mail) = (FakePlugin::echo().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await;
    assert_eq!(rig.run(" \n").await.text(), "(empty prompt — nothing to do)");
    assert!(plugin.messages().is_empty());
}

#[tokio::test]
async fn the_settings_decide_what_names_the_chat() {
    let (plugin, mail) = (FakePlugin::echo().await, MailHost::start().await);
    let chat = async |order: serde_json::Value, metadata: serde_json::Value, principal: Principal| {
        let rig = rig(&plugin, &mail).await.setting("chat_id", order).setting("workspace_id", "w1");
        let turn = Turn { principal, ..with_metadata(rig.turn("hi"), metadata) };
        let ids = (turn.task.to_string(), turn.context.to_string(), turn.message.id.to_string());
        rig.execute(turn).await.result.unwrap();
        (plugin.messages().pop().unwrap().chat().to_owned(), ids)
    };
    let nobody = Principal::anyone;
    let session = json!({ "session_id": "s1", "session": { "chat_id": "c1" } });

    let by_default = json!(["task", "session", "context", "message"]);
    let (found, (task, ..)) = chat(by_default, session.clone(), nobody()).await;
    assert_eq!(found, task);
    assert_eq!(chat(json!(["session", "context"]), session.clone(), nobody()).await.0, "s1");
    let only_chat = json!({ "session": { "chat_id": "c1" } });
    assert_eq!(chat(json!(["session", "context"]), only_chat, nobody()).await.0, "c1");
    let (found, (_, context, _)) = chat(json!(["session", "context"]), json!({}), nobody()).await;
    assert_eq!(found, context, "there is no session");
    let empty = json!({ "session_id": "", "session": { "chat_id": "" } });
    let (found, (_, _, message)) = chat(json!(["session", "message"]), empty, nobody()).await;
    assert_eq!(found, message);
    assert_eq!(chat(json!(["workspace", "task"]), json!({}), nobody()).await.0, "workspace:w1");

    let (found, _) = chat(json!(["session"]), json!({}), nobody()).await;
    assert!(found.starts_with("adhoc-") && found.len() == 18, "{found}");
    // A name that a caller chooses stays within the caller's own.
    let alice = || Principal::named("alice");
    assert_eq!(chat(json!(["session"]), session.clone(), alice()).await.0, "alice:s1");
    let (found, (task, ..)) = chat(json!(["task"]), session, alice()).await;
    assert_eq!(found, task, "nobody chooses the task's id");
}

#[tokio::test]
async fn invalid_settings_are_rejected() {
    let (plugin, mail) = (FakePlugin::echo().await, MailHost::start().await);
    for (name, value) in [
        ("chat_id", json!(["task", "moon"])),
        ("chat_id", json!([])),
        ("reply_timeout_seconds", json!(0)),
        ("reply_timeout_seconds", json!("600s")),
        ("replytimeout", json!(600)),
    ] {
        let refused = rig(&plugin, &mail).await.setting(name, value).setup().await.unwrap_err();
        assert_eq!(refused.kind, talaria_turns::FailureKind::InvalidSettings, "{name}: {refused}");
    }
}

#[tokio::test]
async fn the_probe_asks_for_the_plugins_health() {
    let (plugin, mail) = (FakePlugin::echo().await, MailHost::start().await);
    let executor = rig(&plugin, &mail).await.executor();
    executor.setup().await.unwrap();
    plugin.set_down(true);
    let down = executor.recheck().await.unwrap_err();
    assert_eq!(down.kind, talaria_turns::FailureKind::Upstream);
    assert_eq!(
        down.message,
        format!("the hermes plugin is not ready at {}: it answered 503", plugin.health_url())
    );
    let url = plugin.health_url();
    drop(plugin);
    let gone = executor.recheck().await.unwrap_err().message;
    assert!(gone.starts_with(&format!("the hermes plugin is not ready at {url}: connection ")), "{gone}");
}

#[tokio::test]
async fn commands_are_for_callers_that_the_operator_trusts() {
    let (plugin, mail) = (FakePlugin::echo().await, MailHost::start().await);
    let trusting = rig(&plugin, &mail).await.setting("commands_from", json!(["alice"]));
    let careful = rig(&plugin, &mail).await;
    let alice = Principal::named("alice");
    let claims = json!({ "principal": "alice", "commands_from": ["bob"], "session": { "user_id": "alice" } });
    for (rig, principal, metadata, is_command) in [
        (&trusting, alice.clone(), json!({}), true),
        (&careful, alice.clone(), json!({}), false),
        (&trusting, Principal::named("bob"), claims.clone(), false),
        (&trusting, Principal::anyone(), claims, false),
        // A peer, whatever caller passes its message on.
        (&trusting, alice, json!({ "peer_id": "w2" }), false),
    ] {
        let before = plugin.commands().len();
        let turn = Turn { principal, ..with_metadata(rig.turn("/status"), metadata) };
        rig.execute(turn).await.result.unwrap();
        let commands = plugin.commands();
        assert_eq!(commands.len() - before, usize::from(is_command), "{commands:?}");
        if !is_command {
            assert_eq!(plugin.messages().pop().unwrap().content(), " /status");
        }
    }
    assert_eq!(plugin.commands(), ["/status"]);
}
