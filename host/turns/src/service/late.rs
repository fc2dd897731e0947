//! Replies that came after their turns had failed.
//!
//! Terminal is final, so nothing that was said of the task changes: the reply is added as an artifact of its own, named
//! `late-reply`, whose metadata says when it came. Whoever gets the task sees it, hooks are told, and so is whoever
//! follows from an earlier place. A task that ended otherwise takes none: its caller has an answer, or wants none.
//!
//! The same reply given twice is there once, since it has one id. What bounds it is who gives it: the replies that are
//! kept for a message.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use tracing::info;

use super::Turns;
use crate::callback::{Late, LateReplySink};
use crate::model::{Artifact, Part};
use crate::store::StoreError;
use crate::task::{Event, State};

/// The id of a late reply's artifact; a further one has its number behind it.
const LATE_REPLY: &str = "late-reply";
/// What its metadata calls the time at which it came.
const LATE: &str = "talaria/late";

#[async_trait]
impl LateReplySink for Turns {
    async fn deliver(&self, late: &Late) -> Result<bool, StoreError> {
        // A task that is forgotten needs nothing more.
        let Some(live) = self.0.hub.get(&late.task).await? else { return Ok(true) };
        let artifact = artifact(late);
        let (mut is_over, mut is_new) = (false, false);
        live.append(|task| {
            let known = task.artifacts.iter().any(|known| known.id == artifact.id);
            is_over = task.status.state.is_terminal();
            is_new = task.status.state == State::Failed && !known;
            Ok::<_, StoreError>(is_new.then(|| Event::Late(artifact.clone())).into_iter().collect())
        })
        .await?;
        if !is_new {
            return Ok(is_over);
        }
        info!(task = %late.task.task, message = %late.message, "a late reply joined its task");
        let Some(outbox) = &self.0.outbox else { return Ok(true) };
        // Their followers left when the task ended.
        for hooked in self.0.store.hooks(&late.task).await? {
            if hooked.given_up.is_none() {
                outbox.follow(Arc::clone(&live), hooked.hook, hooked.cursor);
            }
        }
        Ok(true)
    }
}

fn artifact(late: &Late) -> Artifact {
    let id = match late.place {
        0 => LATE_REPLY.to_owned(),
        place => format!("{LATE_REPLY}-{}", place + 1),
    };
    let metadata = json!({ LATE: late.at.to_string() });
    Artifact {
        id,
        name: Some("Late reply".into()),
        description: Some("The agent's reply, which came after the turn had failed.".into()),
        parts: vec![Part::text(late.text.clone())],
        metadata: metadata.as_object().cloned(),
        extensions: Vec::new(),
    }
}
