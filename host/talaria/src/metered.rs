//! Counts what happens where the binary composes the domain, so that the domain knows no metrics.
//!
//! Here: turns, their outbound calls, and push notifications. Beside it: requests, executors, the store, and the numbers that
//! the parts count themselves.
//!
//! A turn counts from the call of its executor until the executor returns or the call is dropped. A turn that its caller
//! cancelled counts as canceled, whatever its executor returned; one that ends with the host counts as failed. A turn that
//! waits in the lane of its context has not begun.

mod executors;
mod requests;
mod store;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use talaria_observe::metrics::Metrics;
use talaria_observe::metrics::egress::{Answer, Call};
use talaria_observe::metrics::push::Push;
use talaria_observe::metrics::turns::{self, InInstance, Spent};
use talaria_turns::{
    Facts, FinalState, PushConfig, PushFailure, PushNotification, PushSender, Retry, Step, StepKind,
    Timeline, Turn, TurnEnd, TurnObserver, TurnState,
};

pub(crate) use self::executors::ExecutorMetrics;
pub(crate) use self::requests::RequestMetrics;
pub(crate) use self::store::StoreMetrics;
pub(crate) use self::watched::Watched;

/// Counts turns.
pub(crate) struct TurnMetrics(pub(crate) Metrics);

/// Counts the push notifications that a sender delivers.
pub(crate) struct Metered<T> {
    inner: Arc<T>,
    metrics: Metrics,
}

// === impl TurnMetrics ===

impl TurnObserver for TurnMetrics {
    fn began(&self, executor: &str, _: &Turn) {
        self.0.turns.started(executor);
    }

    fn ended(&self, executor: &str, _: &Turn, end: TurnEnd<'_>, took: Duration) {
        let end = match end {
            TurnEnd::Outcome(outcome) => match outcome.state {
                FinalState::Completed => turns::TurnEnd::Completed,
                FinalState::InputRequired => turns::TurnEnd::InputRequired,
                FinalState::AuthRequired => turns::TurnEnd::AuthRequired,
                FinalState::Rejected => turns::TurnEnd::Rejected,
            },
            TurnEnd::Failure(_) | TurnEnd::Dropped => turns::TurnEnd::Failed,
            TurnEnd::Cancelled => turns::TurnEnd::Canceled,
        };
        self.0.turns.ended(executor, end, took);
    }

    fn step_ended(&self, timeline: &Arc<Timeline>, step: &Step) {
        if step.kind != StepKind::Call {
            return;
        }
        let answer = match (step.denied, step.status) {
            (true, _) => Answer::Denied,
            (false, Some(_)) if step.error.is_some() => Answer::Error,
            (false, Some(status)) => Answer::of_status(status),
            (false, None) => Answer::Error,
        };
        let call =
            Call { answer, took: step.took.unwrap_or_default(), sent: step.sent, received: step.received };
        self.0.egress.called(&timeline.executor, &call);
    }

    fn closed(&self, timeline: &Arc<Timeline>) {
        self.0.turns.closed(&timeline.executor, &timeline.read(spent));
    }
}

fn spent(facts: &Facts) -> Spent {
    let instance = facts.component.as_ref().map(|_| InInstance {
        waited: facts.waited,
        guest: facts.guest,
        upstream: facts.upstream(),
        memory: facts.memory,
    });
    let failure = || turns::Failure::named(facts.failure.unwrap_or_default());
    Spent {
        lane: facts.queued,
        instance,
        first_text: facts.first_text,
        tokens: facts.usage.as_ref().map(|usage| (usage.input_tokens.into(), usage.output_tokens.into())),
        failure: (facts.state == TurnState::Failed).then(failure),
    }
}

// === impl Metered ===

impl<T> Metered<T> {
    pub(crate) fn new(inner: Arc<T>, metrics: Metrics) -> Self {
        Self { inner, metrics }
    }
}

#[async_trait]
impl<T: PushSender> PushSender for Metered<T> {
    async fn admits(&self, url: &str) -> Result<(), String> {
        self.inner.admits(url).await
    }

