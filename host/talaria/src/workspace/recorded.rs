//! A store that also tells the transcript what it was given.
//!
//! Here, because every event of every task passes the store once, whoever made it; the domain need not know that
//! somebody looks. What the transcript is told was written before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use talaria_turns::{
    Content, ContextId, Event, GivenUp, Hook, HookId, Hooked, Message, MessageId, Page, Part, Principal,
    Query, REPLY, StateKey, Store, StoreError, Task, TaskId, TaskKey, Timestamp,
};
use talaria_workspace::Transcript;

/// Most characters of an answer in pieces that are kept until it is whole. The transcript cuts there too.
const ANSWER: usize = 8 * 1024;

/// Most tasks that are kept in mind. The lines of others lack their conversation, and their answers in pieces.
const TASKS: usize = 1_000;

/// A store and its transcript.
pub(super) struct Recorded {
    inner: Arc<dyn Store>,
    transcript: Arc<Transcript>,
    /// Tasks that have not ended, as far as this process made them.
    open: Mutex<HashMap<TaskId, Open>>,
}

/// A task that has not ended.
#[derive(Default)]
struct Open {
    context: String,
    /// An answer that comes in pieces.
    answer: String,
}

// === impl Recorded ===

impl Recorded {
    pub(super) fn new(inner: Arc<dyn Store>, transcript: Arc<Transcript>) -> Self {
        Self { inner, transcript, open: Mutex::default() }
    }

    fn tell(&self, task: &TaskId, events: &[Event]) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unknown = Open::default();
        let known = open.get_mut(task).unwrap_or(&mut unknown);
        let context = known.context.clone();
        let say = |kind: &str, text: &str| {
            if !text.is_empty() {
                self.transcript.say(kind, task.as_str(), &context, text);
            }
        };
        let mut over = false;
        for event in events {
            match event {
                Event::Accepted { message, .. } | Event::Answered(message) => say("user", &text(message)),
                Event::Status { status, ends_turn, .. } => {
                    if *ends_turn {
                        say("assistant", &std::mem::take(&mut known.answer));
                    }
                    let said = status.message.as_ref().map(text).unwrap_or_default();
                    match said.is_empty() {
                        false if *ends_turn => say("assistant", &said),
                        false => say("status", &said),
                        true => say("status", &status.state.to_string()),
                    }
                    over = status.state.is_terminal();
                }
                Event::Artifact { artifact, .. } if artifact.id == REPLY => {
                    if known.answer.len() < ANSWER {
                        known.answer.push_str(&parts(&artifact.parts));
                    }
                }
                Event::Artifact { artifact, append: false, .. } => say("artifact", &parts(&artifact.parts)),
                Event::Late(artifact) => say("assistant", &parts(&artifact.parts)),
                Event::Note { name, value } => say("event", &format!("{name} {value}")),
                Event::Artifact { .. } | Event::Checkpoint(_) => {}
            }
        }
        if over {
            open.remove(task);
        }
    }
}

fn text(message: &Message) -> String {
    parts(&message.parts)
}

fn parts(parts: &[Part]) -> String {
    let text = |part: &Part| match &part.content {
        Content::Text(text) => text.clone(),
        Content::Data(data) => data.to_string(),
        Content::Uri(uri) => uri.clone(),
        Content::Bytes(bytes) => format!("[{} bytes]", bytes.len()),
    };
    parts.iter().map(text).collect::<Vec<_>>().join(" ")
}

#[async_trait]
impl Store for Recorded {
    async fn create(&self, key: &TaskKey, context: &ContextId, events: &[Event]) -> Result<(), StoreError> {
        self.inner.create(key, context, events).await?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() < TASKS {
            open.insert(key.task.clone(), Open { context: context.to_string(), answer: String::new() });
        }
        drop(open);
        self.tell(&key.task, events);
        Ok(())
    }

    async fn append(&self, key: &TaskKey, expected: u64, events: &[Event]) -> Result<(), StoreError> {
        self.inner.append(key, expected, events).await?;
        self.tell(&key.task, events);
        Ok(())
    }

    async fn task(&self, key: &TaskKey) -> Result<Option<Arc<Task>>, StoreError> {
        self.inner.task(key).await
    }

    async fn events(
        &self,
        key: &TaskKey,
        after: u64,
        limit: usize,
    ) -> Result<Vec<talaria_turns::Entry>, StoreError> {
        self.inner.events(key, after, limit).await
    }

    async fn list(&self, owner: &Principal, query: &Query) -> Result<Page, StoreError> {
        self.inner.list(owner, query).await
    }

    async fn accepted(&self, owner: &Principal, message: &MessageId) -> Result<Option<TaskId>, StoreError> {
        self.inner.accepted(owner, message).await
    }

    async fn unfinished(&self) -> Result<Vec<TaskKey>, StoreError> {
        self.inner.unfinished().await
    }

    async fn stuck(&self, before: Timestamp) -> Result<Vec<TaskKey>, StoreError> {
        self.inner.stuck(before).await
    }

    async fn forget(&self, before: Timestamp, keep: usize) -> Result<usize, StoreError> {
        self.inner.forget(before, keep).await
    }

    async fn state(&self, key: &StateKey) -> Result<Option<Arc<[u8]>>, StoreError> {
        self.inner.state(key).await
    }

    async fn state_beside(&self, key: &StateKey) -> Result<usize, StoreError> {
        self.inner.state_beside(key).await
    }

    async fn set_state(&self, key: &StateKey, value: Option<Arc<[u8]>>) -> Result<(), StoreError> {
        self.inner.set_state(key, value).await
    }

    async fn set_hook(&self, key: &TaskKey, hook: &Hook, cursor: u64) -> Result<(), StoreError> {
        self.inner.set_hook(key, hook, cursor).await
    }

    async fn hooks(&self, key: &TaskKey) -> Result<Vec<Hooked>, StoreError> {
        self.inner.hooks(key).await
    }

    async fn remove_hook(&self, key: &TaskKey, hook: &HookId) -> Result<(), StoreError> {
        self.inner.remove_hook(key, hook).await
    }

    async fn move_hook(
        &self,
        key: &TaskKey,
        hook: &HookId,
        cursor: u64,
        given_up: Option<&GivenUp>,
    ) -> Result<(), StoreError> {
        self.inner.move_hook(key, hook, cursor, given_up).await
    }

    async fn open_hooks(&self) -> Result<Vec<Hooked>, StoreError> {
        self.inner.open_hooks().await
    }

    async fn given_up(&self, limit: usize) -> Result<Vec<Hooked>, StoreError> {
        self.inner.given_up(limit).await
    }
}
