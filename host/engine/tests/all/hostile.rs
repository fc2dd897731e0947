//! Guests that attack the host. Each attack ends in a typed failure of its own turn, or has no effect.
//!
//! `contained` has the plain attacks (spinning, memory, recursion, large outputs). Those here target the network,
//! secrets, other contexts, and the loader.

use std::time::{Duration, Instant};

use talaria_engine::{Component, FOLDER, Limits, LoadError, Wasi};
use talaria_fakes::{FakeGateway, Reply, guest, soon};
use talaria_rig::{MailHost, Rig, Trace};
use talaria_turns::{ContextId, FailureKind, Turn};
use wasmparser::{Parser, Payload};

mod flood;
mod loading;
mod network;
mod transcript;

async fn hostile() -> Rig {
    Rig::new("hostile").await
}

/// The benchmark measures how much later they end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spinning_guests_end_at_their_deadline_however_many_they_are() {
    let limits = Limits { deadline: Duration::from_millis(300), ..Limits::default() };
    let rig = hostile().await.limits(limits);
    let turns: Vec<_> = (0..8).map(|_| rig.begin(rig.turn("spin")).0).collect();
    for ran in futures_util::future::join_all(turns).await {
        assert_eq!(ran.unwrap_err().kind, FailureKind::TimedOut);
    }
}

/// However many guests spin, one thread is left for other turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_turns_run_while_many_guests_spin() {
    let limits =
        Limits { deadline: Duration::from_secs(600), cpu: Duration::from_secs(600), ..Limits::default() };
    let rig = hostile().await.limits(limits);
    let spinning: Vec<_> = (0..8).map(|_| rig.begin(rig.turn("spin")).0).collect();
    tokio::select! {
        _ = futures_util::future::join_all(spinning) => panic!("they ended"),
        () = soon("other turns run", async {
            for _ in 0..50 {
                assert!(rig.run("hash").await.result.is_ok());
            }
        }) => {}
    }
}

