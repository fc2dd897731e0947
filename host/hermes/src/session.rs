//! The metadata keys that set the session variables of a turn.
//!
//! `HERMES_SESSION_*` are the names by which the tools of hermes-agent know them. `peer_id` and `peer_name` are how the
//! platform describes the workspace that it calls for, which counts as the user. Only the platform is believed
//! ([`PEER_KEYS`]): the agent trusts peers. `session_id` is the key of the Python bridge.

/// The keys with which the platform says for which workspace it calls.
pub const PEER_KEYS: &[&str] = &["peer_id", "peer_name", "peer_role"];

/// For each variable, by its name in the contract, its keys in order of precedence.
pub const SESSION_KEYS: &[(&str, &[&str])] = &[
    ("platform", &["HERMES_SESSION_PLATFORM"]),
    ("source", &["HERMES_SESSION_SOURCE"]),
    ("chat-id", &["HERMES_SESSION_CHAT_ID"]),
    ("chat-name", &["HERMES_SESSION_CHAT_NAME"]),
    ("thread-id", &["HERMES_SESSION_THREAD_ID"]),
    ("user-id", &["HERMES_SESSION_USER_ID", "peer_id"]),
    ("user-name", &["HERMES_SESSION_USER_NAME", "peer_name"]),
    ("key", &["HERMES_SESSION_KEY"]),
    ("id", &["HERMES_SESSION_ID", "session_id"]),
    ("message-id", &["HERMES_SESSION_MESSAGE_ID"]),
];
