//! Faults of the file, and the errors that report them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use talaria_turns::{
    ContextId, Event, Part, Principal, Retention, State, Store, StoreError, TaskKey, Timestamp,
};

use super::{count, empty, file, open};
use crate::sqlite::{Config, OpenError, Sqlite, try_write};
use crate::suite::{accepted, all, create, key, note, status, task};

fn refused(path: &Path) -> OpenError {
    Sqlite::open(path, &Config::default()).err().expect("it must not open")
}

fn unavailable<T: std::fmt::Debug>(result: Result<T, StoreError>, words: &str) {
    match result {
        Err(StoreError::Unavailable(text)) if text.contains(words) => {}
        other => panic!("not {words:?}: {other:?}"),
    }
}

#[test]
fn the_file_is_for_its_owner_only() {
    let (_store, folder) = empty();
    for name in ["talaria.db", "talaria.db-wal", "talaria.db-shm"] {
        let mode = folder.path().join(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_missing_folder_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/such");
    let error = refused(&missing.join("talaria.db"));
    assert!(matches!(error, OpenError::NoFolder { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("mkdir -p {}", missing.display())), "{error}");
    assert!(!missing.exists(), "nothing is created that nobody asked for");
}

#[test]
fn a_folder_that_cannot_be_written_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o555)).unwrap();
    // Root may write there all the same, but not here.
    let root = std::fs::write(folder.path().join("try"), "").is_ok();
    let path = if root { "/proc/talaria.db".into() } else { file(&folder) };
    let error = refused(&path);
    assert!(matches!(error, OpenError::NotWritable { .. }), "{error:?}");
    assert!(error.to_string().contains("must be writable"), "{error}");

    let error = refused(folder.path());
    assert!(matches!(error, OpenError::NotWritable { .. }), "a folder is no file: {error:?}");
}

#[test]
fn a_newer_schema_is_rejected_and_left_unchanged() {
    let (store, folder) = empty();
    drop(store);
    Connection::open(file(&folder)).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let before = std::fs::read(file(&folder)).unwrap();
    let error = refused(&file(&folder));
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error:?}");
    assert!(error.to_string().contains("run the newer Talaria"), "{error}");
    assert_eq!(std::fs::read(file(&folder)).unwrap(), before);
}

#[test]
fn a_database_of_another_application_is_rejected_and_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let connection = Connection::open(file(&folder)).unwrap();
    connection.execute_batch("CREATE TABLE tasks (x INTEGER)").unwrap();
    drop(connection);
    let before = std::fs::read(file(&folder)).unwrap();
    let error = refused(&file(&folder));
    assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
    assert_eq!(std::fs::read(file(&folder)).unwrap(), before);
}

#[tokio::test]
async fn a_damaged_file_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(file(&folder), "this is no database, whatever its name says".repeat(100)).unwrap();
    let error = refused(&file(&folder));
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains("restore it from a copy"), "{error}");

    let (store, folder) = empty();
    for _ in 0..100 {
        create(&store, "a", &[accepted("m"), note(&"long ".repeat(200))]).await;
    }
    drop(store);
    let whole = std::fs::read(file(&folder)).unwrap();
    std::fs::write(file(&folder), &whole[..whole.len() / 2]).unwrap();
    let error = refused(&file(&folder));
    assert!(matches!(error, OpenError::Damaged { .. }), "cut in half: {error:?}");
}

#[tokio::test]
async fn an_unreadable_record_affects_only_its_task() {
    let (store, folder) = empty();
    let bad = create(&store, "a", &[accepted("m1")]).await;
    let good = create(&store, "a", &[accepted("m2")]).await;
    let connection = Connection::open(file(&folder)).unwrap();
    connection.execute("UPDATE events SET events = '[{\"asleep\":1}]' WHERE task = 1", []).unwrap();
    unavailable(store.task(&bad).await, "not readable");
    unavailable(store.events(&bad, 0, 1).await, "not readable");
    assert_eq!(task(&store, &good).await.version, 1);
    connection.execute("UPDATE tasks SET state = 'asleep' WHERE key = 1", []).unwrap();
    let events = [note("x")];
    let (one, two) = tokio::join!(store.append(&bad, 1, &events), store.append(&good, 1, &events));
    unavailable(one, "no state is called");
    two.expect("written, though in a group with one that cannot be");
}