/// Waiting for a thread is not computing: each gets its whole budget.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_guest_gets_its_whole_computing_time() {
    let limits = Limits { cpu: Duration::from_millis(200), ..Limits::default() };
    let rig = hostile().await.limits(limits);
    let started = Instant::now();
    let turns: Vec<_> = (0..4).map(|_| rig.begin(rig.turn("spin")).0).collect();
    for ran in futures_util::future::join_all(turns).await {
        assert_eq!(ran.unwrap_err().message, "the executor computed for longer than 0.2s and was stopped");
    }
    // One guest computes at a time beyond a tick, so the four budgets follow each other.
    assert!(started.elapsed() > Duration::from_millis(600), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_million_events_are_bounded_by_their_bytes() {
    let limits = Limits { output_bytes: 1_000_000, ..Limits::default() };
    let ran = hostile().await.limits(limits).run("emit 1000000").await;
    assert_eq!(ran.text(), "3115", "each costs 321 bytes");
}

#[tokio::test]
async fn events_before_a_crash_are_delivered() {
    let ran = hostile().await.stream("panic-halfway").await;
    assert_eq!(ran.failure().kind, FailureKind::Internal);
    assert!("half of it, ".starts_with(&ran.deltas().concat()), "{:?}", ran.deltas());
}

#[tokio::test]
async fn a_panic_without_wasi_is_logged_with_its_message() {
    let trace = Trace::start();
    let ran = hostile().await.run("panic out-of-wits").await;
    assert_eq!(ran.failure().kind, FailureKind::Internal);
    assert!(!ran.failure().message.contains("out-of-wits"), "{}", ran.failure().message);
    let said = trace.events();
    assert!(said.iter().any(|line| line.contains("out-of-wits")), "{said:?}");
}

#[tokio::test]
async fn a_flood_of_log_lines_does_not_slow_the_turn() {
    assert_eq!(hostile().await.run("log 100000").await.text(), "logged");
}

#[tokio::test]
async fn turns_beyond_the_queue_fail_as_busy() {
    let limits = Limits { concurrency: 1, queue: 1, ..Limits::default() };
    let rig = hostile().await.limits(limits);
    let gateway = FakeGateway::always(Reply::hang()).await;
    let rig = rig.setting("base_url", gateway.base_url());
    let executor = std::sync::Arc::new(rig.executor());
    let turn = |text: &str| {
        let (scope, said) = talaria_turns::Scope::new(
            8,
            tokio_util::sync::CancellationToken::new(),
            std::sync::Arc::new(talaria_store::Memory::new(10)),
            talaria_turns::Principal::anyone(),
            ContextId::fresh(),
            "hostile",
        );
        let (executor, turn) = (std::sync::Arc::clone(&executor), rig.turn(text));
        async move {
            let _said = said;
            talaria_turns::Executor::execute(&*executor, turn, scope).await
        }
    };
    let mut running = Box::pin(turn(&format!("hold {}/x", gateway.base_url())));
    tokio::select! {
        ran = &mut running => panic!("it ended: {ran:?}"),
        () = gateway.asked(1) => {}
    }
    let mut waiting = Box::pin(turn("hash"));
    assert!(futures_util::poll!(&mut waiting).is_pending(), "the second waits");
    let busy = turn("hash").await.unwrap_err();
    assert_eq!((busy.kind, busy.retryable), (FailureKind::Busy, true), "the third is refused");
    drop(running);
    soon("the second runs", waiting).await.unwrap();
}

#[tokio::test]
async fn a_context_cannot_read_the_state_of_another() {
    let limits = Limits { state_bytes: 100, ..Limits::default() };
    let rig = hostile().await.limits(limits);
    assert_eq!(rig.run("remember 10").await.text(), "8");
    assert_ne!(rig.run("recall k0").await.text(), "None");
    let other = Turn { context: ContextId::fresh(), ..rig.turn("recall k0") };
    assert_eq!(rig.execute(other).await.text(), "None");
}

#[tokio::test]
async fn the_state_of_a_context_is_bounded() {
    let limits = Limits { state_bytes: 10_000, ..Limits::default() };
    let rig = hostile().await.limits(limits);
    assert_eq!(rig.run("remember 1000").await.text(), "9", "ten, but for the bytes of their keys");
    let other = Turn { context: ContextId::fresh(), ..rig.turn("remember 1000") };
    assert_eq!(rig.execute(other).await.text(), "9", "each context has its own bound");
}

#[tokio::test]
async fn a_turn_cannot_take_the_reply_that_another_turn_expects() {
    let mail = MailHost::start().await;
    let rig = Rig::new("probe").await.callbacks(mail.callbacks());
    let (running, mut said) = rig.begin(rig.turn("expect m1"));
    let mut running = Box::pin(running);
    tokio::select! {
        ran = &mut running => panic!("it ended: {ran:?}"),
        _ = soon("it waits", said.recv()) => {}
    }
    let stranger = Rig::new("probe").await.callbacks(mail.callbacks());
    assert_eq!(stranger.run("expect m1").await.text(), "ErrorKind::Duplicate");
}

#[tokio::test]
async fn clocks_are_coarse_unless_granted() {
    let coarse = hostile().await.wasi(Wasi::default());
    for _ in 0..3 {
        assert_eq!(coarse.run("clock").await.text(), "0");
    }
    let precise = hostile().await.wasi(Wasi { precise_clock: true, ..Wasi::default() });
    let mut told = Vec::new();
    for _ in 0..5 {
        told.push(precise.run("clock").await.text().to_owned());
    }
    assert!(told.iter().any(|told| told != "0"), "{told:?}");
}

#[tokio::test]
async fn random_numbers_differ_between_instances_with_or_without_the_grant() {
    for random in [false, true] {
        let rig = hostile().await.wasi(Wasi { random, ..Wasi::default() });
        let (one, two) = (rig.run("hash").await, rig.run("hash").await);
        assert_ne!(one.text(), two.text());
    }
}

#[tokio::test]
async fn a_folder_is_visible_only_if_granted_and_is_read_only() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("granted");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("prompt.txt"), "be kind").unwrap();
    std::fs::write(home.path().join("secret.txt"), "not yours").unwrap();
    std::os::unix::fs::symlink("../secret.txt", folder.join("link.txt")).unwrap();
    let without = hostile().await;
    assert!(without.run(&format!("read {FOLDER}/prompt.txt")).await.text().starts_with("error"));
    let with = hostile().await.wasi(Wasi { folder: Some(folder.clone()), ..Wasi::default() });
    assert_eq!(with.run(&format!("read {FOLDER}/prompt.txt")).await.text(), "be kind");
    for path in ["../secret.txt", "link.txt", "/etc/passwd"] {
        let ran = with.run(&format!("read {FOLDER}/{path}")).await;
        assert!(ran.text().starts_with("error"), "{path}: {}", ran.text());
    }
    for path in ["new.txt", "prompt.txt"] {
        let ran = with.run(&format!("write {FOLDER}/{path}")).await;
        assert!(ran.text().starts_with("error"), "{path}: {}", ran.text());
    }
    assert_eq!(std::fs::read_to_string(folder.join("prompt.txt")).unwrap(), "be kind");
}
