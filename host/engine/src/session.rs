//! The session variables of a turn: what an upstream identifies a context by.
//!
//! They belong to the message that is answered, and the instance of a turn gets its own, so no turn can see those of
//! another. A caller sets them in the metadata of the message, or else of the request: as members of an object
//! `session`, or one by one under the keys that the host gives to its engine ([`SessionKeys`]). A variable that is set
//! to the empty string differs from one that was never set: only the latter has a default.
//!
//! With some keys a caller says for whom it speaks ([`Claims`]). Executors see them only if the caller is believed.

use std::borrow::Cow;

use serde_json::Value;
use talaria_turns::{Metadata, Principal, Turn};

use crate::contract::bindings::talaria::executor::types as wit;

/// Metadata keys that set a session variable directly, besides the members of the object `session`: for each variable,
/// by its name in the contract, the keys in order of precedence. They are the names that upstreams and platforms know.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionKeys(pub &'static [(&'static str, &'static [&'static str])]);

/// Metadata keys with which a caller says for whom it speaks, and the callers that are believed. By default there are no such
/// keys.
#[derive(Debug, Clone, Copy)]
pub struct Claims {
    /// The keys.
    pub keys: &'static [&'static str],
    /// Whether a caller is believed.
    pub is_believed: fn(&Principal) -> bool,
}

/// The metadata keys that an executor does not see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Withheld(&'static [&'static str]);

/// The variables that the caller set, by their names in the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session(Vec<(&'static str, String)>);

/// The variables: the name in the contract, and the member of the object `session`.
const VARIABLES: [(&str, &str); 11] = [
    ("platform", "platform"),
    ("source", "source"),
    ("chat-id", "chat_id"),
    ("chat-name", "chat_name"),
    ("thread-id", "thread_id"),
    ("user-id", "user_id"),
    ("user-name", "user_name"),
    ("key", "session_key"),
    ("id", "session_id"),
    ("message-id", "message_id"),
    ("cwd", "cwd"),
];

/// The platform of a turn whose caller does not set one.
const PLATFORM: &str = "a2a";

// === impl Session ===

impl Session {
    /// Reads the session variables of a turn.
    pub(crate) fn of(turn: &Turn, keys: SessionKeys, withheld: Withheld) -> Self {
        let places = [turn.message.metadata.as_ref(), turn.metadata.as_deref()];
        let find = |(name, member): &(&'static str, &str)| {
            let found =
                places.iter().flatten().find_map(|metadata| keys.find(metadata, name, member, withheld))?;
            Some((*name, found))
        };
        Self(VARIABLES.iter().filter_map(find).collect())
    }

    /// Returns a variable, if the caller set it.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the record of the contract, with defaults for variables that the caller did not set.
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

// === impl Claims ===

impl Default for Claims {
    fn default() -> Self {
        Self { keys: &[], is_believed: |_| false }
    }
}

impl Claims {
    /// The keys of this caller that executors do not see.
    pub(crate) fn withheld(self, caller: &Principal) -> Withheld {
        if (self.is_believed)(caller) { Withheld::default() } else { Withheld(self.keys) }
    }
}

// === impl Withheld ===

impl Withheld {
    /// Metadata as an executor sees it.
    pub(crate) fn apply(self, metadata: &Metadata) -> Cow<'_, Metadata> {
        if !self.0.iter().any(|key| metadata.contains_key(*key)) {
            return Cow::Borrowed(metadata);
        }
        let mut shown = metadata.clone();
        shown.retain(|key, _| !self.0.contains(&key.as_str()));
        Cow::Owned(shown)
    }
}

// === impl SessionKeys ===

