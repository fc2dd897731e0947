//! Counts turns and pushes where the binary puts the domain and the engine together, so that neither knows of metrics.
//!
//! A turn counts from the moment its executor is asked to the moment it answers, or is dropped: one that its caller
//! cancelled counts as canceled whatever its executor says, one that dies with the host as failed. Turns that wait in a
//! conversation's line have not begun.
//!
//! In a workspace the same turns are counted for its heartbeats.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use talaria_observe::metrics::{Metrics, Push, TurnEnd};
use talaria_turns::{
    Again, Asked, Courier, Executor, Failure, FinalState, Hook, News, NoExecutor, Outcome, Route, Scope,
    Turn, Undelivered,
};
use talaria_workspace::{Beat, Pulse};
use tokio_util::sync::CancellationToken;

/// Something that is counted: the choice of executors, each executor that it gives, the courier of pushes.
pub(crate) struct Metered<T: ?Sized> {
    inner: Arc<T>,
    metrics: Metrics,
    pulse: Option<Arc<Pulse>>,
}

/// A turn that began; its end is counted when it is dropped.
struct Counted<'a> {
    metrics: &'a Metrics,
    executor: &'a str,
    began: Instant,
    cancelled: CancellationToken,
    end: TurnEnd,
}

// === impl Metered ===

impl<T: ?Sized> Metered<T> {
    pub(crate) fn new(inner: Arc<T>, metrics: Metrics) -> Self {
        Self { inner, metrics, pulse: None }
    }

    /// The same, counted for heartbeats too.
    pub(crate) fn with_pulse(self, pulse: Option<Arc<Pulse>>) -> Self {
        Self { pulse, ..self }
    }

    fn wrap(&self, executor: Arc<dyn Executor>) -> Arc<dyn Executor> {
        Arc::new(Metered::new(executor, self.metrics.clone()).with_pulse(self.pulse.clone()))
    }
}

impl<T: Route> Route for Metered<T> {
    fn pick(&self, asked: &Asked<'_>) -> Result<Arc<dyn Executor>, NoExecutor> {
        self.inner.pick(asked).map(|executor| self.wrap(executor))
    }

    fn named(&self, name: &str) -> Option<Arc<dyn Executor>> {
        self.inner.named(name).map(|executor| self.wrap(executor))
    }
}

#[async_trait]
impl Executor for Metered<dyn Executor> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn execute(&self, turn: Turn, scope: Scope) -> Result<Outcome, Failure> {
        let mut counted = Counted::begin(&self.metrics, self.name(), scope.cancelled().clone());
        let mut beat: Option<Beat> = self.pulse.as_ref().map(|pulse| pulse.begin(&turn.text));
        let result = self.inner.execute(turn, scope).await;
        counted.end = match &result {
            Ok(outcome) => match outcome.state {
                FinalState::Completed => TurnEnd::Completed,
                FinalState::InputRequired => TurnEnd::InputRequired,
                FinalState::AuthRequired => TurnEnd::AuthRequired,
                FinalState::Rejected => TurnEnd::Rejected,
            },
            Err(failure) => {
                if let Some(beat) = beat.as_mut().filter(|_| !counted.cancelled.is_cancelled()) {
                    beat.fail(&failure.message);
                }
                TurnEnd::Failed
            }
        };
        result
    }

    async fn cancel(&self, turn: Turn) -> Result<(), Failure> {
        self.inner.cancel(turn).await
    }
}

#[async_trait]
impl<T: Courier> Courier for Metered<T> {
    async fn admits(&self, url: &str) -> Result<(), String> {
        self.inner.admits(url).await
    }

    async fn deliver(&self, hook: &Hook, news: &News) -> Result<(), Undelivered> {
        let result = self.inner.deliver(hook, news).await;
        self.metrics.push(match &result {
            Ok(()) => Push::Delivered,
            Err(Undelivered { again: Again::Later | Again::After(_), .. }) => Push::Failed,
            Err(Undelivered { again: Again::Never, .. }) => Push::Refused,
        });
        result
    }
}

// === impl Counted ===

