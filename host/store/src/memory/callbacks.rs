//! Expected replies and letters in memory. The mailbox bounds them; nothing is forgotten here by itself.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use async_trait::async_trait;
use talaria_turns::{CallbackHeader, CallbackStore, ExpectedReply, StoreError, StoredCallback, Timestamp};

use super::Memory;

/// Announcements and their letters, in the order in which they were first announced.
#[derive(Default)]
pub(super) struct Kept {
    known: BTreeMap<u64, (ExpectedReply, Vec<StoredCallback>)>,
    places: BTreeMap<Box<str>, u64>,
    next: u64,
}

impl Kept {
    fn get(&mut self, message: &str) -> Option<&mut (ExpectedReply, Vec<StoredCallback>)> {
        self.known.get_mut(self.places.get(message)?)
    }
}

impl Memory {
    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl CallbackStore for Memory {
    async fn expected(&self) -> Result<(Vec<ExpectedReply>, Vec<CallbackHeader>), StoreError> {
        let kept = self.kept();
        let announced = kept.known.values().map(|(announced, _)| announced.clone()).collect();
        let letters = kept.known.values().flat_map(|(announced, letters)| {
            letters.iter().map(|letter| CallbackHeader {
                message: announced.message.clone(),
                is_reply: letter.is_reply,
                is_late: letter.is_late,
                digest: letter.digest,
                bytes: letter.body.len(),
            })
        });
        Ok((announced, letters.collect()))
    }

    async fn expect(&self, announced: &ExpectedReply) -> Result<(), StoreError> {
        let mut kept = self.kept();
        match kept.get(&announced.message) {
            Some((known, letters)) => {
                *known = announced.clone();
                letters.iter_mut().for_each(|letter| letter.is_late = false);
            }
            None => {
                let place = kept.next;
                kept.next += 1;
                kept.places.insert(announced.message.clone(), place);
                kept.known.insert(place, (announced.clone(), Vec::new()));
            }
        }
        Ok(())
    }

    async fn withdraw(&self, messages: &[Box<str>], at: Timestamp) -> Result<(), StoreError> {
        let mut kept = self.kept();
        for message in messages {
            if let Some((announced, _)) = kept.get(message) {
                announced.closed = Some(at);
            }
        }
        Ok(())
    }

    async fn delete(&self, messages: &[Box<str>]) -> Result<(), StoreError> {
        let mut kept = self.kept();
        for message in messages {
            if let Some(place) = kept.places.remove(message) {
                kept.known.remove(&place);
            }
        }
        Ok(())
    }

    async fn put(&self, message: &str, letter: &StoredCallback) -> Result<(), StoreError> {
        let mut kept = self.kept();
        let (_, letters) = kept.get(message).ok_or(StoreError::NotFound)?;
        letters.push(letter.clone());
        Ok(())
    }

    async fn callback(&self, message: &str, place: usize) -> Result<Option<StoredCallback>, StoreError> {
        Ok(self.kept().get(message).and_then(|(_, letters)| letters.get(place).cloned()))
    }
}
