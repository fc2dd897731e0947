//! Whether the gateway keeps the conversation, or has to be told it again with every turn.
//!
//! hermes-agent keeps sessions for callers that have its key, and says so in its answers; other gateways with the same route
//! keep nothing. `auto` tells them apart by `GET {base_url}/health`, where hermes-agent names itself. That is asked once a
//! conversation, in its second turn: the first has nothing to be told, and what was found is kept with the session.
//!
//! A wrong guess heals: every answer names the session, or does not, and what is kept follows it. Until then a gateway
//! that was not recognised gets both, the session's name and the messages, of which hermes-agent takes the first; one that
//! was taken for hermes-agent has missed the conversation in one turn. If the health route does not answer, nothing is
//! kept, and the messages are sent.

use serde_json::Value;
use talaria_guest::http::Header;
use talaria_guest::{Request, state};

use super::{Session, session};
use crate::history::{self, Remembers, Said};
use crate::{PROBE_TIMEOUT_MS, base, is_success};

/// Where it is kept what the gateway was found to be.
const STATE: &str = "keeps-sessions";
const YES: &[u8] = b"yes";
const NO: &[u8] = b"no";
/// The most that is read of the health route.
const HEALTH_BYTES: u32 = 16 << 10;

/// The conversation before a turn, as far as the upstream must be given it.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) messages: Vec<Said>,
    /// What was assumed of the gateway, where that matters; within, none if it did not say.
    assumed: Option<Option<bool>>,
}

impl Memory {
    pub(super) fn of(remembers: Remembers, session: Option<&Session>, base_url: &str) -> Self {
        let told = |assumed| Self { messages: history::messages(), assumed };
        match (remembers, session) {
            (Remembers::None | Remembers::Session, _) => Self::default(),
            (Remembers::Messages, _) | (Remembers::Auto, None) => told(None),
            // Nothing was said in it to this gateway; what another executor was told, this one must be told.
            (Remembers::Auto, Some(session)) if session.is_new() => told(None),
            (Remembers::Auto, Some(_)) => match keeps_sessions(base_url) {
                Some(true) => Self { messages: Vec::new(), assumed: Some(Some(true)) },
                found => told(Some(found)),
            },
        }
    }

    /// Looks at the answer whether the assumption was right.
    pub(super) fn learn(&self, status: u16, headers: &[Header]) {
        let Some(assumed) = self.assumed else { return };
        let named = headers.iter().any(|(name, _)| name == session::ID);
        if (named || is_success(status)) && assumed != Some(named) {
            keep(named);
        }
    }
}

/// What is known of the gateway, or found out now; none if it does not say.
fn keeps_sessions(base_url: &str) -> Option<bool> {
    match state::get(STATE).ok().flatten().as_deref() {
        Some(YES) => return Some(true),
        Some(NO) => return Some(false),
        _ => {}
    }
    let found = is_hermes_agent(base_url)?;
    keep(found);
    Some(found)
}

/// Whether the upstream says that it is hermes-agent; none if it does not answer.
pub(super) fn is_hermes_agent(base_url: &str) -> Option<bool> {
    let health = Request::new("GET", format!("{}/health", base(base_url)))
        .timeout_ms(PROBE_TIMEOUT_MS)
        .max_bytes(HEALTH_BYTES)
        .fetch()
        .ok()?;
    // A gateway that is in trouble, or a proxy before it, does not say who it is.
    if health.status >= 500 {
        return None;
    }
    let says = serde_json::from_slice::<Value>(&health.body).ok();
    let platform = says.as_ref().and_then(|says| says.get("platform")).and_then(Value::as_str);
    Some(is_success(health.status) && platform == Some("hermes-agent"))
}

fn keep(keeps_sessions: bool) {
    // What is not kept is found out again.
    let _ = state::set(STATE, Some(if keeps_sessions { YES } else { NO }));
}
