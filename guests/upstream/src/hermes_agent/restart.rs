//! What is asked again after a restart of this host, and what is not.
//!
//! The gateway runs an unstreamed completion to its end although the caller is gone, and keeps its answer for 300 seconds
//! under the `Idempotency-Key` that came with it; a request with the same key and the same body meanwhile waits for the
//! same run. So the turn is kept before it is sent, under a key that is its own: the task's id, which the host made, and the
//! turn's number in the task. Never the caller's message id, because the gateway keeps one cache for all callers.
//!
//! Asking again is safe only while that cache is the one that was asked, so these must hold: the turn began less than 300
//! seconds ago, the body is the same to the byte (with another one the gateway runs it again), and the gateway has run
//! since before the turn began. The last is read from its detailed health: the moment at which its API was connected,
//! against the `Date` of the same answer, so two clocks are never compared. Whatever cannot be found out counts as no. The
//! turn then fails and says why, since its tools would run twice.
//!
//! A streamed completion has no such key, and other upstreams do not know it. For those `on_restart = "retry"` asks again
//! without any of these checks, and the default, `"fail"`, does not.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use talaria_guest::{Failure, FailureKind, Request, Role, Turn, http, log, state};

use super::KEY;
use crate::{PROBE_TIMEOUT_MS, bearer, is_success, mark, moment, text};

/// How long the gateway keeps an answer after it is there, and so the least that it keeps one after it was asked for.
const KEPT_MS: i64 = 300_000;
/// In the metadata of a turn that is executed again: how long ago it began.
const BEGUN: &str = "talaria/begun-ms-ago";

/// What becomes of a turn that a restart interrupted, where nothing is known of what the upstream did with it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRestart {
    /// It fails.
    #[default]
    Fail,
    /// It is sent again, whatever it did the first time.
    Retry,
}

/// What is kept of a turn before it is sent.
#[derive(Serialize, Deserialize)]
pub(super) struct Sent {
    /// The key that it is sent with; none where it would mean nothing.
    pub(super) key: Option<String>,
    /// Whether the answer was asked for as a stream.
    pub(super) stream: bool,
    /// The body's mark.
    body: String,
}

impl Sent {
    /// A turn that is about to be sent. One that has no gateway's key gets none for its answer either.
    pub(super) fn new(turn: &Turn, stream: bool, has_session: bool, body: &[u8]) -> Self {
        let number = turn.history.iter().filter(|message| message.role == Role::User).count() + 1;
        let key = (has_session && !stream).then(|| format!("{}-{number}", turn.task_id));
        Self { key, stream, body: format!("{:016x}", mark(body)) }
    }

    /// What was kept of a turn that is executed again.
    pub(super) fn of(turn: &Turn) -> Result<Option<Self>, Failure> {
        let Some(kept) = turn.checkpoint.as_deref() else { return Ok(None) };
        let unreadable = |_| not_again("what was kept of the turn cannot be read");
        serde_json::from_slice(kept).map(Some).map_err(unreadable)
    }

    /// Keeps it, where it could be asked again. A turn that cannot be kept is sent all the same.
    pub(super) fn keep(&self, on_restart: OnRestart) {
        if self.key.is_none() && on_restart == OnRestart::Fail {
            return;
        }
        let kept = serde_json::to_vec(self).map_err(|error| error.to_string());
        let kept = kept.and_then(|data| state::checkpoint(&data).map_err(|error| error.message));
        if let Err(why) = kept {
            let line = format!("the turn is not kept, so a restart would end it: {why}");
            log::write(log::Level::Warn, &line, None);
        }
    }

    /// Whether it may be asked again with this body, of the gateway at `base`.
    pub(super) fn again(
        &self,
        turn: &Turn,
        body: &[u8],
        base: &str,
        on_restart: OnRestart,
    ) -> Result<(), Failure> {
        if on_restart == OnRestart::Retry {
            return Ok(());
        }
        if self.key.is_none() {
            return Err(not_again("its answer was not kept; settings.on_restart = \"retry\" would ask"));
        }
        if self.body != format!("{:016x}", mark(body)) {
            return Err(not_again("its prompt, its model or its conversation is not the same any more"));
        }
        let metadata = turn.metadata.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
        let begun = metadata.as_ref().and_then(|metadata| metadata.get(BEGUN)?.as_i64());
        let Some(begun) = begun.filter(|begun| *begun >= 0) else {
            return Err(not_again("nobody knows how long ago it began"));
        };
        if begun >= KEPT_MS {
            return Err(not_again("it began more than 300 seconds ago"));
        }
        up_for(base, begun).map_err(|why| not_again(&why))
    }
}

/// Whether the gateway has been up for longer than this.
fn up_for(base: &str, ms: i64) -> Result<(), String> {
    let parent = base.rsplit_once('/').map_or(base, |(parent, _)| parent);
    let request = Request::new("GET", format!("{parent}/health/detailed")).timeout_ms(PROBE_TIMEOUT_MS);
    let health = match bearer(request, KEY).fetch() {
        Ok(health) if is_success(health.status) => health,
        Ok(health) => {
            return Err(format!("the gateway does not say since when it is up ({})", health.status));
        }
        Err(error) if error.kind == http::ErrorKind::Denied => {
            return Err("the grant does not allow to ask the gateway since when it is up".into());
        }
        Err(error) => return Err(format!("the gateway cannot be asked: {}", error.message)),
    };
    let data: Value = serde_json::from_slice(&health.body).unwrap_or_default();
    // While it starts it shows the moments of the process before.
    let is_up = matches!(text(&data, "/gateway_state").as_deref(), Some("running" | "degraded"));
    let since = text(&data, "/platforms/api_server/updated_at").filter(|_| is_up);
    let since = since.as_deref().and_then(moment::rfc3339);
    let now = health.headers.iter().find(|(name, _)| name == "date").and_then(|(_, date)| moment::http(date));
    match (since, now) {
        (Some(since), Some(now)) if now - since > ms => Ok(()),
        (Some(_), Some(_)) => Err("the gateway was restarted too".into()),
        _ => Err("the gateway does not say since when it is up".into()),
    }
}

fn not_again(why: &str) -> Failure {
    Failure::new(FailureKind::Upstream, format!("interrupted by a restart, and not asked again: {why}"))
}
