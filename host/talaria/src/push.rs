//! Sends push notifications of `turns` to webhooks, encoded by `a2a`, through `egress`.
//!
//! This module decides which failures are retried. A receiver that answers with an error may be in the middle of a
//! deployment, so that is retried; a receiver that is gone, or whose address may not be called, is not.

use async_trait::async_trait;
use talaria_a2a::Notification;
use talaria_egress::{ErrorKind, Webhooks};
use talaria_turns::{PushConfig, PushFailure, PushNotification, PushSender, Retry};

/// Posts to webhooks.
pub(crate) struct Post(pub(crate) Webhooks);

#[async_trait]
impl PushSender for Post {
    async fn admits(&self, url: &str) -> Result<(), String> {
        self.0.check(url).await.map_err(|error| error.message().to_owned())
    }

    async fn deliver(&self, config: &PushConfig, notification: &PushNotification) -> Result<(), PushFailure> {
        let Notification { headers, body } = Notification::new(config, notification)
            .map_err(|error| PushFailure { why: error.to_string(), retry: Retry::Never })?;
        match self.0.post(&config.url, headers, body).await {
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
