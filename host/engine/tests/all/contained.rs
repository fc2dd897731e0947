//! A guest can harm only its own turn.

use std::sync::Arc;
use std::time::Duration;

use talaria_egress::{Access, Config, Egress};
use talaria_engine::{Component, Engine, EngineConfig, Executor, Fault, GrantedTools, Limits, Spec, Wasi};
use talaria_fakes::{FakeGateway, Reply, guest, soon};
use talaria_rig::Rig;
use talaria_store::Memory;
use talaria_turns::{ContextId, Executor as _, FailureKind, Principal, Scope};
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn a_guest_that_spins_is_stopped_at_its_deadline() {
    let limits = Limits { deadline: Duration::from_millis(200), ..Limits::default() };
    let ran = Rig::new("probe").await.limits(limits).run("spin").await;
    assert_eq!(ran.failure().kind, FailureKind::TimedOut);
    assert_eq!(ran.failure().message, "the turn took longer than 0.2s and was stopped");
}

#[tokio::test]
async fn a_guest_that_spins_is_stopped_at_its_cpu_budget() {
    let limits = Limits { cpu: Duration::from_millis(50), ..Limits::default() };
    let ran = Rig::new("probe").await.limits(limits).run("spin").await;
    assert_eq!(ran.failure().message, "the executor computed for longer than 0.05s and was stopped");
}

#[tokio::test]
async fn waiting_costs_no_cpu_budget() {
    let limits = Limits { cpu: Duration::from_millis(100), ..Limits::default() };
    let ran = Rig::new("probe").await.limits(limits).run("sleep 400").await;
    assert_eq!(ran.text(), "true");
}

#[tokio::test]
async fn a_guest_that_waits_is_stopped_at_its_deadline() {
    let limits = Limits { deadline: Duration::from_millis(100), ..Limits::default() };
    let ran = Rig::new("probe").await.limits(limits).run("sleep 600000").await;
    assert_eq!(ran.failure().kind, FailureKind::TimedOut);
}

/// With one thread for everything, a guest that computes must still let other turns run.
#[tokio::test(flavor = "current_thread")]
async fn other_turns_run_while_a_guest_spins() {
    let limits =
        Limits { deadline: Duration::from_secs(600), cpu: Duration::from_secs(600), ..Limits::default() };
    let rig = Rig::new("probe").await.limits(limits);
    tokio::select! {
        ran = rig.run("spin") => panic!("it ended: {ran:?}"),
        () = soon("other turns run", async {
            for _ in 0..20 {
                assert_eq!(rig.run("echo hi").await.text(), "hi");
            }
        }) => {}
    }
}

#[tokio::test]
async fn memory_growth_stops_at_the_limit() {
    let limits = Limits { memory: 8 << 20, ..Limits::default() };
    let rig = Rig::new("probe").await.limits(limits);
    assert_eq!(rig.run("allocate").await.failure().message, "the executor ran out of its 8 MiB of memory");
    assert_eq!(rig.run("hold 4").await.text(), (4 << 20).to_string());
    assert_eq!(rig.run("hold 16").await.failure().kind, FailureKind::Internal);
}

#[tokio::test]
async fn a_panic_and_a_deep_recursion_fail_their_turn_without_details() {
    let rig = Rig::new("probe").await;
    for verb in ["panic at 10.0.0.1 with /etc/passwd", "recurse"] {
        let ran = rig.run(verb).await;
        assert_eq!(ran.failure().kind, FailureKind::Internal, "{verb}");
        assert_eq!(
            ran.failure().message,
            "the executor crashed; the operator's log has the details",
            "{verb}"
        );
    }
    assert_eq!(rig.run("echo still here").await.text(), "still here");
}

#[tokio::test]
async fn logs_events_and_replies_are_bounded() {
    let limits = Limits { call_bytes: 2 << 20, ..Limits::default() };
    let rig = Rig::new("probe").await.limits(limits);
    assert_eq!(rig.run("flood").await.text(), "flooded", "the lines are dropped, not the turn");
    let refused = rig.run("emit-huge 1500000").await;
    assert_eq!(refused.text(), "the event has 1500000 bytes; 1048576 are the most");
    assert_eq!(rig.run("huge-reply 3000000").await.failure().kind, FailureKind::Internal);
    assert_eq!(rig.run("huge-reply 1000").await.text().len(), 1000);
}

#[tokio::test]
async fn state_is_bounded() {
    let rig = Rig::new("probe").await;
    let long = "k".repeat(300);
    assert!(rig.run(&format!("set {long} v")).await.text().contains("longer than 256 bytes"));
    let large = "v".repeat(70_000);
    assert!(rig.run(&format!("set k {large}")).await.text().contains("larger than 65536 bytes"));
}

