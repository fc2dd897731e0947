//! What outlives the process.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use talaria_mailbox::Limits;
use talaria_redact::Redactor;
use talaria_store::{Memory, Sqlite, SqliteConfig};
use talaria_turns::{
    CallbackError, CallbackHeader, CallbackStore, Callbacks, ExpectedReply, StoreError, StoredCallback,
    Timestamp,
};

use crate::kit::{Host, accepted, expectation, next, stale, task};

async fn host(file: &Path) -> Host {
    // The kernel releases the lock of a process that dies; here the process lives on.
    let _ = std::fs::remove_file(file.with_extension("db.lock"));
    let store: Arc<dyn CallbackStore> = Arc::new(Sqlite::open(file, &SqliteConfig::default()).unwrap());
    Host::on(store, None, Limits::default()).await
}

/// A process that dies runs no destructor.
fn die<T>(with: T) {
    std::mem::forget(with);
}

#[tokio::test]
async fn a_reply_is_kept_for_the_turn_that_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talaria.db");
    let mine = task();
    let before = host(&file).await;
    die(before.mailbox.expect(expectation("m1", Some("c"), &mine)).await.unwrap());
    assert_eq!(before.post("c", None, "a notice").await, accepted());
    die(before);

    let after = host(&file).await;
    assert_eq!(after.mailbox.counts().orphans, 1);
    assert_eq!(after.post("c", Some("m1"), "answer").await, accepted(), "while nobody waits");
    assert_eq!(after.post("c", Some("m1"), "answer").await, stale(), "and only once");
    die(after);

    let again = host(&file).await;
    assert_eq!(again.post("c", Some("m1"), "answer").await, stale(), "known after a restart too");
    let stranger = again.mailbox.expect(expectation("m1", None, &task())).await.err().unwrap();
    assert!(matches!(stranger, CallbackError::Duplicate(_)), "{stranger}");
    let mut back = again.mailbox.expect(expectation("m1", Some("c"), &mine)).await.unwrap();
    let mut read = Vec::new();
    for _ in 0..2 {
        read.push(next(&mut back).await.unwrap()["content"].clone());
    }
    assert_eq!(read, ["a notice", "answer"], "all of it, in order");
}

#[tokio::test]
async fn a_turn_that_was_cut_off_after_its_reply_gets_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talaria.db");
    let mine = task();
    let before = host(&file).await;
    let mut awaited = before.mailbox.expect(expectation("m1", Some("c"), &mine)).await.unwrap();
    assert_eq!(before.post("c", Some("m1"), "answer").await, accepted());
    next(&mut awaited).await.unwrap();
    // The turn is through with it, but its end is not in the store when the process dies.
    drop(awaited);
    before.stop().await;

    let after = host(&file).await;
    assert_eq!(after.mailbox.counts().answered, 1);
    after.mailbox.sweep(Timestamp::now());
    let mut back = after.mailbox.expect(expectation("m1", Some("c"), &mine)).await.unwrap();
    assert_eq!(next(&mut back).await.unwrap()["content"], "answer");
}

#[tokio::test]
async fn a_late_reply_is_kept_under_its_task_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talaria.db");
    let mine = task();
    let before = host(&file).await;
    drop(before.mailbox.expect(expectation("m1", Some("c"), &mine)).await.unwrap());
    Redactor::process().learn(["a-secret-of-this-host"]);
    let text = "the key is a-secret-of-this-host, and api_key = os.environ[\"X\"] stays";
    assert_eq!(before.post("c", Some("m1"), text).await, stale());
    before.stop().await;

    let after = host(&file).await;
    let [late] = after.mailbox.late(10).await.unwrap().try_into().unwrap();
    assert_eq!((&late.task, late.chat.as_deref(), &*late.message), (&mine, Some("c"), "m1"));
    assert_eq!(late.text, "the key is [REDACTED:secret], and api_key = os.environ[\"X\"] stays");
    assert!(after.mailbox.late(0).await.unwrap().is_empty());
}

#[tokio::test]
async fn expired_entries_are_deleted_from_the_store_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talaria.db");
    let store: Arc<dyn CallbackStore> = Arc::new(Sqlite::open(&file, &SqliteConfig::default()).unwrap());
    let host = Host::on(Arc::clone(&store), None, Limits::default()).await;
    for message in ["m1", "m2"] {
        drop(host.expect_in("c", message).await);
        assert_eq!(host.post("c", Some(message), "late").await, stale());
    }
    let _open = host.expect("m3").await;
    let in_two_days = Timestamp::from_millis(Timestamp::now().millis() + 2 * 24 * 3_600 * 1_000);
    host.mailbox.sweep(in_two_days);
    host.stop().await;
    let (announced, letters) = store.expected().await.unwrap();
    let left: Vec<&str> = announced.iter().map(|announced| &*announced.message).collect();
    assert_eq!((left, letters.len()), (vec!["m3"], 0), "only what is open");
}

/// A store that takes nothing while it is told so.
struct Faulty(Memory, AtomicBool);

impl Faulty {
    fn check(&self) -> Result<(), StoreError> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(StoreError::Unavailable("the disk is full".into())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl CallbackStore for Faulty {
    async fn expected(&self) -> Result<(Vec<ExpectedReply>, Vec<CallbackHeader>), StoreError> {
        self.0.expected().await
    }

    async fn expect(&self, announced: &ExpectedReply) -> Result<(), StoreError> {
        self.check()?;
        self.0.expect(announced).await
    }

    async fn withdraw(&self, messages: &[Box<str>], at: Timestamp) -> Result<(), StoreError> {
        self.check()?;
        self.0.withdraw(messages, at).await
    }

    async fn delete(&self, messages: &[Box<str>]) -> Result<(), StoreError> {
        self.check()?;
        self.0.delete(messages).await
    }

    async fn put(&self, message: &str, letter: &StoredCallback) -> Result<(), StoreError> {
        self.check()?;
        self.0.put(message, letter).await
    }

    async fn callback(&self, message: &str, place: usize) -> Result<Option<StoredCallback>, StoreError> {
        self.0.callback(message, place).await
    }
}

#[tokio::test]
async fn the_peer_must_try_again_when_the_store_fails() {
    let store = Arc::new(Faulty(Memory::new(1), AtomicBool::new(false)));
    let host = Host::on(Arc::clone(&store) as _, None, Limits::default()).await;
    let mut one = host.expect("m1").await;
    store.1.store(true, Ordering::Relaxed);
    assert_eq!(host.post("c", Some("m1"), "answer").await.0, 503);
    let refused = host.mailbox.expect(expectation("m2", Some("c"), &task())).await.err().unwrap();
    assert!(matches!(refused, CallbackError::Store(_)), "{refused}");
    assert_eq!(host.mailbox.counts().waiting, 1, "what was refused left nothing");
    store.1.store(false, Ordering::Relaxed);
    assert_eq!(host.post("c", Some("m1"), "answer").await, accepted());
    assert_eq!(next(&mut one).await.unwrap()["content"], "answer");
    let two = host.expect_in("c", "m2").await;
    assert!(!two.overtakes(), "what was never sent needs no stopping");
}
