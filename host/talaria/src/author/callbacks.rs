//! Replies that come out of band, as the cassette has them: each announced message gets the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::json;
use talaria_turns::{Awaited, CallbackError, Callbacks, Delivery, Expectation};

use super::cassette::Reply;
use super::timeline::Timeline;

/// Where upstreams would post; nobody does.
const REPLY_URL: &str = "http://127.0.0.1:8646/a2a/reply";

/// The cassette's replies.
pub(super) struct Scripted {
    script: Arc<Script>,
}

struct Script {
    replies: Vec<Reply>,
    next: AtomicUsize,
    timeline: Arc<Timeline>,
}

struct Waiting {
    script: Arc<Script>,
    message: Box<str>,
    chat: Option<Box<str>>,
}

impl Scripted {
    pub(super) fn new(replies: Vec<Reply>, timeline: Arc<Timeline>) -> Self {
        Self { script: Arc::new(Script { replies, next: AtomicUsize::new(0), timeline }) }
    }

    /// A part of the trial begins.
    pub(super) fn rewind(&self) {
        self.script.next.store(0, Ordering::Relaxed);
    }
}

#[async_trait]
impl Callbacks for Scripted {
    async fn expect(&self, expected: Expectation) -> Result<Box<dyn Awaited>, CallbackError> {
        let Expectation { message, chat, .. } = expected;
        self.script.timeline.note("callback.expect", &*message, "");
        Ok(Box::new(Waiting { script: Arc::clone(&self.script), message, chat }))
    }
}

#[async_trait]
impl Awaited for Waiting {
    fn reply_url(&self) -> &str {
        REPLY_URL
    }

    fn overtakes(&self) -> bool {
        false
    }

    async fn next(&mut self) -> Result<Delivery, CallbackError> {
        let index = self.script.next.load(Ordering::Relaxed);
        let Some(reply) = self.script.replies.get(index) else {
            self.script.timeline.note(
                "callback.wait",
                &*self.message,
                "the cassette has no further [[callback]]",
            );
            return std::future::pending().await;
        };
        if let Some(delay) = reply.delay {
            tokio::time::sleep(delay.get()).await;
        }
        // Counted when it is given: giving up on the wait loses nothing.
        self.script.next.store(index + 1, Ordering::Relaxed);
        self.script.timeline.note("callback.wait", &*self.message, reply.kind.as_str());
        let body = json!({
            "kind": reply.kind,
            "content": reply.content,
            "reply_to": (reply.kind != "notice").then_some(&self.message),
            "chat_id": self.chat,
        });
        Ok(Delivery { content_type: "application/json".into(), body: body.to_string().into_bytes() })
    }
}