    async fn deliver(&self, config: &PushConfig, notification: &PushNotification) -> Result<(), PushFailure> {
        let result = self.inner.deliver(config, notification).await;
        self.metrics.push.tried(match &result {
            Ok(()) => Push::Delivered,
            Err(PushFailure { retry: Retry::Later | Retry::After(_), .. }) => Push::Failed,
            Err(PushFailure { retry: Retry::Never, .. }) => Push::Refused,
        });
        result
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use talaria_observe::metrics::Format;
    use talaria_store::Memory;
    use talaria_turns::{
        Executor, Failure, FailureKind, Incoming, Limits, Message, NoExecutor, Outcome, Part, Principal,
        Role, Route, RouteQuery, Scope, Turns, message_text,
    };

    use super::*;

    /// Does what the turn's text says.
    struct Obedient;

    #[async_trait]
    impl Executor for Obedient {
        fn name(&self) -> &str {
            "obedient"
        }

        async fn execute(&self, turn: Turn, scope: Scope) -> Result<Outcome, Failure> {
            let state = match message_text(&turn.message.parts).as_str() {
                "hang" => {
                    scope.cancelled().cancelled().await;
                    return Err(Failure::new(FailureKind::Cancelled, "cancelled"));
                }
                "panic" => panic!("as told"),
                "fail" => return Err(Failure::new(FailureKind::Upstream, "down")),
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
        fn pick(&self, asked: &RouteQuery<'_>) -> Result<Arc<dyn Executor>, NoExecutor> {
            if message_text(&asked.message.parts) == "closed" {
                let failure = Failure::new(FailureKind::Busy, "out of service");
                return Err(NoExecutor::OutOfService { executor: "obedient".into(), failure });
            }
            Ok(Arc::new(Self))
        }

        fn named(&self, _: &str) -> Option<Arc<dyn Executor>> {
            None
        }
    }

    /// A message of somebody without a name.
    pub(crate) fn incoming(text: &str) -> Incoming {
        Incoming {
            principal: Principal::anyone(),
            message: Message { role: Role::User, ..Message::agent(vec![Part::text(text)]) }.into(),
            task: None,
            context: None,
            streaming: false,
            async_delivery: false,
            metadata: None,
            push: None,
            trace: None,
        }
    }

    #[tokio::test]
    async fn every_turn_that_began_has_one_end() {
        let metrics = Metrics::new("0");
        let turns = Turns::builder(Arc::new(Memory::new(100)), Arc::new(Obedient), Limits::default())
            .observer(Arc::new(TurnMetrics(metrics.clone())))
            .build();
        for text in ["hi", "hi", "ask", "login", "refuse", "fail", "panic", "closed"] {
            turns.send(incoming(text)).await.unwrap().settled().await;
        }
        let cancelled = turns.send(incoming("hang")).await.unwrap();
        while !metrics
            .text(Format::Prometheus)
            .contains("talaria_turns_started_total{executor=\"obedient\"} 9")
        {
            tokio::task::yield_now().await;
        }
        turns.cancel(&Principal::anyone(), &cancelled.task.id).await.unwrap();
        let _stopped = turns.send(incoming("hang")).await.unwrap();
        while !metrics
            .text(Format::Prometheus)
            .contains("talaria_turns_started_total{executor=\"obedient\"} 10")
        {
            tokio::task::yield_now().await;
        }
        turns.drain(Duration::ZERO).await;

        let text = metrics.text(Format::Prometheus);
        for (state, count) in [
            ("completed", 2),
            ("input-required", 1),
            ("auth-required", 1),
            ("rejected", 1),
            ("failed", 4),
            ("canceled", 1),
        ] {
            let line =
                format!("talaria_turns_ended_total{{executor=\"obedient\",state=\"{state}\"}} {count}");
            assert!(text.lines().any(|said| said == line), "{line} is not in:\n{text}");
        }
        assert!(text.contains("talaria_turns_started_total{executor=\"obedient\"} 10"), "{text}");
    }
}
