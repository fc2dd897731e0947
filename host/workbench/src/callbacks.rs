//! Plays the callbacks of a cassette: each wait of an executor gets the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::json;
use talaria_turns::{Awaited, CallbackError, Callbacks, Delivery, Expectation};

use crate::cassette::Reply;
use crate::timeline::Timeline;

/// The callback address that executors see. Nothing listens there.
const REPLY_URL: &str = "http://127.0.0.1:8646/a2a/reply";

/// The callbacks of a cassette.
pub(crate) struct CassetteCallbacks {
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

impl CassetteCallbacks {
    pub(crate) fn new(replies: Vec<Reply>, timeline: Arc<Timeline>) -> Self {
        Self { script: Arc::new(Script { replies, next: AtomicUsize::new(0), timeline }) }
    }

    /// Starts over with the first callback.
    pub(crate) fn rewind(&self) {
        self.script.next.store(0, Ordering::Relaxed);
    }
}

#[async_trait]
impl Callbacks for CassetteCallbacks {
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
        // Counted only when it is delivered: dropping the future loses no callback.
        self.script.next.store(index + 1, Ordering::Relaxed);
        self.script.timeline.note("callback.wait", &*self.message, reply.kind.as_str());
        let body = json!({
            "kind": reply.kind,
            "content": reply.content,
            "reply_to": (reply.kind != "notice").then_some(&self.message),
            "chat_id": self.chat,
        });
        let body = body.to_string().into_bytes();
        Ok(Delivery { content_type: "application/json".into(), body, trace: None })
    }
}
