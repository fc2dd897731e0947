//! The transcript of an executor's upstream, for components that export one.
//!
//! A read is a call like a probe: it gets its own instance and the executor's grant, and it belongs to no turn. It is
//! limited by [`READ`], by the bytes that a guest may pass in one call, by the requested number of lines, and by a budget
//! as large as that of a turn. Everything in the result is scrubbed.

use std::sync::Arc;
use std::time::Duration;

use talaria_redact::{Replies, ReplyRedactor};
use talaria_turns::{Failure, FailureKind, Metadata, Timestamp};

use crate::contract::transcript::exports::talaria::executor::transcript as wit;
use crate::convert;
use crate::executor::{Executor, Fault, call};
use crate::host::Purpose;
use crate::limits::Limits;

/// The deadline of a read, below the ten seconds for which a proxy in front of the host waits.
const READ: Duration = Duration::from_secs(8);

/// One entry of a transcript: a message or an action, as the upstream recorded it.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The number of the line. Numbers increase along the transcript.
    pub number: u32,
    /// The author: `user`, `assistant`, `tool`, `system` or the upstream's own word.
    pub kind: String,
    /// The time of the entry, if the upstream has one.
    pub at: Option<Timestamp>,
    /// The upstream's id of the session.
    pub session: String,
    /// The text of the entry.
    pub text: String,
    /// Further data from the upstream.
    pub metadata: Option<Metadata>,
}

/// A range of a transcript, oldest line first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The lines.
    pub lines: Vec<Line>,
    /// Whether the upstream already has more lines.
    pub more: bool,
}

impl Executor {
    /// Reads at most `limit` lines with the number `since` or a greater one. If `since` is 0, reads the latest lines.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the read fails; [`FailureKind::Internal`] also if the component has no transcript.
    pub async fn transcript(&self, since: u32, limit: u32) -> Result<Page, Failure> {
        let Some(pre) = &self.component.transcript else {
            return Err(Failure::new(FailureKind::Internal, "the component has no transcript"));
        };
        let limits = Limits { deadline: READ, ..self.shared.limits };
        let query = wit::Query { settings: self.shared.settings_text.clone(), since, limit, metadata: None };
        let ctx = self.ctx(Purpose::Probe(Arc::clone(&self.shared)), &limits);
        let result = Box::pin(call(pre.engine(), ctx, READ, async |store| {
            let instance = pre.instantiate_async(&mut *store).await?;
            let result = instance.talaria_executor_transcript().call_read(&mut *store, &query).await?;
            let ctx = store.data_mut();
            Ok(result
                .map(|page| ctx.page(page, Wanted { since, limit }))
                .map_err(|failure| ctx.failure(failure)))
        }))
        .await;
        match result {
            Ok(Ok(page)) => page.map_err(|why| {
                self.blame(Fault::Answer, None);
                Failure::new(FailureKind::Internal, why)
            }),
            Ok(Err(failure)) => Err(failure),
            Err(end) => Err(self.ended(&end, None)),
        }
    }
}

/// The lines that were asked for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    since: u32,
    limit: u32,
}

impl Wanted {
    pub(crate) fn page(self, page: wit::Page, replies: &ReplyRedactor) -> Result<Page, String> {
        let Self { since, limit } = self;
        let sorted = page.lines.is_sorted_by(|before, after| before.number < after.number);
        let wanted = page.lines.first().is_none_or(|first| first.number >= since);
        if !sorted || !wanted || page.lines.len() > limit as usize {
            return Err("its lines are not those that were asked for, in their order".into());
        }
        // A transcript leaves the machine, and nobody needs it to the letter.
        let replies = ReplyRedactor::new(replies.redactor().clone(), Replies::Shapes);
        let line = |line: wit::Line| {
            Ok(Line {
                number: line.number,
                kind: replies.text(line.kind),
                at: line.at_ms.and_then(timestamp),
                session: replies.text(line.session),
                text: replies.text(line.text),
                metadata: convert::metadata("line.metadata", line.metadata, &replies)?,
            })
        };
        let lines = page.lines.into_iter().map(line).collect::<Result<_, String>>()?;
        Ok(Page { lines, more: page.more })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked first")]
fn timestamp(millis: f64) -> Option<Timestamp> {
    (0.0..=253_402_300_799_999.0).contains(&millis).then(|| Timestamp::from_millis(millis as u64))
}