impl<'a> Counted<'a> {
    fn begin(metrics: &'a Metrics, executor: &'a str, cancelled: CancellationToken) -> Self {
        metrics.turn_started(executor);
        Self { metrics, executor, began: Instant::now(), cancelled, end: TurnEnd::Failed }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let end = if self.cancelled.is_cancelled() { TurnEnd::Canceled } else { self.end };
        self.metrics.turn_ended(self.executor, end, self.began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use talaria_store::Memory;
    use talaria_turns::{ContextId, FailureKind, Message, MessageId, Part, Principal, Role, TaskId};

    use super::*;

    /// Does what the turn's text says.
    struct Obedient;

    #[async_trait]
    impl Executor for Obedient {
        fn name(&self) -> &str {
            "obedient"
        }

        async fn execute(&self, turn: Turn, scope: Scope) -> Result<Outcome, Failure> {
            let state = match turn.text.as_str() {
                "hang" => std::future::pending().await,
                "fail" => return Err(Failure::new(FailureKind::Upstream, "down")),
                "cancelled" => {
                    scope.cancelled().cancelled().await;
                    return Err(Failure::new(FailureKind::Cancelled, "cancelled"));
                }
                "ask" => FinalState::InputRequired,
                "login" => FinalState::AuthRequired,
                "refuse" => FinalState::Rejected,
                _ => FinalState::Completed,
            };
            Ok(Outcome { state, parts: Vec::new(), usage: None, metadata: None })
        }

        async fn cancel(&self, _: Turn) -> Result<(), Failure> {
            Ok(())
        }
    }

    impl Route for Obedient {
        fn pick(&self, _: &Asked<'_>) -> Result<Arc<dyn Executor>, NoExecutor> {
            Ok(Arc::new(Self))
        }

        fn named(&self, name: &str) -> Option<Arc<dyn Executor>> {
            (name == "obedient").then(|| Arc::new(Self) as _)
        }
    }

    fn turn(text: &str) -> Turn {
        let message = Message {
            id: MessageId::fresh(),
            role: Role::User,
            parts: vec![Part::text(text)],
            metadata: None,
            extensions: Vec::new(),
            reference_task_ids: Vec::new(),
        };
        Turn {
            task: TaskId::fresh(),
            context: ContextId::fresh(),
            message,
            text: text.into(),
            history: Vec::new(),
            principal: Principal::anyone(),
            streaming: false,
            async_delivery: false,
            metadata: None,
            checkpoint: None,
        }
    }

    fn scope(cancelled: &CancellationToken) -> Scope {
        let store = Arc::new(Memory::new(1));
        Scope::new(1, cancelled.clone(), store, Principal::anyone(), ContextId::fresh(), "obedient").0
    }

    #[tokio::test]
    async fn every_turn_that_began_has_one_end() {
        let metrics = Metrics::new("0");
        let executor = Metered::new(Arc::new(Obedient), metrics.clone()).named("obedient").unwrap();
        let cancelled = CancellationToken::new();
        for text in ["hi", "hi", "ask", "login", "refuse", "fail"] {
            let _ = executor.execute(turn(text), scope(&cancelled)).await;
        }
        // Dropped while it waits, as when the host stops.
        assert!(executor.execute(turn("hang"), scope(&cancelled)).now_or_never().is_none());
        cancelled.cancel();
        let _ = executor.execute(turn("cancelled"), scope(&cancelled)).await;
        assert!(executor.execute(turn("hang"), scope(&cancelled)).now_or_never().is_none());

        let text = metrics.text();
        for (state, count) in [
            ("completed", 2),
            ("input-required", 1),
            ("auth-required", 1),
            ("rejected", 1),
            ("failed", 2),
            ("canceled", 2),
        ] {
            let line =
                format!("talaria_turns_ended_total{{executor=\"obedient\",state=\"{state}\"}} {count}");
            assert!(text.lines().any(|said| said == line), "{line} is not in:\n{text}");
        }
        assert!(text.contains("talaria_turns_started_total{executor=\"obedient\"} 9"), "{text}");
        assert!(Metered::new(Arc::new(Obedient), metrics).named("nobody").is_none());
    }
}
