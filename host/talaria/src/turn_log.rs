//! The log line of every turn that has ended: who asked, who answered, how it went, and where its time went.
//!
//! It is at `info`, a failure at `warn`, with the target `turn`; it holds no content of messages. A failure has the reason
//! that the caller read, and of the upstream's last error the status and the beginning of the body, scrubbed like every
//! line. Times are in milliseconds and count from the acceptance of the message.

use std::sync::Arc;
use std::time::Duration;

use talaria_turns::{Timeline, TurnObserver, TurnState};
use tracing::{enabled, info, warn};

/// Logs the end of every turn.
pub(crate) struct TurnLog;

impl TurnObserver for TurnLog {
    fn closed(&self, timeline: &Arc<Timeline>) {
        if !enabled!(target: "turn", tracing::Level::WARN) {
            return;
        }
        let Timeline { task, context, executor, caller, .. } = &**timeline;
        timeline.read(|facts| {
            let millis = |time: Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
            let version = facts.component.as_ref().map(|component| &*component.version);
            let state = facts.state.as_str();
            let queued = facts.queued.map(|queued| millis(queued + facts.waited));
            let (guest, upstream) = (millis(facts.guest), millis(facts.upstream()));
            let first_text = facts.first_text.map(millis);
            let total = millis(facts.ended.unwrap_or_default());
            let tokens = facts.usage.as_ref();
            let (tokens_in, tokens_out) =
                (tokens.map(|usage| usage.input_tokens), tokens.map(|usage| usage.output_tokens));
            let (caller, bytes) = (caller.name(), facts.reply_bytes);
            if facts.state == TurnState::Failed {
                let upstream_status = facts.upstream_error.as_ref().map(|error| error.status);
                let upstream_body = facts.upstream_error.as_ref().map(|error| &*error.body);
                let (failure, reason) = (facts.failure, facts.reason.as_deref());
                warn!(
                    target: "turn",
                    %task, %context, caller, executor = &**executor, version, state, queued, guest, upstream,
                    first_text, total, tokens_in, tokens_out, bytes, failure, reason, upstream_status, upstream_body,
                    "turn failed"
                );
            } else {
                info!(
                    target: "turn",
                    %task, %context, caller, executor = &**executor, version, state, queued, guest, upstream,
                    first_text, total, tokens_in, tokens_out, bytes,
                    "turn ended"
                );
            }
        });
    }
}
