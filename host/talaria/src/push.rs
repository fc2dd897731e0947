//! Sends push notifications of `turns` to webhooks, encoded by `a2a`, through `egress`.
//!
//! This module decides which failures are retried. A receiver that answers with an error may be in the middle of a
//! deployment, so that is retried; a receiver that is gone, or whose address may not be called, is not.

use std::time::SystemTime;

use async_trait::async_trait;
use http::HeaderName;
use secrecy::SecretString;
use talaria_a2a::Notification;
use talaria_egress::{ErrorKind, Webhooks};
use talaria_telemetry::{Push, Telemetry};
use talaria_turns::{PushConfig, PushFailure, PushNotification, PushSender, Retry, SpanId};

/// Posts to webhooks.
pub(crate) struct Post {
    pub(crate) webhooks: Webhooks,
    /// Records deliveries; `None` if traces are off.
    pub(crate) telemetry: Option<Telemetry>,
}

const PARENT: HeaderName = HeaderName::from_static("traceparent");
const STATE: HeaderName = HeaderName::from_static("tracestate");

#[async_trait]
impl PushSender for Post {
    async fn admits(&self, url: &str) -> Result<(), String> {
        self.webhooks.check(url).await.map_err(|error| error.message().to_owned())
    }

    async fn deliver(&self, config: &PushConfig, notification: &PushNotification) -> Result<(), PushFailure> {
        let (PushNotification::Event(task, _) | PushNotification::Task(task)) = notification;
        let Some((telemetry, trace)) = self.telemetry.as_ref().zip(task.trace.as_ref()) else {
            return self.post(config, notification, Vec::new()).await;
        };
        let (span, began) = (SpanId::fresh(), SystemTime::now());
        let mut headers = vec![(PARENT, trace.traceparent(span).into())];
        headers.extend(trace.state.as_deref().map(|state| (STATE, state.into())));
        let posted = self.post(config, notification, headers).await;
        let error = posted.as_ref().err().map(|failure| failure.why.as_str());
        telemetry.delivered(trace, span, &Push { task: &task.id, url: &config.url, error, began });
        posted
    }
}

impl Post {
    async fn post(
        &self,
        config: &PushConfig,
        notification: &PushNotification,
        more: Vec<(HeaderName, SecretString)>,
    ) -> Result<(), PushFailure> {
        let Notification { mut headers, body } = Notification::new(config, notification)
            .map_err(|error| PushFailure { why: error.to_string(), retry: Retry::Never })?;
        headers.extend(more);
        match self.webhooks.post(&config.url, headers, body).await {
            Ok(answer) if answer.is_success() => Ok(()),
            Ok(answer) => Err(PushFailure {
                why: format!("the webhook answered {}", answer.status),
                retry: match (answer.status, answer.retry_after) {
                    // Gone: the receiver asks us to stop.
                    (410, _) => Retry::Never,
                    (_, Some(after)) => Retry::After(after),
                    (_, None) => Retry::Later,
                },
            }),
            Err(error) => Err(PushFailure {
                why: error.message().to_owned(),
                retry: match error.kind() {
                    ErrorKind::Denied | ErrorKind::InvalidRequest => Retry::Never,
                    _ => Retry::Later,
                },
            }),
        }
    }
}
