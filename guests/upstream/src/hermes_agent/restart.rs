//! Which turns are asked again after a restart of this host, and which are not.
//!
//! The gateway runs an unstreamed completion to its end even if the caller is gone, and keeps its answer for 300
//! seconds under the `Idempotency-Key` of the request; meanwhile a request with the same key and the same body waits
//! for the same run. So the turn is checkpointed before it is sent, with a key of its own: the task's id, which the
//! host made, and the turn's number in the task. The caller's message id is never used, because the gateway keeps one
//! cache for all callers.
//!
//! Asking again is safe only while that cache lives. Three conditions must hold: the turn began less than 300 seconds
//! ago, the body is the same to the byte (otherwise the gateway runs it again), and the gateway has been up since
//! before the turn began. Its detailed health has the last: the time at which its API was connected, compared with the
//! `Date` of the same response, so that two clocks are never compared. A condition that cannot be checked does not
//! hold. The turn then fails and says why, since its tools would run twice.
//!
//! Streamed completions ignore the key, and other upstreams do not know it. For those `on_restart = "retry"` asks again
//! without any of these checks, and the default, `"fail"`, does not.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use talaria_guest::{Failure, FailureKind, Request, Role, Turn, http, state};

use super::KEY;
use crate::{PROBE_TIMEOUT_MS, bearer, is_success, mark, text, timestamp, warn};

/// How long the gateway keeps an answer, and so the least time that it keeps one after the request.
const KEPT_MS: i64 = 300_000;
/// The key in the metadata of a turn that is executed again for how long ago it began.
const BEGUN: &str = "talaria/begun-ms-ago";

/// What happens to an interrupted turn if nothing is known about its fate at the upstream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRestart {
    /// It fails.
    #[default]
    Fail,
    /// It is sent again, whatever its tools did the first time.
    Retry,
}

/// The checkpoint of a turn, stored before the turn is sent.
#[derive(Serialize, Deserialize)]
pub(super) struct Sent {
    /// The key that it is sent with; `None` where the upstream would ignore it.
    pub(super) key: Option<String>,
    /// Whether a stream was requested.
    pub(super) stream: bool,
    /// The hash of the body; empty without a key.
    body: String,
}

impl Sent {
    /// A turn that is about to be sent. Without the gateway's key it gets no key for its answer either.
    pub(super) fn new(turn: &Turn, stream: bool, has_session: bool, body: &[u8]) -> Self {
        let number = turn.history.iter().filter(|message| message.role == Role::User).count() + 1;
        let key = (has_session && !stream).then(|| format!("{}-{number}", turn.task_id));
        // Without a key nobody asks whether the body is the same.
        let body = key.as_ref().map(|_| format!("{:016x}", mark(body))).unwrap_or_default();
        Self { key, stream, body }
    }

    /// Reads the checkpoint of a turn that is executed again.
    pub(super) fn of(turn: &Turn) -> Result<Option<Self>, Failure> {
        let Some(stored) = turn.checkpoint.as_deref() else { return Ok(None) };
        let unreadable = |_| not_again("what was kept of the turn cannot be read");
        serde_json::from_slice(stored).map(Some).map_err(unreadable)
    }

    /// Stores the checkpoint of a turn that may be asked again. If that fails, the turn is sent all the same.
    pub(super) fn store(&self, on_restart: OnRestart) {
        if self.key.is_none() && on_restart == OnRestart::Fail {
            return;
        }
        let stored = serde_json::to_vec(self).map_err(|error| error.to_string());
        let stored = stored.and_then(|data| state::checkpoint(&data).map_err(|error| error.message));
        if let Err(why) = stored {
            warn(&format!("turn not checkpointed; a restart would fail it: {why}"));
        }
    }

    /// Fails unless the turn may be asked again with this body, at the gateway with this URL.
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

/// Fails unless the gateway has been up for longer than this.
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
    has_been_up(&health, ms)
}