#[tokio::test]
async fn a_locked_database_rejects_writes_after_the_timeout_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { busy_timeout: Duration::from_millis(200), ..Config::default() };
    let store = Arc::new(Sqlite::open(&file(&folder), &config).unwrap());
    let known = create(&*store, "a", &[accepted("m1")]).await;
    let other = Connection::open(file(&folder)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begin = Instant::now();
    let results = append(&store, &known, 1, 100).await;
    assert!(begin.elapsed() >= Duration::from_millis(150), "it waits a while");
    // One after the other they would take 20 s.
    assert!(begin.elapsed() < Duration::from_secs(15), "but not for each");
    for result in results {
        unavailable(result, "locked by another process");
    }
    unavailable(store.create(&key("a"), &ContextId::fresh(), &[]).await, "locked");
    assert_eq!(task(&*store, &known).await.version, 1, "reading goes on");
    other.execute_batch("COMMIT").unwrap();
    store.append(&known, 1, &[note("x")]).await.unwrap();
    assert_eq!(task(&*store, &known).await.version, 2);
}

#[tokio::test]
async fn a_full_queue_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { busy_timeout: Duration::from_millis(200), queue: 1, ..Config::default() };
    let store = Arc::new(Sqlite::open(&file(&folder), &config).unwrap());
    let known = create(&*store, "a", &[]).await;
    let other = Connection::open(file(&folder)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for result in append(&store, &known, 0, 20).await {
        unavailable(result, "");
    }
    other.execute_batch("COMMIT").unwrap();
    store.append(&known, 0, &[note("x")]).await.unwrap();
}

/// Makes so many appends at once.
async fn append(
    store: &Arc<Sqlite>,
    key: &TaskKey,
    version: u64,
    times: usize,
) -> Vec<Result<(), StoreError>> {
    let mut set = tokio::task::JoinSet::new();
    for _ in 0..times {
        let (store, key) = (Arc::clone(store), key.clone());
        set.spawn(async move { store.append(&key, version, &[note("x")]).await });
    }
    set.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_full_disk_rejects_what_does_not_fit_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { max_bytes: Some(1 << 20), ..Config::default() };
    let store = Arc::new(Sqlite::open(&file(&folder), &config).unwrap());
    let kept = create(&*store, "a", &[accepted("kept")]).await;
    // One write that cannot fit among many that can: only that one is rejected.
    let mut set = tokio::task::JoinSet::new();
    for number in 0..40_u64 {
        let store = Arc::clone(&store);
        set.spawn(async move {
            let size = if number == 20 { 2 << 20 } else { 10 };
            let events = [note(&"x".repeat(size)), status(State::Completed, number, true)];
            let key = key("a");
            (number, store.create(&key, &ContextId::fresh(), &events).await, key)
        });
    }
    for (number, result, key) in set.join_all().await {
        if number == 20 {
            unavailable(result, "the disk is full");
            assert_eq!(store.task(&key).await.unwrap(), None);
        } else {
            result.unwrap();
            assert_eq!(task(&*store, &key).await.version, 2);
        }
    }
    // Until nothing fits any more.
    let mut version = 1;
    let full = loop {
        match store.append(&kept, version, &[note(&"x".repeat(20_000))]).await {
            Ok(()) => version += 1,
            Err(error) => break error,
        }
    };
    unavailable::<()>(Err(full), "the disk is full");
    assert_eq!(task(&*store, &kept).await.version, version, "all that was answered is there");
    assert_eq!(store.events(&kept, 0, usize::MAX).await.unwrap().len() as u64, version);
    let end = Event::said(State::Completed, vec![Part::text("x".repeat(20_000))]);
    unavailable(store.append(&kept, version, &[end]).await, "the disk is full");
    // After room was made.
    assert_eq!(store.forget(&Retention::since(Timestamp::from_millis(0)).tasks(0)).await.unwrap(), 39);
    store.append(&kept, version, &[Event::moved(State::Completed)]).await.unwrap();
    drop(store);
    assert_eq!(task(&open(&folder), &kept).await.status.state, State::Completed);
    assert_eq!(count(&folder, "SELECT count(*) FROM tasks"), 1);
}

