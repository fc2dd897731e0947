//! Expected replies and callbacks in memory. The mailbox bounds their number; this module deletes nothing on its own.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use async_trait::async_trait;
use talaria_turns::{CallbackHeader, CallbackStore, ExpectedReply, StoreError, StoredCallback, Timestamp};

use super::Memory;

/// Expected replies with their callbacks, in the order in which they were first expected.
#[derive(Default)]
pub(super) struct Replies {
    known: BTreeMap<u64, (ExpectedReply, Vec<StoredCallback>)>,
    places: BTreeMap<Box<str>, u64>,
    next: u64,
}

impl Replies {
    fn get(&mut self, message: &str) -> Option<&mut (ExpectedReply, Vec<StoredCallback>)> {
        self.known.get_mut(self.places.get(message)?)
    }
}

impl Memory {
    fn replies(&self) -> std::sync::MutexGuard<'_, Replies> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl CallbackStore for Memory {
    async fn expected(&self) -> Result<(Vec<ExpectedReply>, Vec<CallbackHeader>), StoreError> {
        let replies = self.replies();
        let expected = replies.known.values().map(|(expected, _)| expected.clone()).collect();
        let headers = replies.known.values().flat_map(|(expected, callbacks)| {
            callbacks.iter().map(|callback| CallbackHeader {
                message: expected.message.clone(),
                is_reply: callback.is_reply,
                is_late: callback.is_late,
                digest: callback.digest,
                bytes: callback.body.len(),
            })
        });
        Ok((expected, headers.collect()))
    }

    async fn expect(&self, expected: &ExpectedReply) -> Result<(), StoreError> {
        let mut replies = self.replies();
        match replies.get(&expected.message) {
            Some((known, callbacks)) => {
                *known = expected.clone();
                callbacks.iter_mut().for_each(|callback| callback.is_late = false);
            }
            None => {
                let place = replies.next;
                replies.next += 1;
                replies.places.insert(expected.message.clone(), place);
                replies.known.insert(place, (expected.clone(), Vec::new()));
            }
        }
        Ok(())
    }

    async fn withdraw(&self, messages: &[Box<str>], at: Timestamp) -> Result<(), StoreError> {
        let mut replies = self.replies();
        for message in messages {
            if let Some((expected, _)) = replies.get(message) {
                expected.closed = Some(at);
            }
        }
        Ok(())
    }

    async fn delete(&self, messages: &[Box<str>]) -> Result<(), StoreError> {
        let mut replies = self.replies();
        for message in messages {
            if let Some(place) = replies.places.remove(message) {
                replies.known.remove(&place);
            }
        }
        Ok(())
    }

    async fn put(&self, message: &str, callback: &StoredCallback) -> Result<(), StoreError> {
        let mut replies = self.replies();
        let (_, callbacks) = replies.get(message).ok_or(StoreError::NotFound)?;
        callbacks.push(callback.clone());
        Ok(())
    }

    async fn callback(&self, message: &str, place: usize) -> Result<Option<StoredCallback>, StoreError> {
        Ok(self.replies().get(message).and_then(|(_, callbacks)| callbacks.get(place).cloned()))
    }
}
