//! The result of a call: charged to the budget like everything that the guest put out before, converted and redacted.

use talaria_turns::{Failure, Outcome};
use tracing::debug;

use super::Ctx;
use super::log::MAX_LINE;
use crate::contract::bindings::talaria::executor::types as wit;
use crate::contract::transcript::exports::talaria::executor::transcript;
use crate::convert;
use crate::size::{ENTRY, ITEM, Size};
use crate::transcript::{Page, Wanted};

impl Ctx {
    /// Converts the outcome of a turn. The error says what is wrong with it.
    pub(crate) fn outcome(&mut self, outcome: wit::Outcome) -> Result<Outcome, String> {
        let charged = self.charge_result(Size::outcome(&outcome));
        charged.map_err(|why| format!("the executor's answer is too large: {why}"))?;
        let converted = self.shared().map(|shared| convert::outcome(outcome, &shared.replies));
        let converted = converted.unwrap_or_else(|| Err("it has no executor".into()));
        converted.map_err(|why| format!("the executor's answer is malformed: {why}"))
    }

    /// Converts a failure that the guest reported into one for the caller. Its details go to the log only.
    pub(crate) fn failure(&mut self, failure: wit::Failure) -> Failure {
        let kind = convert::failure_kind(failure.kind);
        let charged = self.charge_result(Size::of(ENTRY).text(&failure.message));
        let message = match (charged, self.shared()) {
            (Ok(()), Some(shared)) => shared.replies.error(failure.message),
            _ => "the executor failed, with a text that is too large to show".into(),
        };
        if let (Some(details), Some(shared)) = (&failure.details, self.shared()) {
            let details = self.for_log(details, MAX_LINE);
            debug!(executor = shared.name, details, "failure reported by the guest");
        }
        Failure { kind, message, retryable: failure.retryable }
    }

    /// Converts a page of a transcript. The error says what is wrong with it.
    pub(crate) fn page(&mut self, page: transcript::Page, wanted: Wanted) -> Result<Page, String> {
        let size = page.lines.iter().fold(Size::of(ENTRY), |size, line| {
            size.fixed(ITEM)
                .text(&line.kind)
                .text(&line.session)
                .text(&line.text)
                .json(line.metadata.as_ref())
        });
        let charged = self.charge_result(size);
        charged.map_err(|why| format!("the executor's transcript is too large: {why}"))?;
        let converted = self.shared().map(|shared| wanted.page(page, &shared.replies));
        let converted = converted.unwrap_or_else(|| Err("it has no executor".into()));
        converted.map_err(|why| format!("the executor's transcript is malformed: {why}"))
    }
}
