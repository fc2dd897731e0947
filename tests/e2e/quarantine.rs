//! Executors that crash: they are quarantined, covered by a fallback, or rolled back.

use talaria_fakes::guest;

use crate::swap::{Site, answers, ask, changes, get, until};

#[tokio::test]
async fn an_executor_that_keeps_crashing_is_quarantined() {
    let site = Site::new("");
    site.put("mine.wasm", guest("probe"));
    site.put("covered.wasm", guest("probe"));
    site.put("covered.toml", "fallback = \"echo\"");
    site.put("echo.wasm", guest("echo"));
    let bridge = site.up();
    for executor in ["mine", "covered"] {
        for number in 0..5 {
            assert!(ask(&bridge, executor, &format!("panic {number}")).await.contains("crashed"));
        }
    }
    let said = ask(&bridge, "mine", "echo hello").await;
    assert!(said.contains("out of service"), "{said}");
    until("both quarantines are in the log", async || {
        changes(&bridge, "covered").await == ["start loaded", "host quarantined"]
    })
    .await;
    assert_eq!(
        changes(&bridge, "mine").await,
        ["start loaded", "host quarantined"],
        "each change is recorded once"
    );
    assert_eq!(ask(&bridge, "covered", "echo hello").await, "echo hello", "the fallback takes its turns");
    let ready = get(&bridge, "/readyz").await;
    assert_eq!(ready["executors"]["mine"]["state"], "quarantined", "{ready}");
    assert_eq!(get(&bridge, "/executors/covered").await["stand_in"], "echo");
    // A new version starts without faults.
    site.put("mine.toml", "deadline = \"9s\"");
    answers(&bridge, "mine", "echo hello", "hello").await;
}

#[tokio::test]
async fn an_executor_that_crashes_is_rolled_back_to_its_last_good_version() {
    let site = Site::new("");
    site.put("mine.wasm", guest("echo"));
    let bridge = site.up();
    site.put("mine.wasm", guest("probe"));
    site.put("mine.toml", "fail_mode = \"last-good\"");
    answers(&bridge, "mine", "echo hello", "hello").await;
    for number in 0..5 {
        ask(&bridge, "mine", &format!("panic {number}")).await;
    }
    answers(&bridge, "mine", "echo hello", "echo hello").await;
    let changes = changes(&bridge, "mine").await;
    assert!(changes.ends_with(&["host quarantined".into(), "host rolled-back".into()]), "{changes:?}");
}
