//! What an executor's upstream remembers, where its component shows it.
//!
//! A reading is a call like a probe: an instance of its own, the executor's grant, no turn. It is bounded by [`READ`], by what a
//! guest may hand over in a call, and by the number of lines that is asked for. Whatever comes back is scrubbed.

use std::sync::Arc;
use std::time::Duration;

use talaria_turns::{Failure, FailureKind, Metadata, Timestamp};

use crate::contract::transcript::exports::talaria::executor::transcript as wit;
use crate::convert;
use crate::executor::{Executor, Fault, call};
use crate::host::{Ctx, Purpose};
use crate::limits::Limits;

/// How long a reading may take: the platform's proxy waits for ten seconds.
const READ: Duration = Duration::from_secs(8);

/// Something that was said or done, as the upstream has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Greater than those of all lines before it.
    pub number: u32,
    /// Who, or what.
    pub kind: String,
    /// When.
    pub at: Option<Timestamp>,
    /// The upstream's name for the conversation.
    pub session: String,
    /// What was said.
    pub text: String,
    /// Whatever else.
    pub metadata: Option<Metadata>,
}

/// Some of the lines, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The lines.
    pub lines: Vec<Line>,
    /// Whether there are more already.
    pub more: bool,
}

impl Executor {
    /// At most `limit` lines from the number `since` on.
    ///
    /// # Errors
    /// A [`Failure`] that says why not; [`FailureKind::Internal`] also where the component has no transcript.
    pub async fn transcript(&self, since: u32, limit: u32) -> Result<Page, Failure> {
        let Some(pre) = &self.component.transcript else {
            return Err(Failure::new(FailureKind::Internal, "the component has no transcript"));
        };
        let limits = Limits { deadline: READ, ..self.shared.limits };
        let query = wit::Query { settings: self.shared.settings_text.clone(), since, limit, metadata: None };
        let ctx = Ctx::new(Purpose::Aside(Arc::clone(&self.shared)), &limits, self.places());
        let result = Box::pin(call(pre.engine(), ctx, READ, async |store| {
            let instance = pre.instantiate_async(&mut *store).await?;
            instance.talaria_executor_transcript().call_read(store, &query).await
        }))
        .await;
        match result {
            Ok(Ok(page)) => self.page(page, since, limit).map_err(|why| {
                self.blame(Fault::Answer);
                Failure::new(FailureKind::Internal, format!("the executor's transcript is malformed: {why}"))
            }),
            Ok(Err(failure)) => Err(self.review(failure)),
            Err(end) => Err(self.ended(&end)),
        }
    }

    fn page(&self, page: wit::Page, since: u32, limit: u32) -> Result<Page, String> {
        let sorted = page.lines.is_sorted_by(|before, after| before.number < after.number);
        let wanted = page.lines.first().is_none_or(|first| first.number >= since);
        if !sorted || !wanted || page.lines.len() > limit as usize {
            return Err("its lines are not those that were asked for, in their order".into());
        }
        let redactor = &self.shared.redactor;
        let line = |line: wit::Line| {
            Ok(Line {
                number: line.number,
                kind: redactor.redact(&line.kind).into_owned(),
                at: line.at_ms.and_then(moment),
                session: redactor.redact(&line.session).into_owned(),
                text: redactor.redact(&line.text).into_owned(),
                metadata: convert::metadata("line.metadata", line.metadata, redactor)?,
            })
        };
        let lines = page.lines.into_iter().map(line).collect::<Result<_, String>>()?;
        Ok(Page { lines, more: page.more })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is bounded before")]
fn moment(millis: f64) -> Option<Timestamp> {
    (0.0..=253_402_300_799_999.0).contains(&millis).then(|| Timestamp::from_millis(millis as u64))
}