#[tokio::test]
async fn a_full_store_rejects_messages_and_lets_turns_end() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { max_bytes: Some(4 << 20), ..Config::default() };
    let store = Sqlite::open(&file(&folder), &config).unwrap();
    let under_way = create(&store, "a", &[accepted("m")]).await;
    let large = [note(&"x".repeat(100_000)), status(State::Completed, 1, true)];
    let refused = loop {
        if let Err(error) = store.create(&key("a"), &ContextId::fresh(), &large).await {
            break error;
        }
    };
    assert!(matches!(refused, StoreError::Full(_)), "{refused}");
    assert!(refused.to_string().contains("raise `store.max_size` or lower `store.keep_for`"), "{refused}");
    assert_eq!(store.has_room().await.unwrap_err().to_string(), refused.to_string());
    let before = task(&store, &under_way).await;
    let again = store.append(&under_way, 1, &[accepted("another")]).await.unwrap_err();
    assert!(matches!(again, StoreError::Full(_)), "{again}");
    assert_eq!(task(&store, &under_way).await, before, "nothing was written");
    store.append(&under_way, 1, &large).await.expect("there is room for turns under way");
    assert!(store.size() > 3 << 20, "{}", store.size());
    // Deleting gives the room back, though the file stays as large.
    store.forget(&Retention::since(Timestamp::from_millis(0)).tasks(0)).await.unwrap();
    assert!(store.size() < 1 << 20, "{}", store.size());
    store.has_room().await.expect("there is room again");
    store.create(&key("a"), &ContextId::fresh(), &large).await.expect("there is room again");
}

#[tokio::test]
async fn a_disk_with_little_space_left_rejects_messages() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let under_way = create(&store, "a", &[accepted("m")]).await;
    drop(store);
    let config = Config { min_free: Some(1 << 60), ..Config::default() };
    let store = Sqlite::open(&file(&folder), &config).unwrap();
    let refused = store.create(&key("a"), &ContextId::fresh(), &[]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Full(_)), "{refused}");
    assert!(refused.to_string().contains("lower `store.min_free`"), "{refused}");
    let checked = try_write(&file(&folder), &config).unwrap_err();
    assert!(matches!(&checked, OpenError::Full { why, .. } if why.contains("`store.min_free`")), "{checked}");
    let fresh = try_write(&folder.path().join("another.db"), &config).unwrap_err();
    assert!(matches!(fresh, OpenError::Full { .. }), "{fresh}");
    try_write(&file(&folder), &Config::default()).unwrap();
    store.append(&under_way, 1, &[Event::moved(State::Completed)]).await.unwrap();
}

#[tokio::test]
async fn what_owners_have_is_known_after_a_restart() {
    let (store, folder) = empty();
    for owner in ["", "a", "a"] {
        let key = create(&store, owner, &[accepted("m")]).await;
        store.append(&key, 1, &[note("ä"), status(State::Completed, 1, true)]).await.unwrap();
    }
    create(&store, "a", &[]).await;
    let owners = ["", "a", "b"].map(Principal::named);
    let mut before = Vec::new();
    for owner in &owners {
        before.push(store.kept(owner).await.unwrap());
    }
    assert_eq!((before[1].tasks, before[1].finished), (3, 2));
    drop(store);
    let store = open(&folder);
    for (owner, before) in owners.iter().zip(before) {
        assert_eq!(store.kept(owner).await.unwrap(), before, "{owner:?}");
        assert_eq!(store.list(owner, &all()).await.unwrap().total, before.tasks, "{owner:?}");
    }
    // As a file of before version 6 is migrated.
    assert_eq!(
        count(&folder, "SELECT sum(bytes) FROM tasks"),
        count(&folder, "SELECT sum(octet_length(events)) FROM events")
    );
}
