//! Push notifications that were given up, on the admin server: the list, the reasons, and a retry.
//!
//! Lists at most [`LISTED`], the newest first. The query and the credentials of a webhook are not shown: they belong to its
//! owner.

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};
use talaria_turns::{PushError, StoreError, StoredPushConfig, Turns};

/// As many as an operator reads.
const LISTED: usize = 1000;

/// Why there was no retry.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotRetried {
    #[error("no push of that task with that id was given up; /push/undelivered lists them")]
    NotFound,
    #[error(transparent)]
    Failed(#[from] PushError),
}

pub(super) async fn list(turns: &Turns) -> Result<Value, StoreError> {
    let given_up = turns.given_up(LISTED).await?;
    Ok(json!({ "undelivered": given_up.iter().map(entry).collect::<Vec<_>>() }))
}

/// Retries one from its cursor. Both names are percent-encoded, as in the path.
pub(super) async fn retry(turns: &Turns, task: &str, id: &str) -> Result<(), NotRetried> {
    let decoded = |text| percent_decode_str(text).decode_utf8().map_err(|_| NotRetried::NotFound);
    let (task, id) = (decoded(task)?, decoded(id)?);
    let given_up = turns.given_up(LISTED).await.map_err(PushError::from)?;
    let found = given_up
        .into_iter()
        .find(|stored| stored.key.task.as_str() == task && stored.config.id.as_str() == id)
        .ok_or(NotRetried::NotFound)?;
    Ok(turns.retry_push_config(&found.key, &found.config.id).await?)
}

fn entry(stored: &StoredPushConfig) -> Value {
    let StoredPushConfig { key, config, given_up, .. } = stored;
    let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    json!({
        "task": key.task.as_str(),
        "id": config.id.as_str(),
        "owner": key.owner.name(),
        "url": config.url.split('?').next(),
        "since": given_up.as_ref().map(|given_up| given_up.at.to_string()),
        "tries": given_up.as_ref().map(|given_up| given_up.tries),
        "why": given_up.as_ref().map(|given_up| given_up.why.as_str()),
        "retry": format!(
            "/push/undelivered/{}/{}/retry",
            encoded(key.task.as_str()),
            encoded(config.id.as_str())
        ),
    })
}
