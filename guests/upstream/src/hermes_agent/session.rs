//! The gateway's session of a context, by which its agent remembers earlier turns, and the scope of the agent's
//! long-term memory, which outlives sessions.
//!
//! A session's id is enough to read the session, so no caller chooses it. It is made of the first turn's task id, which
//! the host made, and stored in the state of this context and this caller. The gateway may go on in another session, as
//! it does after it has compressed one; the id in its response is then used next.
//!
//! The scope of the memory does not move with the session. It is the context, or the name that the caller chose
//! (`session_key`), always within the caller's own name: a caller who could choose all of it could read another's
//! memory. The gateway takes 256 characters. A longer scope is not sent, and the gateway uses the session instead.
//!
//! The gateway wants its key with both. Without the key a turn goes out as the Python bridge sent it, and stands alone.

use talaria_guest::http::Header;
use talaria_guest::{Request, Turn, config, state};

use super::KEY;
use crate::warn;

pub(super) const ID: &str = "x-hermes-session-id";
const SCOPE: &str = "x-hermes-session-key";
const STATE: &str = "session";
/// The prefix of every id.
pub(super) const OURS: &str = "talaria-";
/// The longest id, and the longest scope, that the gateway takes.
const LONGEST: usize = 256;

/// The session of one turn.
pub struct Session {
    id: String,
    is_new: bool,
    scope: Option<String>,
}

impl Session {
    /// The session of the turn's context, or a new one.
    #[must_use]
    pub fn of(turn: &Turn) -> Self {
        let known = state::get(STATE).ok().flatten().and_then(|id| String::from_utf8(id).ok());
        let is_new = known.is_none();
        let id = known.unwrap_or_else(|| {
            let id = format!("{OURS}{}", turn.task_id);
            // Before the request: the gateway stores what it was sent, even if the turn fails.
            store(&id);
            id
        });
        Self { id, is_new, scope: scope(turn) }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether the gateway has stored nothing of it yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Names the session and the memory's scope in a request, if the gateway's key is set.
    pub fn join(&self, request: Request) -> Request {
        if config::has_secret(KEY) { self.within(request.header(ID, &self.id)) } else { request }
    }

    /// Names the memory's scope alone, for a request that names the session elsewhere or not at all.
    pub fn within(&self, request: Request) -> Request {
        match self.scope.as_ref().filter(|_| config::has_secret(KEY)) {
            Some(scope) => request.header(SCOPE, scope),
            None => request,
        }
    }

    /// Follows the gateway into the session that its response names.
    pub fn follow(&self, headers: &[Header]) {
        if let Some((_, id)) = headers.iter().find(|(name, _)| name == ID) {
            self.moved(id);
        }
    }

    /// Stores the session that the gateway goes on in. An id that no gateway would take is ignored.
    pub fn moved(&self, to: &str) {
        if to != self.id && (1..=LONGEST).contains(&to.len()) {
            store(to);
        }
    }
}

/// The scope of the turn's long-term memory; `None` if it is too long for the gateway.
fn scope(turn: &Turn) -> Option<String> {
    let caller = plain(turn.principal.as_ref().map_or("", |principal| &principal.name));
    let scope = match turn.session.key.as_str() {
        "" => format!("talaria:{caller}:context:{}", plain(&turn.context_id)),
        chosen => format!("talaria:{caller}:key:{}", plain(chosen)),
    };
    (scope.len() <= LONGEST).then_some(scope)
}

/// Encodes a text for a header, so that different texts stay different.
fn plain(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02x}"),
    };
    text.bytes().map(byte).collect()
}

/// Stores the session's id. If that fails, the turn goes on.
fn store(id: &str) {
    if let Err(error) = state::set(STATE, Some(id.as_bytes())) {
        warn(&format!("session not stored; the agent will not remember this turn: {}", error.message));
    }
}

#[cfg(test)]
mod tests {
    use talaria_guest::testing::turn;
    use talaria_guest::types::Principal;

    use super::*;

    #[test]
    fn the_scope_is_the_context_or_the_callers_choice_within_the_callers_name() {
        let long = "x".repeat(300);
        for (caller, key, expected) in [
            (None, "", Some("talaria::context:context-1")),
            (Some("alice"), "", Some("talaria:alice:context:context-1")),
            (Some("alice"), "notes", Some("talaria:alice:key:notes")),
            (Some("alice:key:notes"), "x", Some("talaria:alice%3akey%3anotes:key:x")),
            (None, "a b\r\nc", Some("talaria::key:a%20b%0d%0ac")),
            (None, "ä", Some("talaria::key:%c3%a4")),
            (None, long.as_str(), None),
        ] {
            let mut turn = turn("hello");
            turn.principal = caller.map(|name| Principal { name: name.into(), metadata: None });
            turn.session.key = key.into();
            assert_eq!(scope(&turn).as_deref(), expected, "{caller:?} {key}");
        }
    }
}
