//! Sends push notifications of `turns` to webhooks, encoded by `a2a`, through `egress`.
//!
//! This module decides which failures are retried. A receiver that answers with an error may be in the middle of a
//! deployment, so that is retried; a receiver that is gone, or whose address may not be called, is not.

use async_trait::async_trait;
use talaria_a2a::Notification;
use talaria_egress::{ErrorKind, Webhooks};
use talaria_turns::{Again, Courier, Hook, News, Undelivered};

/// Posts to webhooks.
pub(crate) struct Post(pub(crate) Webhooks);

#[async_trait]
impl Courier for Post {
    async fn admits(&self, url: &str) -> Result<(), String> {
        self.0.check(url).await.map_err(|error| error.message().to_owned())
    }

    async fn deliver(&self, hook: &Hook, news: &News) -> Result<(), Undelivered> {
        let Notification { headers, body } = Notification::new(hook, news)
            .map_err(|error| Undelivered { why: error.to_string(), again: Again::Never })?;
        match self.0.post(&hook.url, headers, body).await {
            Ok(answer) if answer.is_success() => Ok(()),
            Ok(answer) => Err(Undelivered {
                why: format!("the webhook answered {}", answer.status),
                again: match (answer.status, answer.retry_after) {
                    // Gone: the receiver asks us to stop.
                    (410, _) => Again::Never,
                    (_, Some(after)) => Again::After(after),
                    (_, None) => Again::Later,
                },
            }),
            Err(error) => Err(Undelivered {
                why: error.message().to_owned(),
                again: match error.kind() {
                    ErrorKind::Denied | ErrorKind::InvalidRequest => Again::Never,
                    _ => Again::Later,
                },
            }),
        }
    }
}
