//! The gateway's chat that a turn belongs to, and what is sent along with its message.

use serde::Deserialize;
use serde_json::{Value, json};
use talaria_guest::{Failure, Turn, control};

use crate::{Settings, wire};

/// What may name a chat.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// The task, which gives each task a chat of its own.
    Task,
    /// The session, or the chat, that the caller named.
    Session,
    /// The context.
    Context,
    /// The message.
    Message,
    /// The workspace, which is one chat for all callers.
    Workspace,
}

/// The number of earlier messages that are sent along, which is as many as the platform sends.
const HISTORY: usize = 20;
/// The bytes of them: the plugin takes a mebibyte, and the message must fit too.
const HISTORY_BYTES: usize = 256 << 10;

/// What stands before the id of a workspace.
const WORKSPACE: &str = "workspace";

/// The chat's id: the first source that the turn has.
///
/// A name that callers choose is prefixed with the caller's, or one could speak in another's chat. Both are escaped, so that
/// the first colon always ends the caller's name: `team` in `ops:x` and `team:ops` in `x` are two chats. Names without a
/// colon or a percent sign, which are nearly all, stay as they are, and with them the gateway's memory of their chats.
pub(crate) fn id(settings: &Settings, turn: &Turn) -> Result<String, Failure> {
    let own = |text: String| match &turn.principal {
        // The chat of a workspace is everybody's.
        Some(principal) if principal.name == WORKSPACE => format!("%{WORKSPACE}:{}", escaped(&text)),
        Some(principal) => format!("{}:{}", escaped(&principal.name), escaped(&text)),
        // The gateway joins a chat and a thread with a colon. Without the colon in front, a caller without a name could
        // name a chat after a caller and a thread after that caller's chat.
        None if !turn.session.thread_id.is_empty() => format!(":{}", escaped(&text)),
        None => escaped(&text),
    };
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let named = settings.chat_id.iter().find_map(|source| match source {
        Source::Task => given(&turn.task_id),
        Source::Session => given(&turn.session.id)
            .or_else(|| control::session("chat-id").filter(|chat| !chat.is_empty()))
            .map(own),
        Source::Context => given(&turn.context_id).map(own),
        Source::Message => given(&turn.message.id).map(own),
        Source::Workspace => {
            let known = turn.workspace.as_ref().map(|workspace| workspace.id.as_str());
            given(known.unwrap_or(&settings.workspace_id)).map(|id| format!("{WORKSPACE}:{id}"))
        }
    });
    match named {
        Some(id) => Ok(id),
        None => Ok(format!("adhoc-{}", wire::fresh_id()?.chars().take(12).collect::<String>())),
    }
}

/// The text without colons, so that different texts stay different.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace(':', "%3a")
}

/// The text, changed so that the gateway does not take it for one of its commands. The agent reads the same.
pub(crate) fn disarmed(text: &str) -> String {
    if text.starts_with('/') { format!(" {text}") } else { text.to_owned() }
}

/// What a message's metadata holds if another agent sent it.
const PEER: [&str; 5] = ["peer_id", "peer_name", "peer_role", "delegation_id", "source_workspace_id"];

/// Whether the turn's text may be a command: its caller proved by a token to be one that the operator trusts with commands,
/// and the message does not name a peer. Nothing that a message claims makes it a command.
pub(crate) fn may_command(settings: &Settings, turn: &Turn) -> bool {
    let is_trusted =
        turn.principal.as_ref().is_some_and(|caller| settings.commands_from.contains(&caller.name));
    let names_a_peer = |metadata: &Option<String>| {
        let metadata: Value = match metadata.as_deref().map(serde_json::from_str) {
            Some(Ok(metadata)) => metadata,
            Some(Err(_)) => return true,
            None => return false,
        };
        PEER.iter().any(|key| metadata.get(key).is_some_and(|value| !value.is_null() && value != ""))
    };
    is_trusted && !names_a_peer(&turn.message.metadata) && !names_a_peer(&turn.metadata)
}

/// The earlier messages that the caller sent along, in the shape that the gateway understands; the newest that fit.
pub(crate) fn history(turn: &Turn) -> Vec<Value> {
    let metadata = turn.message.metadata.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let sent =
        ["messages_history", "history"].iter().find_map(|name| metadata.as_ref()?.get(*name)?.as_array());
    let newest = sent.into_iter().flatten().rev().filter_map(line);
    let mut room = HISTORY_BYTES;
    let fits = newest.take(HISTORY).take_while(|(_, text)| match room.checked_sub(text.len()) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    });
    let mut history: Vec<Value> =
        fits.map(|(role, content)| json!({ "role": role, "content": content })).collect();
    history.reverse();
    history
}

/// A message as the platform, or an OpenAI-shaped client, writes it.
fn line(message: &Value) -> Option<(&'static str, String)> {
    let role = match message.get("role").and_then(Value::as_str) {
        Some("user") => "user",
        Some("agent" | "assistant") => "assistant",
        _ => return None,
    };
    let text = match message.get("content").and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None => {
            let parts = message.get("parts").and_then(Value::as_array)?;
            let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
            texts.collect::<Vec<_>>().join(" ")
        }
    };
    let text = text.trim();
    (!text.is_empty()).then(|| (role, text.to_owned()))
}

#[cfg(test)]
mod tests {
    use talaria_guest::testing::turn;
    use talaria_guest::types::Principal;

    use super::*;

    fn named(sources: &str, turn: &Turn) -> String {
        let settings = json!({
            "inbound_url": "", "health_url": "", "chat_id": serde_json::from_str::<Value>(sources).unwrap(),
            "workspace_id": "ws-1", "reply_timeout_seconds": 600.0, "commands_from": [],
        });
        id(&serde_json::from_value(settings).unwrap(), turn).unwrap()
    }

