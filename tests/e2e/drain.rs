//! SIGTERM: a turn under way is finished, its caller gets the answer, then the process ends.
//!
//! Several threads, since starting a bridge blocks one while the gateway answers its probe.

use std::sync::Arc;

use talaria_testkit::{FakeGateway, Reply};
use tokio::sync::Notify;

use crate::bridge::{Start, call, message};

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_under_way_is_answered_before_the_end() {
    let release = Arc::new(Notify::new());
    let held = Arc::clone(&release);
    // Only the turn under test waits.
    let gateway = FakeGateway::start(move |request| {
        let reply = Reply::completion("late but whole");
        if request.json()["messages"][0]["content"] == "wait" { reply.slow(&held) } else { reply }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).env("HERMES_API_BASE", &gateway.base_url()).up();
    let url = bridge.url().to_owned();
    let (answer, code) =
        tokio::join!(call(&url, "SendMessage", message("wait"), &[("a2a-version", "1.0")]), async {
            gateway.asked(1).await;
            bridge.terminate();
            // It refuses new turns from now on; that is how the test knows that the signal has arrived.
            talaria_testkit::soon("it refuses new turns", async {
                loop {
                    let refused = call(&url, "SendMessage", message("hi"), &[("a2a-version", "1.0")]).await;
                    if refused["error"]["code"] == -32000 {
                        return;
                    }
                }
            })
            .await;
            release.notify_waiters();
            release.notify_one();
            tokio::task::spawn_blocking(|| bridge.end().0).await.unwrap()
        });
    assert_eq!(answer["result"]["message"]["parts"][0]["text"], "late but whole");
    assert_eq!(code, Some(0));
}
