//! The gateway's session of a conversation, so that its agent remembers the turns before, and the scope of the agent's
//! long-term memory, which outlives sessions.
//!
//! A session's id is all that it takes to read along, so no caller chooses it: it is made of the first turn's task id, which
//! the host made, and kept in the state that belongs to this conversation of this caller. The gateway may go on in another
//! session, as it does after it has compressed one; the id in its response is the one to use next.
//!
//! The memory's scope does not move with it. It is the conversation, or what the caller named (`session_key`), always
//! within the caller's own name: whoever could choose the whole of it could read another's memory. The gateway takes 256
//! characters; a scope that is longer is not sent, and the gateway then takes the session for it.
//!
//! The gateway wants its key with both. Without one a turn goes out as the Python bridge's did, and stands alone.

use talaria_guest::http::Header;
use talaria_guest::{Request, Turn, config, log, state};

use super::KEY;

pub(super) const ID: &str = "x-hermes-session-id";
const SCOPE: &str = "x-hermes-session-key";
const STATE: &str = "session";
/// What ids begin with.
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
    /// The session of the turn's conversation, or a new one.
    #[must_use]
    pub fn of(turn: &Turn) -> Self {
        let known = state::get(STATE).ok().flatten().and_then(|id| String::from_utf8(id).ok());
        let is_new = known.is_none();
        let id = known.unwrap_or_else(|| {
            let id = format!("{OURS}{}", turn.task_id);
            // Before the request: the gateway keeps what it was told, also of a turn that does not end well.
            keep(&id);
            id
        });
        Self { id, is_new, scope: scope(turn) }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether the gateway has nothing of it yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Names it, and the memory's scope, in a request that carries the gateway's key.
    pub fn join(&self, request: Request) -> Request {
        if config::has_secret(KEY) { self.within(request.header(ID, &self.id)) } else { request }
    }

    /// Names the memory's scope alone, for a route that has the session elsewhere.
    pub fn within(&self, request: Request) -> Request {
        match self.scope.as_ref().filter(|_| config::has_secret(KEY)) {
            Some(scope) => request.header(SCOPE, scope),
            None => request,
        }
    }

    /// Follows the gateway to the session that its response names.
    pub fn follow(&self, headers: &[Header]) {
        if let Some((_, id)) = headers.iter().find(|(name, _)| name == ID) {
            self.moved(id);
        }
    }

    /// The gateway goes on in this session. What no gateway would take is none.
    pub fn moved(&self, to: &str) {
        if to != self.id && (1..=LONGEST).contains(&to.len()) {
            keep(to);
        }
    }
}

/// The scope of the turn's long-term memory; none that the gateway would not take.
fn scope(turn: &Turn) -> Option<String> {
    let caller = plain(turn.principal.as_ref().map_or("", |principal| &principal.name));
    let scope = match turn.session.key.as_str() {
        "" => format!("talaria:{caller}:context:{}", plain(&turn.context_id)),
        chosen => format!("talaria:{caller}:key:{}", plain(chosen)),
    };
    (scope.len() <= LONGEST).then_some(scope)
}

/// A text that fits into a header, and differs where the text does.
fn plain(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02x}"),
    };
    text.bytes().map(byte).collect()
}

/// A conversation that cannot be kept is no reason to fail a turn.
fn keep(id: &str) {
    if let Err(error) = state::set(STATE, Some(id.as_bytes())) {
        log::write(log::Level::Warn, &format!("the session is not kept: {}", error.message), None);
    }
}