/// Only crashes and exceeded limits count against a component.
#[tokio::test]
async fn only_faults_of_the_component_itself_count_against_it() {
    let limits = Limits {
        deadline: Duration::from_millis(150),
        cpu: Duration::from_millis(50),
        memory: 8 << 20,
        ..Limits::default()
    };
    let rig = Rig::new("probe").await.limits(limits).setting("base_url", "http://127.0.0.1:1");
    for (prompt, fault) in [
        ("panic now", Some(Fault::Trap)),
        ("recurse", Some(Fault::Trap)),
        ("spin", Some(Fault::Cpu)),
        ("allocate", Some(Fault::Memory)),
        ("bad-metadata", Some(Fault::Answer)),
        ("sleep 600000", None),
        ("fail [upstream] 500", None),
        ("fetch http://127.0.0.1:1/x", None),
        ("echo hi", None),
    ] {
        let (tell, told) = std::sync::mpsc::channel();
        let executor = rig.executor().on_fault(move |fault, _| tell.send(fault).unwrap());
        let _ = run(&executor, &rig, prompt).await;
        assert_eq!(told.try_recv().ok(), fault, "{prompt}");
        assert!(told.try_recv().is_err(), "{prompt}: once");
    }
    let patient = Limits { cpu: Duration::from_secs(60), ..limits };
    let (tell, told) = std::sync::mpsc::channel();
    let executor = rig.limits(patient).executor().on_fault(move |fault, _| tell.send(fault).unwrap());
    let _ = run(&executor, &Rig::new("probe").await, "spin").await;
    assert_eq!(told.try_recv(), Ok(Fault::Deadline), "it was computing");
}

/// An engine with few slots, so that a slot that is not released shows at once.
async fn narrow(slots: u32, concurrency: usize) -> Arc<Executor> {
    let cache = std::env::current_exe().unwrap().parent().unwrap().join("rig-components");
    let config = EngineConfig { slots, scripted_slots: 1, cache_dir: Some(cache), ..EngineConfig::default() };
    let engine = Engine::new(&config, Egress::new(Config::default())).unwrap();
    let component = Component::load(&engine, guest("probe"), |_| ()).await.unwrap();
    Arc::new(Executor::new(Spec {
        name: "probe".into(),
        component: Arc::new(component),
        settings: serde_json::Map::new(),
        access: Arc::new(Access::default()),
        limits: Limits { concurrency, deadline: Duration::from_secs(60), ..Limits::default() },
        wasi: Wasi::default(),
        callbacks: None,
        tools: GrantedTools::default(),
    }))
}

pub(crate) async fn run(
    executor: &Executor,
    rig: &Rig,
    text: &str,
) -> Result<String, talaria_turns::Failure> {
    let store = Arc::new(Memory::new(10));
    let never = CancellationToken::new();
    let (scope, _said) =
        Scope::new(8, never, store, Principal::anyone(), ContextId::fresh(), executor.name());
    let outcome = executor.execute(rig.turn(text), scope).await?;
    Ok(talaria_turns::message_text(&outcome.parts))
}

#[tokio::test]
async fn a_cancelled_turn_releases_its_slot() {
    let rig = Rig::new("probe").await;
    let executor = narrow(1, 10).await;
    for _ in 0..3 {
        let cancelled =
            tokio::time::timeout(Duration::from_millis(50), run(&executor, &rig, "sleep 600000")).await;
        assert!(cancelled.is_err());
        assert_eq!(run(&executor, &rig, "echo hi").await.unwrap(), "hi");
    }
}

/// A slot is not free at once after its turn: pages are released later, several together.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn as_many_turns_as_slots_run_however_fast_they_follow_each_other() {
    let rig = Arc::new(Rig::new("probe").await);
    let executor = narrow(8, 8).await;
    let mut turns = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (rig, executor) = (Arc::clone(&rig), Arc::clone(&executor));
        turns.spawn(async move {
            for _ in 0..50 {
                assert_eq!(run(&executor, &rig, "echo hi").await.unwrap(), "hi");
            }
        });
    }
    while let Some(ended) = turns.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test]
async fn a_full_pool_fails_the_turn_as_retryable() {
    let rig = Rig::new("probe").await;
    let executor = narrow(1, 10).await;
    let waiting = run(&executor, &rig, "sleep 600000");
    tokio::pin!(waiting);
    // Poll it until it holds the slot.
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.is_err());
    let busy = run(&executor, &rig, "echo hi").await.unwrap_err();
    assert_eq!((busy.kind, busy.retryable), (FailureKind::Busy, true));
}

#[tokio::test]
async fn turns_beyond_the_executors_concurrency_wait() {
    let rig = Rig::new("probe").await;
    let executor = narrow(1, 1).await;
    let turns = (0..5).map(|_| run(&executor, &rig, "echo hi"));
    for result in futures_util::future::join_all(turns).await {
        assert_eq!(result.unwrap(), "hi");
    }
}

#[tokio::test]
async fn a_cancelled_turn_closes_its_connections() {
    let gateway = FakeGateway::always(Reply::hang()).await;
    let url = format!("{}/x", gateway.base_url());
    let rig = Rig::new("probe").await.grant([format!("GET {url}").as_str()]);
    let prompt = format!("fetch {url}");
    tokio::select! {
        ran = rig.run(&prompt) => panic!("it ended: {ran:?}"),
        () = gateway.asked(1) => {}
    }
    gateway.let_go().await;
    assert_eq!(gateway.connections(), 0);
}
