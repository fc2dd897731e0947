//! One host owns a store; a stop leaves a complete file; backups, restores and checks work beside the host or refuse.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use talaria_client::Message;
use talaria_fakes::{FakeGateway, Reply};

use crate::bridge::{Bridge, Start, keep_off_the_default_port, run, stderr, stdout, talaria};

const CONFIG: &str = "[executors]\ndefault = \"conformance\"\n[a2a]\nreply = \"task\"\n";

fn up(folder: &Path) -> Bridge {
    Start::new(folder).config(CONFIG).up()
}

/// Sends a message and returns the id of its task, which is over.
async fn a_task(bridge: &Bridge) -> String {
    bridge
        .send(Message::new("tck-complete"), talaria_client::Delivery::Whole)
        .await
        .status
        .task
        .expect("a task")
}

/// Tries to start a second host with a store.
fn second(folder: &Path, store: &Path) -> Output {
    let config = format!("{CONFIG}[store]\nurl = \"sqlite:{}\"\n", store.display());
    std::fs::write(folder.join("talaria.toml"), config).unwrap();
    keep_off_the_default_port(folder);
    run(talaria(folder).args(["serve", "--listen", "127.0.0.1:0", "--output", "json"]))
}

fn store(folder: &Path, arguments: &[&str]) -> (Output, Value) {
    let output = run(talaria(folder).arg("store").args(arguments).args(["--output", "json"]));
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output, report)
}

fn log_of(folder: &Path) -> u64 {
    std::fs::metadata(folder.join("talaria.db-wal")).map_or(0, |log| log.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_host_on_the_same_store_exits_and_leaves_the_turns_of_the_first_alone() {
    let gateway = FakeGateway::always(Reply::hang()).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).env("HERMES_API_BASE", &gateway.base_url()).up();
    let task = bridge.start_turn("wait").await;
    gateway.asked(1).await;

    let (other, linked) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let link = linked.path().join("link.db");
    std::os::unix::fs::symlink(folder.path().join("talaria.db"), &link).unwrap();
    for path in [folder.path().join("talaria.db"), link] {
        let refused = second(other.path(), &path);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        let address = bridge.url().trim_start_matches("http://").trim_end_matches('/');
        for part in
            ["is in use", &format!("pid {}", bridge.id()), &format!("serving {address}"), "`store.url`"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    assert_eq!(bridge.task(&task).await["status"]["state"], "TASK_STATE_WORKING");

    // Commands that only read work, and say whose store it is.
    let checked = run(talaria(folder.path()).arg("check").env("HERMES_API_BASE", gateway.base_url()));
    assert_eq!(checked.status.code(), Some(0), "{}{}", stdout(&checked), stderr(&checked));
    assert!(
        stdout(&checked).contains(&format!("in use by talaria, pid {}", bridge.id())),
        "{}",
        stdout(&checked)
    );
    let found = run(talaria(folder.path()).arg("doctor").env("HERMES_API_BASE", gateway.base_url()));
    let line = format!("store owner: talaria, pid {}", bridge.id());
    assert!(stdout(&found).contains(&line), "{}", stdout(&found));
    let listed =
        run(talaria(folder.path()).args(["executor", "list"]).env("HERMES_API_BASE", gateway.base_url()));
    assert_eq!(listed.status.code(), Some(0), "{}", stderr(&listed));
    assert_eq!(bridge.task(&task).await["status"]["state"], "TASK_STATE_WORKING", "no turn was recovered");

    // The kernel releases the lock of a host that was killed.
    bridge.kill();
    let bridge = Start::new(folder.path()).env("HERMES_API_BASE", &gateway.base_url()).up();
    assert_eq!(bridge.settled(&task).await["status"]["state"], "TASK_STATE_FAILED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_leaves_everything_in_the_file_and_nothing_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = up(folder.path());
    let task = a_task(&bridge).await;
    assert!(log_of(folder.path()) > 0, "so far it is in the log");
    bridge.terminate();
    assert_eq!(bridge.end().0, Some(0));
    assert_eq!(log_of(folder.path()), 0);

    // The file alone is the store.
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(folder.path().join("talaria.db"), copy.path().join("talaria.db")).unwrap();
    let bridge = up(copy.path());
    assert_eq!(bridge.task(&task).await["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_running_host_is_restored_once_it_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = up(folder.path());
    let before = a_task(&bridge).await;
    let load = async {
        for _ in 0..30 {
            a_task(&bridge).await;
        }
    };
    let place = folder.path().to_owned();
    let copying = tokio::task::spawn_blocking(move || store(&place, &["backup", "copy.db"]));
    let ((), copied) = tokio::join!(load, copying);
    let (output, report) = copied.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(report["file"], "copy.db", "{report}");
    let after = a_task(&bridge).await;

    let again = store(folder.path(), &["backup", "copy.db"]).0;
    assert!(again.status.code() == Some(1) && stderr(&again).contains("--force"), "{}", stderr(&again));
    let refused = store(folder.path(), &["restore", "copy.db"]).0;
    let said = stderr(&refused);
    assert!(refused.status.code() == Some(1) && said.contains(&format!("pid {}", bridge.id())), "{said}");
    let (checked, report) = store(folder.path(), &["check"]);
    assert_eq!((checked.status.code(), &report["ok"]), (Some(0), &true.into()), "{report}");
    assert_eq!(report["tasks"], 32, "{report}");
    assert_eq!(report["owner"]["pid"], bridge.id(), "{report}");

    bridge.terminate();
    assert_eq!(bridge.end().0, Some(0));
    let (output, report) = store(folder.path(), &["restore", "copy.db"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(report["replaced"].as_str().is_some_and(|path| path.ends_with("talaria.db.bak")), "{report}");
    assert_eq!(store(folder.path(), &["check"]).0.status.code(), Some(0));
    let bridge = up(folder.path());
    assert_eq!(bridge.task(&before).await["status"]["state"], "TASK_STATE_COMPLETED");
    let gone = bridge.call("GetTask", serde_json::json!({ "id": after })).await;
    assert!(gone["error"].is_object(), "{gone}");
}

#[test]
fn a_damaged_store_fails_its_check_and_one_in_memory_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = store(folder.path(), &["check"]);
    assert!(output.status.code() == Some(1) && stderr(&output).contains("there is no store at"));
    std::fs::write(folder.path().join("talaria.db"), "no database, but long enough ".repeat(500)).unwrap();
    let (output, _) = store(folder.path(), &["check"]);
    assert!(output.status.code() == Some(1) && stderr(&output).contains("damaged"), "{}", stderr(&output));
    std::fs::write(folder.path().join("talaria.toml"), "[store]\nurl = \"memory:\"\n").unwrap();
    let (output, _) = store(folder.path(), &["check"]);
    assert!(output.status.code() == Some(1) && stderr(&output).contains("in memory"), "{}", stderr(&output));
}
