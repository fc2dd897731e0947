//! One process owns a store. Within one process, two opens exclude each other as two processes do.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::{empty, file, open};
use crate::sqlite::{Config, OpenError, Owner, Sqlite, check, try_write};

#[test]
fn a_store_that_is_open_is_not_opened_again_by_any_path() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { address: Some("127.0.0.1:8000".into()), ..Config::default() };
    let store = Sqlite::open(&file(&folder), &config).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (link, linked) = (elsewhere.path().join("other.db"), elsewhere.path().join("folder"));
    symlink(file(&folder), &link).unwrap();
    symlink(folder.path(), &linked).unwrap();
    for path in [file(&folder), link, linked.join("talaria.db"), folder.path().join("./talaria.db")] {
        let error = Sqlite::open(&path, &Config::default()).err().expect("it is in use");
        assert!(matches!(error, OpenError::InUse { .. }), "{error:?}");
        let text = error.to_string();
        for part in
            [&format!("pid {}", std::process::id()), "serving 127.0.0.1:8000, since 20", "`store.url`"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(Owner::of(&path).map(|owner| owner.pid), Some(std::process::id()));
    }
    drop(store);
    assert_eq!(Owner::of(&file(&folder)), None);
    open(&folder);
}

#[test]
fn what_only_reads_works_beside_the_owner_and_leaves_the_store_to_it() {
    let (store, folder) = empty();
    try_write(&file(&folder), &Config::default()).unwrap();
    assert!(check(&file(&folder)).unwrap().problems.is_empty());
    assert_eq!(Owner::of(&file(&folder)).map(|owner| owner.address), Some(None));
    drop(store);
    try_write(&file(&folder), &Config::default()).unwrap();
    open(&folder);
}

#[test]
fn the_lock_says_nothing_to_others_and_a_strange_one_does_no_harm() {
    let (store, folder) = empty();
    let lock = folder.path().join("talaria.db.lock");
    assert_eq!(lock.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::write(&lock, "not what an owner writes").unwrap();
    let error = Sqlite::open(&file(&folder), &Config::default()).err().expect("it is in use");
    assert!(error.to_string().contains("in use (another process)"), "{error}");
    drop(store);
    // What a process that was killed left behind.
    std::fs::write(&lock, r#"{"pid":1,"since":"2026-01-01T00:00:00.000Z"}"#).unwrap();
    assert_eq!(Owner::of(&file(&folder)), None);
    open(&folder);
}

#[test]
fn a_store_that_cannot_be_written_is_found_without_changing_anything() {
    let folder = tempfile::tempdir().unwrap();
    try_write(&file(&folder), &Config::default()).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    let missing = try_write(&folder.path().join("no/talaria.db"), &Config::default()).unwrap_err();
    assert!(matches!(missing, OpenError::NoFolder { .. }), "{missing:?}");
    std::fs::write(file(&folder), "this is no database, whatever its name says".repeat(100)).unwrap();
    assert!(matches!(try_write(&file(&folder), &Config::default()).unwrap_err(), OpenError::Damaged { .. }));
    // Also for root: nobody writes to /proc.
    assert!(try_write(std::path::Path::new("/proc/talaria.db"), &Config::default()).is_err());
}
