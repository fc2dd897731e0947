//! The gateway's session of a conversation, so that its agent remembers the turns before.
//!
//! A session's id is all that it takes to read along, so no caller chooses it: it is made of the first turn's task id, which
//! the host made, and kept in the state that belongs to this conversation of this caller. The gateway may go on in another
//! session, as it does after it has compressed one; the id in its response is the one to use next.
//!
//! The gateway wants its key with it. Without one the turn goes out as the Python bridge's did, and stands alone.

use talaria_guest::http::Header;
use talaria_guest::{Request, Turn, log, state};

const HEADER: &str = "x-hermes-session-id";
const STATE: &str = "session";
/// The longest id that the gateway takes.
const LONGEST: usize = 256;

/// The session of one turn.
pub(crate) struct Session(Option<String>);

impl Session {
    /// The session of the turn's conversation, or a new one. None without the gateway's key.
    pub(crate) fn of(turn: &Turn, has_key: bool) -> Self {
        if !has_key {
            return Self(None);
        }
        let known = state::get(STATE).ok().flatten().and_then(|id| String::from_utf8(id).ok());
        let id = known.unwrap_or_else(|| {
            let id = format!("talaria-{}", turn.task_id);
            // Before the request: the gateway keeps what it was told, also of a turn that does not end well.
            keep(&id);
            id
        });
        Self(Some(id))
    }

    /// Names it in a request.
    pub(crate) fn join(&self, request: Request) -> Request {
        match &self.0 {
            Some(id) => request.header(HEADER, id),
            None => request,
        }
    }

    /// Follows the gateway to the session that its response names.
    pub(crate) fn follow(&self, headers: &[Header]) {
        let Some(sent) = &self.0 else { return };
        let named = headers.iter().find(|(name, _)| name == HEADER).map(|(_, id)| id);
        if let Some(id) = named.filter(|id| *id != sent && (1..=LONGEST).contains(&id.len())) {
            keep(id);
        }
    }
}

/// A conversation that cannot be kept is no reason to fail a turn.
fn keep(id: &str) {
    if let Err(error) = state::set(STATE, Some(id.as_bytes())) {
        log::write(log::Level::Warn, &format!("the session is not kept: {}", error.message), None);
    }
}
