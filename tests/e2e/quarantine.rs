//! Executors that crash: they are quarantined, covered by a fallback, or rolled back.

use talaria_fakes::guest;

use crate::swap::{PROBE, Site, answers, ask, changes, get, until};

#[tokio::test]
async fn an_executor_that_keeps_crashing_is_quarantined() {
    let site = Site::new("");
    site.put("mine.wasm", guest("probe"));
    site.put("mine.toml", PROBE);
    site.put("covered.wasm", guest("probe"));
    site.put("covered.toml", format!("fallback = \"echo\"\n{PROBE}"));
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
    site.put("mine.toml", format!("deadline = \"9s\"\n{PROBE}"));
    answers(&bridge, "mine", "echo hello", "hello").await;
}

#[tokio::test]
async fn messages_that_outgrow_an_executor_do_not_take_it_out_of_service() {
    let site = Site::new("");
    site.put("mine.wasm", guest("probe"));
    site.put("mine.toml", PROBE);
    let bridge = site.up();
    // They fit by what built-in executors need, and this component needs more.
    let large = "x".repeat(2 << 20);
    for number in 0..6 {
        let said = ask(&bridge, "mine", &format!("allocate {number} {large}")).await;
        assert!(
            said.contains("with messages of 2097") && said.contains("`executor.mine.grant.memory`"),
            "{said}"
        );
    }
    assert_eq!(ask(&bridge, "mine", "echo hello").await, "hello");
    // Without a large message it is the component that leaks.
    for number in 0..5 {
        let said = ask(&bridge, "mine", &format!("allocate {number}")).await;
        assert!(said.contains("MiB of memory") && !said.contains("with messages"), "{said}");
    }
    let said = ask(&bridge, "mine", "echo hello").await;
    assert!(said.contains("out of service"), "{said}");
}

#[tokio::test]
async fn a_new_version_that_crashes_on_every_turn_gives_way_to_the_last_good_one() {
    let site = Site::new("");
    site.put("mine.wasm", guest("echo"));
    let bridge = site.up();
    answers(&bridge, "mine", "panic now", "panic now").await;
    site.put("mine.toml", PROBE);
    site.put("mine.wasm", guest("probe"));
    // Every turn of the new version crashes; after five faults the old one answers again.
    until("the new version crashes", async || ask(&bridge, "mine", "panic now").await.contains("crashed"))
        .await;
    for number in 0..5 {
        ask(&bridge, "mine", &format!("panic now {number}")).await;
    }
    answers(&bridge, "mine", "panic now", "panic now").await;
    let changed = changes(&bridge, "mine").await;
    assert!(changed.ends_with(&["host quarantined".into(), "host rolled-back".into()]), "{changed:?}");

    bridge.kill();
    let bridge = site.up();
    assert_eq!(ask(&bridge, "mine", "panic now").await, "panic now", "a restart keeps the good version");
    // Other files are tried again.
    site.put("mine.toml", format!("deadline = \"9s\"\n{PROBE}"));
    answers(&bridge, "mine", "echo hello", "hello").await;
}