impl SessionKeys {
    fn find(self, metadata: &Metadata, name: &str, member: &str, withheld: Withheld) -> Option<String> {
        let member = metadata.get("session").and_then(|session| session.get(member));
        let keys = self.0.iter().filter(|(known, _)| *known == name).flat_map(|(_, keys)| *keys);
        let keys = keys.filter(|key| !withheld.0.contains(key));
        match member.or_else(|| keys.copied().find_map(|key| metadata.get(key)))? {
            Value::String(text) => Some(text.clone()),
            // Some platforms identify chats and users by numbers.
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use talaria_turns::{ContextId, Message, Part, Role, TaskId};

    use super::*;

    const KEYS: SessionKeys = SessionKeys(&[("user-id", &["X_USER", "caller"]), ("id", &["X_SESSION"])]);

    fn set_in(turn: &Turn) -> Session {
        Session::of(turn, KEYS, Withheld::default())
    }

    fn turn(message: Value, request: Value) -> Turn {
        let metadata = |value: Value| value.as_object().cloned();
        Turn {
            task: TaskId::fresh(),
            context: ContextId::fresh(),
            message: Arc::new(Message {
                role: Role::User,
                metadata: metadata(message),
                ..Message::agent(vec![Part::text("hi")])
            }),
            history: Arc::default(),
            principal: Principal::named("alice"),
            streaming: false,
            async_delivery: true,
            metadata: metadata(request).map(Arc::new),
            checkpoint: None,
        }
    }

    #[test]
    fn only_a_variable_that_was_never_set_has_a_default() {
        let nothing = turn(Value::Null, Value::Null);
        let session = set_in(&nothing);
        assert_eq!(session, Session(Vec::new()));
        let record = session.record(&nothing);
        assert_eq!((record.platform.as_str(), record.user_id.as_str()), ("a2a", "alice"));
        assert_eq!(record.chat_id, nothing.context.as_str());
        assert_eq!(record.message_id, nothing.message.id.as_str());
        assert!(record.async_delivery);

        let empty = turn(json!({ "session": { "user_id": "", "platform": "" } }), Value::Null);
        let session = set_in(&empty);
        assert_eq!((session.get("user-id"), session.get("user-name")), (Some(""), None));
        let record = session.record(&empty);
        assert_eq!((record.platform.as_str(), record.user_id.as_str()), ("", ""));
    }

    #[test]
    fn a_variable_is_set_by_the_session_object_or_by_a_key() {
        for (name, member) in VARIABLES {
            let member = turn(json!({ "session": { member: "x" } }), Value::Null);
            assert_eq!(set_in(&member).get(name), Some("x"), "{name}");
        }
        for (name, keys) in KEYS.0 {
            for key in *keys {
                let alone = turn(json!({ *key: 7 }), Value::Null);
                assert_eq!(set_in(&alone).get(name), Some("7"), "{name}");
                assert_eq!(
                    Session::of(&alone, SessionKeys::default(), Withheld::default()),
                    Session(vec![]),
                    "unknown keys do nothing"
                );
            }
        }
        let both = turn(
            json!({ "session": { "chat_id": "message" }, "caller": "second", "X_USER": "first" }),
            json!({ "session": { "chat_id": "request", "thread_id": "t" }, "X_USER": "other" }),
        );
        let both = set_in(&both);
        assert_eq!(both.get("chat-id"), Some("message"), "the message comes before the request");
        assert_eq!((both.get("thread-id"), both.get("user-id")), (Some("t"), Some("first")));
        assert_eq!(set_in(&turn(json!({ "session": 7, "X_USER": [] }), Value::Null)), Session(vec![]));
    }

    #[test]
    fn only_a_believed_caller_says_for_whom_it_speaks() {
        let claims = Claims { keys: &["caller"], is_believed: |caller| caller.name() == Some("platform") };
        let said = turn(json!({ "caller": "mallory", "X_SESSION": "s" }), json!({ "caller": "eve" }));
        for (caller, user) in [("platform", Some("mallory")), ("alice", None)] {
            let withheld = claims.withheld(&Principal::named(caller));
            let session = Session::of(&said, KEYS, withheld);
            assert_eq!((session.get("user-id"), session.get("id")), (user, Some("s")), "{caller}");
            let shown = withheld.apply(said.message.metadata.as_ref().unwrap());
            assert_eq!(
                (shown.contains_key("caller"), shown.contains_key("X_SESSION")),
                (user.is_some(), true)
            );
        }
        let anyone = Claims::default().withheld(&Principal::anyone());
        assert_eq!(Session::of(&said, KEYS, anyone).get("user-id"), Some("mallory"), "no key is a claim");
    }
}
