//! Backup, restore and check.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use talaria_turns::{Begin, Event, Retention, State, Store, Timestamp};
use tempfile::TempDir;

use super::{count, empty, file, open};
use crate::sqlite::{Config, CopyError, OpenError, Sqlite, backup, check, restore};
use crate::suite::{accepted, create, note, task};

/// Copies a store, quietly.
fn copy(folder: &TempDir, name: &str, force: bool) -> Result<std::path::PathBuf, CopyError> {
    backup(&file(folder), &folder.path().join(name), force, &mut |_| ()).map(|copied| copied.file)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_the_store_at_one_moment() {
    let (store, folder) = empty();
    let store = Arc::new(store);
    for _ in 0..200 {
        create(&*store, "a", &[accepted("m"), note(&"long ".repeat(2_000))]).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut load = tokio::task::JoinSet::new();
    {
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        load.spawn(async move {
            let mut written = 0;
            while !stop.load(Ordering::Relaxed) {
                let key = create(&*store, "a", &[accepted("m")]).await;
                store.append(&key, 1, &[note("x"), Event::moved(State::Completed)]).await.unwrap();
                written += 1;
            }
            written
        });
    }
    for number in 0..3 {
        let mut reports = Vec::new();
        let to = folder.path().join(format!("copy-{number}.db"));
        let report = &mut |progress| reports.push(progress);
        let copied = tokio::task::block_in_place(|| backup(&file(&folder), &to, false, report)).unwrap();
        assert!(reports.last().is_some_and(|last| last.done == last.total), "{reports:?}");
        assert_eq!(to.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(to.metadata().unwrap().len(), copied.bytes);
        let checked = check(&to).unwrap();
        assert_eq!((checked.problems, checked.tasks >= 200), (Vec::<String>::new(), true));
    }
    stop.store(true, Ordering::Relaxed);
    assert!(load.join_all().await.iter().sum::<u32>() > 0, "it was written to meanwhile");
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3 + 4, "three copies, the store and its files, and no drafts: {left:?}");
}

#[tokio::test]
async fn a_restored_store_has_everything_under_the_same_numbers() {
    let (store, folder) = empty();
    let mut keys = Vec::new();
    for number in 0..20 {
        keys.push(
            create(&store, "a", &[accepted(&format!("m{number}")), Event::moved(State::Completed)]).await,
        );
    }
    // Holes in the log, as retention leaves them.
    let retention = Retention::since(Timestamp::from_millis(0)).tasks(10);
    assert_eq!(store.forget(&retention).await.unwrap(), 10);
    let kept = create(&store, "a", &[accepted("kept")]).await;
    let log = store.log(Begin::At(0), 1000).await.unwrap();
    let copied = copy(&folder, "copy.db", false).unwrap();
    let later = create(&store, "a", &[accepted("later")]).await;

    let refused = restore(&copied, &file(&folder), &mut |_| ()).unwrap_err();
    assert!(matches!(refused, CopyError::Open(OpenError::InUse { .. })), "{refused:?}");
    drop(store);
    let restored = restore(&copied, &file(&folder), &mut |_| ()).unwrap();
    let store = open(&folder);
    assert_eq!(format!("{:?}", store.log(Begin::At(0), 1000).await.unwrap()), format!("{log:?}"));
    assert_eq!(task(&store, &kept).await.version, 1);
    assert_eq!(store.task(&later).await.unwrap(), None, "it came after the backup");
    drop(store);
    let replaced = restored.replaced.unwrap();
    assert_eq!(replaced, folder.path().canonicalize().unwrap().join("talaria.db.bak"));
    let replaced = Sqlite::open(&replaced, &Config::default()).unwrap();
    assert_eq!(task(&replaced, &later).await.version, 1, "what was replaced is complete");
    drop(replaced);
    let again = restore(&copied, &file(&folder), &mut |_| ()).unwrap();
    assert!(again.replaced.unwrap().ends_with("talaria.db.bak.1"), "an older copy is not lost");
    let mode = file(&folder).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn nothing_is_overwritten_or_restored_that_should_not_be() {
    let (store, folder) = empty();
    create(&store, "a", &[accepted("m")]).await;
    std::fs::write(folder.path().join("notes"), "mine").unwrap();
    assert!(matches!(copy(&folder, "notes", false), Err(CopyError::Exists(_))));
    assert_eq!(std::fs::read(folder.path().join("notes")).unwrap(), b"mine");
    copy(&folder, "notes", true).unwrap();
    assert!(matches!(copy(&folder, "talaria.db", true), Err(CopyError::Itself(_))));
    assert!(matches!(copy(&folder, "no/such/folder.db", false), Err(CopyError::Io { .. })));
    drop(store);

    let before = std::fs::read(file(&folder)).unwrap();
    let from = |name: &str| restore(&folder.path().join(name), &file(&folder), &mut |_| ()).unwrap_err();
    assert!(matches!(from("absent"), CopyError::Open(OpenError::Missing { .. })));
    std::fs::write(folder.path().join("empty"), "").unwrap();
    assert!(matches!(from("empty"), CopyError::Empty(_)));
    std::fs::write(folder.path().join("text"), "no database at all ".repeat(1000)).unwrap();
    assert!(matches!(from("text"), CopyError::Open(OpenError::Damaged { .. })));
    Connection::open(folder.path().join("foreign")).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(matches!(from("foreign"), CopyError::Open(OpenError::Foreign { .. })));
    let whole = std::fs::read(folder.path().join("notes")).unwrap();
    let mut damaged = whole.clone();
    damaged[5_000..40_000].fill(0xAA);
    std::fs::write(folder.path().join("damaged"), damaged).unwrap();
    let error = from("damaged");
    assert!(
        matches!(error, CopyError::Damaged { .. } | CopyError::Open(_) | CopyError::Sql { .. }),
        "{error:?}"
    );
    assert_eq!(std::fs::read(file(&folder)).unwrap(), before, "the store is as it was");
    assert_eq!(
        std::fs::read_dir(folder.path())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().contains(".bak") })
            .count(),
        0
    );

    let elsewhere = tempfile::tempdir().unwrap();
    let fresh = restore(&folder.path().join("notes"), &file(&elsewhere), &mut |_| ()).unwrap();
    assert_eq!((fresh.replaced, count(&elsewhere, "SELECT count(*) FROM tasks")), (None, 1));
}

#[tokio::test]
async fn a_damaged_store_is_replaced_and_kept_with_its_log() {
    let (store, folder) = empty();
    create(&store, "a", &[accepted("m")]).await;
    let copied = copy(&folder, "copy.db", false).unwrap();
    drop(store);
    std::fs::write(file(&folder), "damaged beyond recognition ".repeat(1000)).unwrap();
    std::fs::write(folder.path().join("talaria.db-wal"), "and its log").unwrap();
    restore(&copied, &file(&folder), &mut |_| ()).unwrap();
    assert!(
        folder.path().join("talaria.db.bak").exists() && folder.path().join("talaria.db.bak-wal").exists()
    );
    open(&folder);
    assert_eq!(count(&folder, "SELECT count(*) FROM tasks"), 1);
}

#[tokio::test]
async fn a_check_counts_and_finds_a_log_that_does_not_fold() {
    let (store, folder) = empty();
    let first = create(&store, "a", &[accepted("m1"), note("x")]).await;
    create(&store, "", &[accepted("m2"), Event::moved(State::Completed)]).await;
    let checked = check(&file(&folder)).unwrap();
    assert_eq!((checked.tasks, checked.events, checked.open_turns), (2, 4, 1));
    assert_eq!((checked.schema, checked.problems), (checked.known_schema, Vec::<String>::new()));
    let connection = Connection::open(file(&folder)).unwrap();
    connection.execute("UPDATE tasks SET version = version + 1 WHERE key = 2", []).unwrap();
    connection.execute("UPDATE events SET events = '[{\"asleep\":1}]' WHERE task = 1", []).unwrap();
    let problems = check(&file(&folder)).unwrap().problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].contains(first.task.as_str()) && problems[0].contains("not readable"),
        "{problems:?}"
    );
    assert!(problems[1].contains("its log ends with event 2, its row says 3"), "{problems:?}");
    assert!(matches!(check(&folder.path().join("absent")), Err(OpenError::Missing { .. })));
}

#[tokio::test]
async fn a_flush_leaves_everything_in_the_file_and_nothing_in_the_log() {
    let (store, folder) = empty();
    let key = create(&store, "a", &[accepted("m")]).await;
    store.flush().await;
    assert_eq!(folder.path().join("talaria.db-wal").metadata().unwrap().len(), 0);
    let alone = tempfile::tempdir().unwrap();
    std::fs::copy(file(&folder), file(&alone)).unwrap();
    assert_eq!(task(&open(&alone), &key).await.version, 1);
    store.append(&key, 1, &[note("still open")]).await.unwrap();
}
