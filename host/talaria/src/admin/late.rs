//! The mailbox, for the operator: how many turns wait, and which replies came after their turns had ended.
//!
//! At most [`LISTED`] turns, the newest first, and of each reply its first [`SHOWN`] characters: enough to know it again. The
//! whole of it is in its task. Secrets are not in it.

use serde_json::{Value, json};
use talaria_mailbox::{Counts, Mailbox};
use talaria_turns::{Late, StoreError};

/// As many as an operator reads. Each is read from the store.
const LISTED: usize = 100;
/// Characters of a reply.
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