    #[test]
    fn a_chat_is_named_by_the_first_source_that_the_turn_has() {
        let mut turn = turn("hello");
        turn.session.id = "s-1".into();
        for (sources, open, alices) in [
            (r#"["task","session"]"#, "task-1", "task-1"),
            (r#"["session","context"]"#, "s-1", "alice:s-1"),
            (r#"["context"]"#, "context-1", "alice:context-1"),
            (r#"["message"]"#, "message-1", "alice:message-1"),
            (r#"["workspace","context"]"#, "workspace:ws-1", "workspace:ws-1"),
        ] {
            turn.principal = None;
            assert_eq!(named(sources, &turn), open, "{sources}");
            turn.principal = Some(Principal { name: "alice".into(), metadata: None });
            assert_eq!(named(sources, &turn), alices, "{sources}");
        }
        turn.context_id = String::new();
        let adhoc = named(r#"["context"]"#, &turn);
        assert!(adhoc.starts_with("adhoc-") && adhoc.len() == 18, "{adhoc}");
    }

    #[test]
    fn no_two_callers_have_a_chat_in_common() {
        let of = |caller: Option<&str>, context: &str, thread: &str| {
            let mut turn = turn("hello");
            turn.principal = caller.map(|name| Principal { name: name.into(), metadata: None });
            (turn.context_id, turn.session.thread_id) = (context.into(), thread.into());
            // As the gateway joins them.
            let thread = escaped(thread);
            let colon = if thread.is_empty() { "" } else { ":" };
            format!("{}{colon}{thread}", named(r#"["context"]"#, &turn))
        };
        let callers =
            [None, Some("team"), Some("team:ops"), Some("team%3aops"), Some("workspace"), Some("ws-1")];
        let texts = ["x", "ops:x", "ops%3ax", "team", "team:x", "ws-1", "workspace:ws-1", "%workspace"];
        let mut owners = std::collections::HashMap::from([("workspace:ws-1".to_owned(), Some("everybody"))]);
        for caller in callers {
            for (context, thread) in
                texts.iter().flat_map(|text| [""].iter().chain(&texts).map(move |thread| (*text, *thread)))
            {
                let chat = of(caller, context, thread);
                let owner = owners.entry(chat.clone()).or_insert(caller);
                assert_eq!(*owner, caller, "{chat}: {context} {thread}");
            }
        }
        assert_eq!(of(Some("alice"), "context-1", ""), "alice:context-1", "as ever");
    }

    #[test]
    fn a_text_that_looks_like_a_command_is_disarmed() {
        for (text, sent) in [("/yolo", " /yolo"), ("hello", "hello"), (" /stop", " /stop"), ("", "")] {
            assert_eq!(disarmed(text), sent);
        }
    }

    #[test]
    fn only_trusted_callers_that_name_no_peer_may_command() {
        let settings = json!({
            "inbound_url": "", "health_url": "", "chat_id": ["task"], "workspace_id": "",
            "reply_timeout_seconds": 600.0, "commands_from": ["alice"],
        });
        let settings: Settings = serde_json::from_value(settings).unwrap();
        for (caller, said, sent, expected) in [
            (Some("alice"), None, None, true),
            (Some("alice"), Some(json!({ "peer_id": "", "session_id": "s" })), None, true),
            (Some("bob"), None, None, false),
            (None, Some(json!({ "user": "alice", "commands_from": ["me"] })), None, false),
            (Some("alice"), Some(json!({ "peer_id": "p" })), None, false),
            (Some("alice"), None, Some(json!({ "source_workspace_id": "w" })), false),
            (Some("alice"), Some(json!({ "peer_name": 7 })), None, false),
        ] {
            let mut turn = turn("/new");
            turn.principal = caller.map(|name| Principal { name: name.into(), metadata: None });
            turn.message.metadata = said.as_ref().map(Value::to_string);
            turn.metadata = sent.as_ref().map(Value::to_string);
            assert_eq!(may_command(&settings, &turn), expected, "{caller:?} {said:?} {sent:?}");
        }
    }

    #[test]
    fn earlier_messages_are_translated_and_bounded() {
        let said = |role: &str, content: &str| json!({ "role": role, "content": content });
        let long = "x".repeat(HISTORY_BYTES - 1);
        for (metadata, expected) in [
            (
                json!({ "history": [said("user", "hi"), said("agent", "yes?")] }),
                vec![said("user", "hi"), said("assistant", "yes?")],
            ),
            (
                json!({ "messages_history": [said("user", "a")], "history": [said("user", "b")] }),
                vec![said("user", "a")],
            ),
            (
                json!({ "history": [{ "role": "user", "parts": [{ "text": "a" }, { "text": "b" }] }, said("tool", "x"), said("user", " ")] }),
                vec![said("user", "a b")],
            ),
            (
                json!({ "history": [said("user", "old"), said("user", &long), said("user", "n")] }),
                vec![said("user", &long), said("user", "n")],
            ),
            (json!({ "history": 7 }), vec![]),
        ] {
            let mut turn = turn("hello");
            turn.message.metadata = Some(metadata.to_string());
            assert_eq!(history(&turn), expected);
        }
        let many: Vec<Value> = (0..HISTORY + 2).map(|n| said("user", &n.to_string())).collect();
        let mut turn = turn("hello");
        turn.message.metadata = Some(json!({ "history": many }).to_string());
        let kept = history(&turn);
        assert_eq!((kept.len(), &kept[0]["content"]), (HISTORY, &json!("2")));
    }
}
