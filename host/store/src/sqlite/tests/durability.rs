//! What survives the end of a process.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use talaria_turns::{
    Begin, ContextId, DelegationStore, Event, Onto, Part, Principal, Query, Recall, Retention, State,
    StateKey, Store, TaskId, TaskKey, Timestamp, message_text,
};

use super::{count, empty, file, open};
use crate::sqlite::{Config, Sqlite, schema};
use crate::suite::{accepted, all, create, delta, key, note, once, shared, status, task};

#[tokio::test]
async fn reopening_gives_everything_back() {
    let (store, folder) = empty();
    let state = StateKey {
        owner: Principal::anyone(),
        context: ContextId::fresh(),
        executor: "it".into(),
        key: "session".into(),
    };
    store.set_state(&state, Some(b"value".as_slice().into())).await.unwrap();
    let mut keys = vec![create(&store, "", &[]).await];
    for number in 0..20_u64 {
        let owner = if number % 2 == 0 { "a" } else { "" };
        let key = key(owner);
        let (id, context) = (format!("m{number}"), ContextId::fresh());
        let onto = Onto::Nothing { context: &context, host_made: false };
        store.write(&key, onto, &shared(&[accepted(&id)]), Some(&once(&id))).await.unwrap();
        let events: Vec<Event> = (0..number * 10).map(|delta| note(&delta.to_string())).collect();
        store.append(&key, 1, &events).await.unwrap();
        let end = if number % 3 == 0 { State::Completed } else { State::Working };
        store.append(&key, 1 + number * 10, &[delta("so"), Event::moved(end)]).await.unwrap();
        keys.push(key);
    }
    let before = everything(&store, &keys).await;
    drop(store);
    for _ in 0..2 {
        let store = open(&folder);
        assert_eq!(everything(&store, &keys).await, before);
        assert_eq!(store.state(&state).await.unwrap().as_deref(), Some(b"value".as_slice()));
        assert_eq!(
            store.accepted(&Principal::anyone(), &once("m1")).await.unwrap().as_ref(),
            Some(&keys[2].task)
        );
    }
}

/// Everything that a store returns about these tasks, as text.
async fn everything(store: &Sqlite, keys: &[TaskKey]) -> String {
    let mut found = Vec::new();
    for key in keys {
        found.push(format!("{:?}", task(store, key).await));
        found.push(format!("{:?}", store.events(key, 0, usize::MAX).await.unwrap()));
    }
    for owner in [Principal::anyone(), Principal::named("a")] {
        found.push(format!("{:?}", store.list(&owner, &all()).await.unwrap()));
    }
    found.push(format!("{:?}", store.unfinished().await.unwrap()));
    found.join("\n")
}

#[tokio::test]
async fn a_copy_of_the_files_has_everything_that_was_committed() {
    let (store, folder) = empty();
    let copy = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    for round in 0..5 {
        for number in 0..20 {
            let key = create(&store, "a", &[accepted(&format!("{round}-{number}"))]).await;
            store.append(&key, 1, &[note("on"), note("and on")]).await.unwrap();
            keys.push(key);
        }
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            // After a kill, no process is left that can use the shared memory file.
            if !entry.file_name().to_string_lossy().ends_with("-shm") {
                std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
            }
        }
        assert!(copy.path().join("talaria.db-wal").metadata().unwrap().len() > 0, "some is in the log only");
        let copied = Sqlite::open(&copy.path().join("talaria.db"), &Config::default()).unwrap();
        for key in &keys {
            assert_eq!(task(&copied, key).await, task(&store, key).await);
            assert_eq!(copied.events(key, 0, 9).await.unwrap(), store.events(key, 0, 9).await.unwrap());
        }
    }
}