fn has_been_up(health: &http::Response, ms: i64) -> Result<(), String> {
    let data: Value = serde_json::from_slice(&health.body).unwrap_or_default();
    // While it starts, it shows the times of the process before it.
    let is_up = matches!(text(&data, "/gateway_state").as_deref(), Some("running" | "degraded"));
    let since = text(&data, "/platforms/api_server/updated_at").filter(|_| is_up);
    let since = since.as_deref().and_then(timestamp::rfc3339);
    let date = health.headers.iter().find(|(name, _)| name == "date");
    let now = date.and_then(|(_, date)| timestamp::http(date));
    match (since, now) {
        (Some(since), Some(now)) if now - since > ms => Ok(()),
        (Some(_), Some(_)) => Err("the gateway was restarted too".into()),
        _ => Err("the gateway does not say since when it is up".into()),
    }
}

fn not_again(why: &str) -> Failure {
    Failure::new(FailureKind::Upstream, format!("interrupted by a restart, and not asked again: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use talaria_guest::Content;
    use talaria_guest::testing::{message, turn};

    use super::*;

    #[test]
    fn a_key_is_the_task_and_the_number_of_the_turn() {
        let mut turn = turn("hello");
        let key = |turn: &Turn, stream, has_session| Sent::new(turn, stream, has_session, b"{}").key;
        assert_eq!(key(&turn, false, true).as_deref(), Some("task-1-1"));
        assert_eq!(key(&turn, true, true), None, "streams ignore it");
        assert_eq!(key(&turn, false, false), None, "other upstreams do not know it");
        turn.history = vec![message([Content::Text("before".into())])];
        assert_eq!(key(&turn, false, true).as_deref(), Some("task-1-2"));
    }

    #[test]
    fn nothing_is_asked_again_that_could_run_twice() {
        let sent = |stream| Sent::new(&turn("hello"), stream, true, b"{}");
        let again = |sent: &Sent, begun: Value, body: &[u8], on_restart| {
            let mut turn = turn("hello");
            turn.metadata = Some(json!({ BEGUN: begun }).to_string());
            sent.again(&turn, body, "http://h/v1", on_restart).map_err(|failure| failure.message)
        };
        for (stream, begun, body, why) in [
            (
                true,
                json!(1),
                &b"{}"[..],
                "its answer was not kept; settings.on_restart = \"retry\" would ask",
            ),
            (false, json!(1), b"[]", "its prompt, its model or its conversation is not the same any more"),
            (false, json!(null), b"{}", "nobody knows how long ago it began"),
            (false, json!(-1), b"{}", "nobody knows how long ago it began"),
            (false, json!(KEPT_MS), b"{}", "it began more than 300 seconds ago"),
        ] {
            let failed = again(&sent(stream), begun.clone(), body, OnRestart::Fail).unwrap_err();
            assert_eq!(failed, format!("interrupted by a restart, and not asked again: {why}"));
            assert_eq!(again(&sent(stream), begun, body, OnRestart::Retry), Ok(()));
        }
    }

    #[test]
    fn a_gateway_proves_since_when_it_is_up() {
        let up = |state: &str, since: &str, date: Option<&str>| {
            let body =
                json!({ "gateway_state": state, "platforms": { "api_server": { "updated_at": since } } });
            let headers = date.map(|date| ("date".to_owned(), date.to_owned())).into_iter().collect();
            has_been_up(&http::Response { status: 200, headers, body: body.to_string().into() }, 60_000)
        };
        let (since, date) = ("2026-11-18T12:00:00+00:00", "Wed, 18 Nov 2026 12:09:24 GMT");
        assert_eq!(up("running", since, Some(date)), Ok(()));
        assert_eq!(up("degraded", since, Some(date)), Ok(()));
        for (state, since, date, why) in [
            ("running", "2026-11-18T12:09:00Z", Some(date), "the gateway was restarted too"),
            ("starting", since, Some(date), "the gateway does not say since when it is up"),
            ("running", "yesterday", Some(date), "the gateway does not say since when it is up"),
            ("running", since, None, "the gateway does not say since when it is up"),
        ] {
            assert_eq!(up(state, since, date), Err(why.to_owned()), "{state} {since} {date:?}");
        }
    }
}
