//! Pushes that were given up, for the operator: which, why, and once more.
//!
//! At most [`LISTED`], the newest first; what is older is tried again by its owner, or when the newer ones are gone. A
//! webhook's query and its credentials are not shown: they are its owner's.

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};
use talaria_turns::{HookError, Hooked, StoreError, Turns};

/// As many as an operator reads.
const LISTED: usize = 1000;

/// Why nothing is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotRetried {
    #[error("no push of that task with that id was given up; /push/undelivered lists them")]
    NotFound,
    #[error(transparent)]
    Failed(#[from] HookError),
}

pub(super) async fn list(turns: &Turns) -> Result<Value, StoreError> {
    let given_up = turns.given_up(LISTED).await?;
    Ok(json!({ "undelivered": given_up.iter().map(entry).collect::<Vec<_>>() }))
}

/// Tries one again, from where it was. Both names are as the path has them, percent signs and all.
pub(super) async fn retry(turns: &Turns, task: &str, id: &str) -> Result<(), NotRetried> {
    let decoded = |text| percent_decode_str(text).decode_utf8().map_err(|_| NotRetried::NotFound);
    let (task, id) = (decoded(task)?, decoded(id)?);
    let given_up = turns.given_up(LISTED).await.map_err(HookError::from)?;
    let found = given_up
        .into_iter()
        .find(|hooked| hooked.key.task.as_str() == task && hooked.hook.id.as_str() == id)
        .ok_or(NotRetried::NotFound)?;
    Ok(turns.retry_hook(&found.key, &found.hook.id).await?)
}

fn entry(hooked: &Hooked) -> Value {
    let Hooked { key, hook, given_up, .. } = hooked;
    let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    json!({
        "task": key.task.as_str(),
        "id": hook.id.as_str(),
        "owner": key.owner.name(),
        "url": hook.url.split('?').next(),
        "since": given_up.as_ref().map(|given_up| given_up.at.to_string()),
        "tries": given_up.as_ref().map(|given_up| given_up.tries),
        "why": given_up.as_ref().map(|given_up| given_up.why.as_str()),
        "retry": format!(
            "/push/undelivered/{}/{}/retry",
            encoded(key.task.as_str()),
            encoded(hook.id.as_str())
        ),
    })
}