#[test]
fn kill_9_under_load_loses_nothing_that_was_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mut answered = HashMap::new();
    for round in 1..=5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sqlite::tests::durability::a_process_to_kill", "--ignored", "--nocapture"])
            .env("TALARIA_STORE_FILE", file(&folder))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut note = |line: String| {
            if let Some((task, version)) =
                line.strip_prefix("answered ").and_then(|rest| rest.split_once(' '))
            {
                answered.insert(task.to_owned(), version.parse::<u64>().unwrap());
            }
        };
        for line in lines.by_ref().take(300 * round) {
            note(line.unwrap());
        }
        child.kill().unwrap();
        // What it printed before it died counts too; the last line may be incomplete.
        let mut rest: Vec<String> = lines.map_while(Result::ok).collect();
        rest.pop();
        rest.into_iter().for_each(note);
        child.wait().unwrap();
    }
    assert!(answered.len() > 100, "there was a load: {}", answered.len());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = open(&folder);
    runtime.block_on(async {
        for (id, version) in answered {
            let key = TaskKey { owner: Principal::named("a"), task: id.parse().unwrap() };
            let found = task(&store, &key).await;
            assert!(found.version >= version, "{id}: {} of {version}", found.version);
            let events = store.events(&key, 0, usize::MAX).await.unwrap();
            let sequences: Vec<u64> = events.iter().map(|entry| entry.sequence).collect();
            assert_eq!(sequences, (1..=found.version).collect::<Vec<_>>(), "none lost, none doubled");
        }
    });
    assert_eq!(
        count(&folder, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"),
        0
    );
    assert_eq!(count(&folder, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "runs until it is killed; the test above does both"]
async fn a_process_to_kill() {
    let Some(file) = std::env::var_os("TALARIA_STORE_FILE") else { return };
    let store = Arc::new(Sqlite::open(Path::new(&file), &Config::default()).unwrap());
    let mut set = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let store = Arc::clone(&store);
        set.spawn(async move {
            loop {
                let key = create(&*store, "a", &[accepted(TaskId::fresh().as_str())]).await;
                println!("answered {} 1", key.task);
                for version in [1, 3, 5] {
                    store.append(&key, version, &[note("one"), delta("two")]).await.unwrap();
                    println!("answered {} {}", key.task, version + 2);
                }
            }
        });
    }
    set.join_all().await;
}

#[tokio::test]
async fn dropping_the_store_waits_for_its_queue() {
    for _ in 0..20 {
        let (store, folder) = empty();
        let key = create(&store, "a", &[]).await;
        // Queued, and then nobody waits for the result.
        let events = [note("one")];
        let _ = tokio::time::timeout(Duration::ZERO, store.append(&key, 0, &events)).await;
        let _ = tokio::time::timeout(Duration::ZERO, store.task(&key)).await;
        drop(store);
        let files: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(files.len(), 2, "the log is folded in: {files:?}");
        assert!(
            files.contains(&"talaria.db".into()) && files.contains(&"talaria.db.lock".into()),
            "{files:?}"
        );
        assert_eq!(task(&open(&folder), &key).await.version, 1);
    }
}

#[tokio::test]
async fn only_a_long_task_has_a_snapshot() {
    let (store, folder) = empty();
    let short = create(&store, "a", &[accepted("m"), Event::moved(State::Completed)]).await;
    let long = create(&store, "a", &[accepted("m")]).await;
    let mut snapshots = Vec::new();
    for version in 1..1_000 {
        store.append(&long, version, &[delta("x")]).await.unwrap();
        let now = count(&folder, "SELECT max(snapshot_version) FROM tasks");
        if snapshots.last() != Some(&now) {
            snapshots.push(now);
        }
    }
    assert!((5..=15).contains(&snapshots.len()), "now and then, ever less often: {snapshots:?}");
    assert!(snapshots.last() > Some(&500), "{snapshots:?}");
    assert_eq!(count(&folder, "SELECT count(*) FROM snapshots"), 1);
    let found = task(&store, &long).await;
    assert_eq!((found.version, &found.artifacts[0].parts), (1_000, &vec![Part::text("x".repeat(999))]));
    assert_eq!(task(&store, &short).await.version, 2);
}

#[tokio::test]
async fn deleting_leaves_nothing_in_any_table() {
    let (store, folder) = empty();
    for number in 0..30 {
        let key = create(&store, "a", &[accepted(&format!("m{number}"))]).await;
        let notes: Vec<Event> = (0..100).map(|_| note("n")).collect();
        store.append(&key, 1, &notes).await.unwrap();
        store.append(&key, 101, &[status(State::Completed, number, true)]).await.unwrap();
        let found = task(&store, &key).await;
        let state = StateKey {
            owner: key.owner,
            context: found.context.clone(),
            executor: "it".into(),
            key: "k".into(),
        };
        store.set_state(&state, Some([1].as_slice().into())).await.unwrap();
    }
    assert_eq!(store.forget(&Retention::since(Timestamp::from_millis(0)).tasks(0)).await.unwrap(), 30);
    for table in ["tasks", "events", "snapshots", "accepted", "state"] {
        assert_eq!(count(&folder, &format!("SELECT count(*) FROM {table}")), 0, "{table}");
    }
}

#[tokio::test]
async fn what_is_written_is_merged_while_more_is_written() {
    let (store, folder) = empty();
    let size = || std::fs::metadata(file(&folder)).unwrap().len();
    let before = size();
    let key = create(&store, "a", &[]).await;
    let mut version = 0;
    // By time alone it would be merged after ten seconds, and by its length much later.
    while size() == before && version < 20_000 {
        store.append(&key, version, &[note("x")]).await.unwrap();
        version += 1;
    }
    assert!(version < 20_000, "nothing was merged in {version} writes");
    store.flush().await;
    assert_eq!(count(&folder, "SELECT version FROM tasks"), i64::try_from(version).unwrap());
}

#[tokio::test]
async fn lists_are_read_in_order_from_an_index() {
    let (_store, folder) = empty();
    let connection = Connection::open(file(&folder)).unwrap();
    let plan = |sql: &str| {
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let rows = explain.query_map([], |row| row.get::<_, String>(3)).unwrap();
        rows.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    };
    let order = "ORDER BY status_at DESC, id DESC LIMIT 9";
    let page = plan(&format!("SELECT key, id, context FROM tasks WHERE owner = 'a' AND state = 'b' {order}"));
    assert_eq!(page, "SEARCH tasks USING INDEX tasks_by_status (owner=?)");
    let next =
        plan(&format!("SELECT key, id FROM tasks WHERE owner = 'a' AND (status_at, id) < (5, 'b') {order}"));
    assert!(next.contains("tasks_by_status (owner=? AND ") && !next.contains("B-TREE"), "{next}");
    let total = plan("SELECT count(*) FROM tasks WHERE owner = 'a' AND state = 'b' AND status_at >= 5");
    assert_eq!(total, "SEARCH tasks USING COVERING INDEX tasks_by_status (owner=? AND status_at>?)");
    let context = plan("SELECT count(*) FROM tasks WHERE owner = 'a' AND context = 'c'");
    assert!(context.contains("INDEX tasks_by_context (owner=? AND context=?)"), "{context}");
    let from = "FROM tasks INDEXED BY tasks_by_status WHERE pending > 0 OR state = 'working' ORDER BY key";
    let unfinished = plan(&format!("SELECT owner, id, state {from}"));
    let open = "FROM tasks INDEXED BY tasks_open WHERE ended_at IS NULL AND status_at < 5 ORDER BY key";
    let stuck = plan(&format!("SELECT owner, id {open}"));
    assert_eq!(stuck, "SCAN tasks USING INDEX tasks_open", "the open tasks only, in order");
    assert!(unfinished.contains("COVERING INDEX tasks_by_status"), "{unfinished}");
}

#[tokio::test]
async fn a_file_of_version_1_opens_and_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let connection = Connection::open(file(&folder)).unwrap();
    connection.execute_batch(include_str!("v1.sql")).unwrap();
    drop(connection);
    let store = open(&folder);
    let key = |owner: &str, id: &str| TaskKey { owner: Principal::named(owner), task: id.parse().unwrap() };
    let ended = task(&store, &key("platform", "task-1")).await;
    assert_eq!((ended.version, ended.status.state), (4, State::Completed));
    assert_eq!(ended.status.at, Timestamp::from_millis(1_800_000_000_500));
    assert_eq!(ended.artifacts[0].parts, vec![Part::text("Hers.")]);
    assert_eq!(ended.history[0].parts, vec![Part::text("Whose sandals?")]);
    let long = task(&store, &key("", "task-2")).await;
    assert_eq!((long.version, long.status.state), (103, State::InputRequired));
    assert_eq!(long.artifacts[0].parts, vec![Part::text("y".repeat(100))]);
    assert_eq!(store.events(&key("", "task-2"), 100, 10).await.unwrap().len(), 3);
    assert_eq!(store.unfinished().await.unwrap(), [key("", "task-2")]);
    // The old file does not say which context its message named, so the message counts as new.
    assert_eq!(store.accepted(&Principal::anyone(), &once("message-2")).await.unwrap(), None);
    let recall = Recall {
        owner: Principal::named("platform"),
        context: ended.context.clone(),
        present: ended.id.clone(),
        host_made_only: false,
        messages: 10,
        bytes: 1_000,
    };
    let told: Vec<_> =
        store.recall(&recall).await.unwrap().iter().map(|it| message_text(&it.parts)).collect();
    assert_eq!(told, ["Whose sandals?", "Hers."], "the messages of an old context can be read");
    assert!(store.recall(&Recall { host_made_only: true, ..recall }).await.unwrap().is_empty());
    let state = StateKey {
        owner: Principal::anyone(),
        context: "context-2".parse().unwrap(),
        executor: "writer".into(),
        key: "session".into(),
    };
    assert_eq!(store.state(&state).await.unwrap().as_deref(), Some(b"s-1".as_slice()));
    let query = Query { context: Some("context-1".parse().unwrap()), ..all() };
    assert_eq!(store.list(&Principal::named("platform"), &query).await.unwrap().total, 1);
    store.append(&key("", "task-2"), 103, &[Event::moved(State::Working)]).await.unwrap();
    let log = store.log(Begin::At(0), 1_000).await.unwrap();
    assert_eq!(log.len(), 4 + 104);
    assert_eq!((&log[0].key, log[0].at), (&key("platform", "task-1"), ended.status.at), "as old as its task");
}

#[tokio::test]
async fn a_file_of_version_6_opens_and_can_hold_delegations() {
    let folder = tempfile::tempdir().unwrap();
    let mut connection = Connection::open(file(&folder)).unwrap();
    connection.execute_batch(include_str!("v1.sql")).unwrap();
    schema::migrate(&mut connection, &schema::MIGRATIONS[..6]).unwrap();
    assert_eq!(schema::version(&connection).unwrap(), 6);
    drop(connection);
    let store = open(&folder);
    assert_eq!(store.delegations().await.unwrap(), []);
    let key = TaskKey { owner: Principal::named("platform"), task: "task-1".parse().unwrap() };
    assert_eq!(task(&store, &key).await.status.state, State::Completed, "its tasks stay");
    let row = store.find(&key.task).await.unwrap().expect("it is found by its id");
    assert_eq!((&row.key, row.state), (&key, State::Completed));
    assert!(row.executor.is_some() && !row.text.is_empty(), "read from its events: {row:?}");
    assert_eq!(count(&folder, "PRAGMA user_version"), 10);
}
