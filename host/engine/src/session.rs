//! The session variables of a turn: what upstreams know a conversation by.
//!
//! They belong to the message that is answered, and a turn's instance is given its own, so no two turns can see each
//! other's. A caller sets them in the message's metadata, or else in the request's: as members of an object `session`,
//! or one by one under the names that hermes-agent's tools know them by (`HERMES_SESSION_CHAT_ID`). What a platform says
//! of its peers (`peer_id`, `peer_name`) counts as the user. A variable that was set to nothing is not one that was
//! never set: only the second has a default.

use serde_json::Value;
use talaria_turns::{Metadata, Turn};

use crate::contract::bindings::talaria::executor::types as wit;

/// What the caller set, by the names of the contract's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session(Vec<(&'static str, String)>);

/// A variable: its name in the contract, in an object `session`, and one by one.
struct Variable {
    name: &'static str,
    member: &'static str,
    alone: &'static [&'static str],
}

const fn variable(name: &'static str, member: &'static str, alone: &'static [&'static str]) -> Variable {
    Variable { name, member, alone }
}

const VARIABLES: [Variable; 11] = [
    variable("platform", "platform", &["HERMES_SESSION_PLATFORM"]),
    variable("source", "source", &["HERMES_SESSION_SOURCE"]),
    variable("chat-id", "chat_id", &["HERMES_SESSION_CHAT_ID"]),
    variable("chat-name", "chat_name", &["HERMES_SESSION_CHAT_NAME"]),
    variable("thread-id", "thread_id", &["HERMES_SESSION_THREAD_ID"]),
    variable("user-id", "user_id", &["HERMES_SESSION_USER_ID", "peer_id"]),
    variable("user-name", "user_name", &["HERMES_SESSION_USER_NAME", "peer_name"]),
    variable("key", "session_key", &["HERMES_SESSION_KEY"]),
    variable("id", "session_id", &["HERMES_SESSION_ID", "session_id"]),
    variable("message-id", "message_id", &["HERMES_SESSION_MESSAGE_ID"]),
    variable("cwd", "cwd", &[]),
];

/// Where a turn comes from when nobody says.
const PLATFORM: &str = "a2a";

// === impl Session ===

impl Session {
    /// The session of a turn.
    pub(crate) fn of(turn: &Turn) -> Self {
        let places = [turn.message.metadata.as_ref(), turn.metadata.as_ref()];
        let find = |variable: &Variable| {
            let found = places.iter().flatten().find_map(|metadata| variable.find(metadata))?;
            Some((variable.name, found))
        };
        Self(VARIABLES.iter().filter_map(find).collect())
    }

    /// A variable, if the caller set it.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The record of the contract, with what the host knows where the caller said nothing.
    pub(crate) fn record(&self, turn: &Turn) -> wit::Session {
        let or = |name: &str, default: &str| self.get(name).unwrap_or(default).to_owned();
        wit::Session {
            platform: or("platform", PLATFORM),
            source: or("source", ""),
            chat_id: or("chat-id", turn.context.as_str()),
            chat_name: or("chat-name", ""),
            thread_id: or("thread-id", ""),
            user_id: or("user-id", turn.principal.name().unwrap_or_default()),
            user_name: or("user-name", ""),
            key: or("key", ""),
            id: or("id", ""),
            message_id: or("message-id", turn.message.id.as_str()),
            cwd: or("cwd", ""),
            async_delivery: turn.async_delivery,
        }
    }
}

// === impl Variable ===

impl Variable {
    fn find(&self, metadata: &Metadata) -> Option<String> {
        let member = metadata.get("session").and_then(|session| session.get(self.member));
        let alone = || self.alone.iter().find_map(|name| metadata.get(*name));
        match member.or_else(alone)? {
            Value::String(text) => Some(text.clone()),
            // Chats and users have numbers on some platforms.
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use talaria_turns::{ContextId, Message, Part, Principal, Role, TaskId};

    use super::*;

    fn turn(message: Value, request: Value) -> Turn {
        let metadata = |value: Value| value.as_object().cloned();
        Turn {
            task: TaskId::fresh(),
            context: ContextId::fresh(),
            message: Message {
                role: Role::User,
                metadata: metadata(message),
                ..Message::agent(vec![Part::text("hi")])
            },
            text: "hi".into(),
            history: Vec::new(),
            principal: Principal::named("alice"),
            streaming: false,
            async_delivery: true,
            metadata: metadata(request),
            checkpoint: None,
        }
    }

    #[test]
    fn what_was_never_set_has_a_default_and_what_was_set_to_nothing_has_not() {
        let nothing = turn(Value::Null, Value::Null);
        let session = Session::of(&nothing);
        assert_eq!(session, Session(Vec::new()));
        let record = session.record(&nothing);
        assert_eq!((record.platform.as_str(), record.user_id.as_str()), ("a2a", "alice"));
        assert_eq!(record.chat_id, nothing.context.as_str());
        assert_eq!(record.message_id, nothing.message.id.as_str());
        assert!(record.async_delivery);

        let empty = turn(json!({ "session": { "user_id": "", "platform": "" } }), Value::Null);
        let session = Session::of(&empty);
        assert_eq!((session.get("user-id"), session.get("user-name")), (Some(""), None));
        let record = session.record(&empty);
        assert_eq!((record.platform.as_str(), record.user_id.as_str()), ("", ""));
    }

    #[test]
    fn every_variable_can_be_set_in_every_way() {
        for variable in VARIABLES {
            let member = turn(json!({ "session": { variable.member: "x" } }), Value::Null);
            assert_eq!(Session::of(&member).get(variable.name), Some("x"), "{}", variable.name);
            for alone in variable.alone {
                let alone = turn(json!({ *alone: 7 }), Value::Null);
                assert_eq!(Session::of(&alone).get(variable.name), Some("7"), "{}", variable.name);
            }
        }
        let both = turn(
            json!({ "session": { "chat_id": "message" }, "peer_id": "peer" }),
            json!({ "session": { "chat_id": "request", "thread_id": "t" }, "peer_id": "other" }),
        );
        let session = Session::of(&both);
        assert_eq!(session.get("chat-id"), Some("message"), "the message comes before the request");
        assert_eq!((session.get("thread-id"), session.get("user-id")), (Some("t"), Some("peer")));
        assert_eq!(Session::of(&turn(json!({ "session": 7, "peer_id": [] }), Value::Null)), Session(vec![]));
    }
}
