//! The mailbox on the admin server: the number of waiting turns, and replies that arrived after their turns had ended.
//!
//! Lists at most [`LISTED`] turns, the newest first, with the first [`SHOWN`] characters of each reply; the whole reply is in
//! its task. Secrets are masked.

use serde_json::{Value, json};
use talaria_mailbox::{Counts, Mailbox};
use talaria_turns::{Late, StoreError};

/// As many as an operator reads; each is read from the store.
const LISTED: usize = 100;
/// The number of characters of a reply.
const SHOWN: usize = 200;

pub(super) async fn list(mailbox: Option<&Mailbox>) -> Result<Value, StoreError> {
    let Some(mailbox) = mailbox else { return Ok(json!({ "listening": false })) };
    let Counts { waiting, in_line, orphans, unanswered, late, answered, bytes } = mailbox.counts();
    let replies = mailbox.late(LISTED).await?;
    Ok(json!({
        "listening": true,
        "turns": {
            "waiting": waiting, "in_line": in_line, "orphans": orphans,
            "unanswered": unanswered, "late": late, "answered": answered,
        },
        "bytes": bytes,
        "late": replies.iter().map(entry).collect::<Vec<_>>(),
    }))
}

fn entry(late: &Late) -> Value {
    let Late { task, chat, message, at, text, .. } = late;
    json!({
        "task": task.task.as_str(),
        "owner": task.owner.name(),
        "chat": chat,
        "message": message,
        "at": at.to_string(),
        "begins": text.chars().take(SHOWN).collect::<String>(),
    })
}
