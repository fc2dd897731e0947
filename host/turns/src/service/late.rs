//! Replies that arrive after their turns have failed.
//!
//! A terminal state is final, so the status of the task does not change: the reply is added as an artifact of its own,
//! `late-reply`, whose metadata has the time of its arrival. Callers that get the task see it, receivers of push
//! notifications are sent it, and so are readers that follow from an earlier event. Tasks that ended in another way take
//! no late replies: their callers have an answer, or want none.
//!
//! A reply that is delivered twice is added once, because its artifact has a fixed id. The number of late replies is
//! bounded by the sender, which keeps only so many replies for a message.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use tracing::info;

use super::Turns;
use crate::callback::{Late, LateReplySink};
use crate::keys;
use crate::model::{Artifact, Part};
use crate::store::StoreError;
use crate::task::{Event, State};

/// The id of the artifact of a late reply; further ones have a number appended.
const LATE_REPLY: &str = "late-reply";

#[async_trait]
impl LateReplySink for Turns {
    async fn deliver(&self, late: &Late) -> Result<bool, StoreError> {
        // If the task was deleted, there is nothing to do.
        let Some(live) = self.0.tasks.get(&late.task).await? else { return Ok(true) };
        let artifact = Arc::new(artifact(late));
        let (mut is_over, mut is_new) = (false, false);
        live.append_if(|task| {
            let known = task.artifacts.iter().any(|known| known.id == artifact.id);
            is_over = task.status.state.is_terminal();
            is_new = task.status.state == State::Failed && !known;
            Ok::<_, StoreError>(is_new.then(|| Event::Late(Arc::clone(&artifact))).into_iter().collect())
        })
        .await?;
        if !is_new {
            return Ok(is_over);
        }
        info!(task = %late.task.task, message = %late.message, "added a late reply to its task");
        let Some(dispatcher) = &self.0.dispatcher else { return Ok(true) };
        // The followers of the push configurations ended with the task.
        for stored in self.0.store.push_configs(&late.task).await? {
            if stored.given_up.is_none() {
                dispatcher.follow(Arc::clone(&live), stored.config, stored.cursor);
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
    let metadata = json!({ keys::LATE: late.at.to_string() });
    Artifact {
        id,
        name: Some("Late reply".into()),
        description: Some("The agent's reply, which came after the turn had failed.".into()),
        parts: vec![Part::text(late.text.clone())],
        metadata: metadata.as_object().cloned(),
        extensions: Vec::new(),
    }
}
