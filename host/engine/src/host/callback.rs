//! The import `callback`: a turn announces a reply that arrives out of band, and waits for it.
//!
//! The mailbox receives the replies. This module checks the grant and the names, and ends a wait at its timeout or when
//! the turn is cancelled.

use std::sync::Arc;
use std::time::Duration;

use talaria_egress::DenialKind;
use talaria_turns::{Awaited, CallbackError, Callbacks, Expectation, StepKind};
use wasmtime::Result;
use wasmtime::component::Resource;

use super::{Ctx, unless_cancelled};
use crate::contract::bindings::talaria::executor::callback as wit;
use crate::size::{ENTRY, Size};

/// An expected reply. Dropping it withdraws the expectation.
#[expect(unreachable_pub, reason = "the generated bindings export it again")]
pub struct Pending(Box<dyn Awaited>);

/// The size of the longest message id and of the longest chat name, enough for several of our own ids joined.
const MAX_NAME: usize = 1_024;

fn rejected(kind: wit::ErrorKind, message: impl Into<String>) -> wit::Error {
    wit::Error { kind, message: message.into() }
}

fn cancelled() -> wit::Error {
    rejected(wit::ErrorKind::Cancelled, "the turn was cancelled")
}

fn error_of(error: &CallbackError) -> wit::Error {
    let kind = match error {
        CallbackError::Duplicate(_) => wit::ErrorKind::Duplicate,
        CallbackError::ChatBusy(_) => wit::ErrorKind::TimedOut,
        CallbackError::Closing => wit::ErrorKind::Cancelled,
        CallbackError::Full(_) => wit::ErrorKind::Unsupported,
        CallbackError::Store(error) => {
            tracing::warn!(%error, "expected reply not stored");
            return rejected(wit::ErrorKind::Unsupported, "the store did not take it");
        }
    };
    rejected(kind, error.to_string())
}

fn duration(timeout_ms: Option<u32>) -> Option<Duration> {
    timeout_ms.map(|ms| Duration::from_millis(ms.into()))
}

impl Ctx {
    fn callbacks(&self) -> Result<&Arc<dyn Callbacks>, wit::Error> {
        let Some(shared) = self.shared() else {
            return Err(rejected(wit::ErrorKind::Unsupported, "only a turn can expect a reply"));
        };
        shared.callbacks.as_ref().ok_or_else(|| {
            rejected(
                wit::ErrorKind::Denied,
                shared.access.deny(DenialKind::Callback, "expect replies out of band", "callbacks = true"),
            )
        })
    }

    async fn announce(
        &mut self,
        message: String,
        chat: Option<String>,
        within: Option<Duration>,
    ) -> Result<Pending, wit::Error> {
        let callbacks = Arc::clone(self.callbacks()?);
        for name in [Some(&message), chat.as_ref()].into_iter().flatten() {
            if name.is_empty() || name.len() > MAX_NAME {
                let why = format!("a message's id, and a chat, has 1 to {MAX_NAME} bytes");
                return Err(rejected(wit::ErrorKind::Unsupported, why));
            }
        }
        let size = Size::of(ENTRY).text(&message).option(chat.as_ref());
        self.charge(0, size).map_err(|why| rejected(wit::ErrorKind::Denied, why))?;
        let (Some(task), Some(shared)) = (self.task(), self.shared()) else {
            return Err(rejected(wit::ErrorKind::Unsupported, "only a turn can expect a reply"));
        };
        let expected = Expectation {
            task,
            executor: shared.name.as_str().into(),
            message: message.into(),
            chat: chat.map(Into::into),
            within,
        };
        match unless_cancelled(self.scope(), callbacks.expect(expected)).await {
            Some(Ok(awaited)) => Ok(Pending(awaited)),
            Some(Err(error)) => Err(error_of(&error)),
            None => Err(cancelled()),
        }
    }
}

impl wit::Host for Ctx {
    async fn expect(&mut self, message_id: String) -> Result<Result<Resource<Pending>, wit::Error>> {
        match self.announce(message_id, None, None).await {
            Ok(pending) => Ok(Ok(self.table.push(pending)?)),
            Err(error) => Ok(Err(error)),
        }
    }

    async fn expect_in(
        &mut self,
        chat: String,
        message_id: String,
        timeout_ms: Option<u32>,
    ) -> Result<Result<Resource<Pending>, wit::Error>> {
        match self.announce(message_id, Some(chat), duration(timeout_ms)).await {
            Ok(pending) => Ok(Ok(self.table.push(pending)?)),
            Err(error) => Ok(Err(error)),
        }
    }
}

impl wit::HostPending for Ctx {
    async fn reply_url(&mut self, pending: Resource<Pending>) -> Result<String> {
        Ok(self.table.get(&pending)?.0.reply_url().to_owned())
    }

    async fn overtakes(&mut self, pending: Resource<Pending>) -> Result<bool> {
        Ok(self.table.get(&pending)?.0.overtakes())
    }

    async fn wait(
        &mut self,
        pending: Resource<Pending>,
        timeout_ms: Option<u32>,
    ) -> Result<Result<wit::Delivery, wit::Error>> {
        let scope = self.scope().cloned();
        let step = self.timeline().map(|timeline| timeline.step(StepKind::Callback, "callback"));
        let next = self.table.get_mut(&pending)?.0.next();
        let next = async {
            match duration(timeout_ms) {
                Some(within) => tokio::time::timeout(within, next).await.ok(),
                None => Some(next.await),
            }
        };
        let failed = |error: wit::Error| {
            if let Some(step) = &step {
                step.failed(&error.message, error.kind == wit::ErrorKind::Denied);
            }
            Err(error)
        };
        Ok(match unless_cancelled(scope.as_ref(), next).await {
            Some(Some(Ok(delivery))) => {
                if let Some(step) = &step {
                    step.note(|step| step.received = delivery.body.len());
                    step.trace(|trace, _| trace.link = delivery.trace);
                }
                Ok(wit::Delivery { content_type: delivery.content_type, body: delivery.body })
            }
            Some(Some(Err(error))) => failed(error_of(&error)),
            Some(None) => failed(rejected(wit::ErrorKind::TimedOut, "nothing came in time")),
            None => failed(cancelled()),
        })
    }

    async fn drop(&mut self, pending: Resource<Pending>) -> Result<()> {
        self.table.delete(pending)?;
        Ok(())
    }
}
