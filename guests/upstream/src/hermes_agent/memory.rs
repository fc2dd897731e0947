//! Whether the gateway remembers a context by itself, or needs the earlier messages with every turn.
//!
//! hermes-agent keeps sessions for callers that have its key, and names the session in its responses. Other gateways
//! with the same route keep nothing. `auto` tells them apart by `GET {base_url}/health`, where hermes-agent names
//! itself. That route is asked once a context, in its second turn: the first has no earlier messages. The result is
//! stored beside the session.
//!
//! A wrong guess corrects itself: every response names the session or does not, and the stored result follows it. Until
//! then a gateway that was not recognised gets both the session's name and the messages, and hermes-agent uses the
//! name. A gateway that was wrongly taken for hermes-agent misses the earlier messages in one turn. If the health route
//! does not answer, nothing is stored, and the messages are sent.

use serde_json::Value;
use talaria_guest::http::Header;
use talaria_guest::{Request, state};

use super::{Session, session};
use crate::history::{self, Remembers, Said};
use crate::{PROBE_TIMEOUT_MS, base, is_success};

/// The key under which the result is stored.
const STATE: &str = "keeps-sessions";
const YES: &[u8] = b"yes";
const NO: &[u8] = b"no";
/// The largest response of the health route.
const HEALTH_BYTES: u32 = 16 << 10;

/// The earlier messages that the upstream must be given.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) messages: Vec<Said>,
    /// What was assumed about the gateway, if that matters; the inner `None` if it did not say.
    assumed: Option<Option<bool>>,
}

impl Memory {
    pub(super) fn of(remembers: Remembers, session: Option<&Session>, base_url: &str) -> Self {
        let with_messages = |assumed| Self { messages: history::messages(), assumed };
        match (remembers, session) {
            (Remembers::None | Remembers::Session, _) => Self::default(),
            (Remembers::Messages, _) | (Remembers::Auto, None) => with_messages(None),
            // The gateway has nothing of this session, but other executors may have taken turns of the context.
            (Remembers::Auto, Some(session)) if session.is_new() => with_messages(None),
            (Remembers::Auto, Some(_)) => match keeps_sessions(base_url) {
                Some(true) => Self { messages: Vec::new(), assumed: Some(Some(true)) },
                found => with_messages(Some(found)),
            },
        }
    }

    /// Corrects the assumption by the response.
    pub(super) fn learn(&self, status: u16, headers: &[Header]) {
        let Some(assumed) = self.assumed else { return };
        let named = headers.iter().any(|(name, _)| name == session::ID);
        if (named || is_success(status)) && assumed != Some(named) {
            store(named);
        }
    }
}

/// Whether the gateway keeps sessions: as stored, or asked for now; `None` if it does not say.
fn keeps_sessions(base_url: &str) -> Option<bool> {
    match state::get(STATE).ok().flatten().as_deref() {
        Some(YES) => return Some(true),
        Some(NO) => return Some(false),
        _ => {}
    }
    let found = is_hermes_agent(base_url)?;
    store(found);
    Some(found)
}

/// Whether the upstream says that it is hermes-agent; `None` if it does not answer.
pub(super) fn is_hermes_agent(base_url: &str) -> Option<bool> {
    let health = Request::new("GET", format!("{}/health", base(base_url)))
        .timeout_ms(PROBE_TIMEOUT_MS)
        .max_bytes(HEALTH_BYTES)
        .fetch()
        .ok()?;
    // A gateway in trouble, or the proxy before it, does not say what it is.
    if health.status >= 500 {
        return None;
    }
    Some(is_success(health.status) && names_hermes_agent(&health.body))
}

fn names_hermes_agent(health: &[u8]) -> bool {
    let health = serde_json::from_slice::<Value>(health).unwrap_or_default();
    health.get("platform").and_then(Value::as_str) == Some("hermes-agent")
}

fn store(keeps_sessions: bool) {
    // If this fails, the gateway is asked again.
    let _ = state::set(STATE, Some(if keeps_sessions { YES } else { NO }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hermes_agent_is_recognised_by_its_health() {
        for (health, is_hermes_agent) in [
            (r#"{"status":"ok","platform":"hermes-agent","version":"0.19.0"}"#, true),
            (r#"{"status":"ok"}"#, false),
            (r#"{"platform":"Hermes-Agent"}"#, false),
            ("\"I'm alive!\"", false),
            ("", false),
        ] {
            assert_eq!(names_hermes_agent(health.as_bytes()), is_hermes_agent, "{health}");
        }
    }
}
