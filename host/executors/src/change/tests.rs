//! The state machine of versions, without a process: one executor, `mine`, in a folder, and one step after the other.
//!
//! The component is real; what its upstream does and how often it crashes is set by hand.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use talaria_config::Env;
use talaria_egress::Egress;
use talaria_engine::{Claims, EngineConfig, SessionKeys};
use talaria_redact::Replies;
use talaria_turns::Toolboxes;
use tempfile::TempDir;

use super::*;
use crate::config::{
    Builtin, Builtins, ComponentRef, Config, ExecutorSection, Folder, Grant, Preset, Resolver,
};
use crate::executors::Services;
use crate::loaded::Readiness;
use crate::operator::{NotChanged, Upload};
use crate::quarantine::FAULTS;

/// One step in the life of the executor `mine`. A version is told from another by its number.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Writes a version into the folder, which loads, or does not.
    Write(u32, Setup),
    /// Removes its files from the folder.
    Delete,
    /// Looks at the folder until it has settled.
    Look,
    /// Probes: whether the upstream of the version in service, and of the one that waits, answers.
    Probe {
        current: bool,
        waiting: bool,
    },
    /// The version in service completes a turn.
    Complete,
    /// Crashes the version in service this many times.
    Crash(usize),
    /// The operator's changes.
    Reload,
    Rollback,
    Put(u32, Setup),
    Remove,
    /// Starts the host again.
    Restart,
}

use Setup::{Down, Fine, Invalid};
use Step::*;

/// What `setup` of a version says.
#[derive(Debug, Clone, Copy)]
enum Setup {
    Fine,
    Down,
    Invalid,
}

struct Rig {
    folder: TempDir,
    fail_mode: &'static str,
    builtins: Builtins,
    executors: Option<Executors>,
}

fn name() -> ExecutorName {
    "mine".parse().expect("a name")
}

impl Rig {
    async fn new(fail_mode: &'static str) -> Self {
        Self::with(Builtins::default(), fail_mode).await
    }

    async fn with(builtins: Builtins, fail_mode: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("executors")).expect("a folder");
        let mut rig = Self { folder, fail_mode, builtins, executors: None };
        rig.restart().await;
        rig
    }

    fn path(&self, file: &str) -> std::path::PathBuf {
        self.folder.path().join("executors").join(file)
    }

    async fn restart(&mut self) {
        self.executors = None;
        let base = self.folder.path();
        let config = Config {
            fixed: BTreeMap::new(),
            folder: Folder {
                path: base.join("executors"),
                base: base.to_owned(),
                builtins: self.builtins.clone(),
                sections: BTreeMap::new(),
                main: None,
            },
            state: Some(base.join("state")),
            default: "other".parse().expect("a name"),
            caller_may_choose: false,
            routes: Vec::new(),
            probe_every: Duration::from_secs(3600),
            engine: EngineConfig {
                slots: 4,
                scripted_slots: 1,
                cache_dir: Some(base.join("cache")),
                ..EngineConfig::default()
            },
            egress: talaria_egress::Config::default(),
            session_keys: SessionKeys::default(),
            claims: Claims::default(),
            replies: Replies::default(),
            oci: talaria_oci::Options {
                client: Egress::new(talaria_egress::Config::default()),
                cache: None,
                offline: true,
                max_bytes: 0,
                timeout: Duration::from_secs(1),
                registries: BTreeMap::new(),
            },
            takes_callbacks: false,
            builtins: self.builtins.clone(),
        };
        let (variables, tools) = (Arc::new(|_: &str| None), Toolboxes::default());
        let services =
            Services { variables, callbacks: None, workspaces: None, tools, observer: Arc::new(()) };
        self.executors = Some(Executors::load(&config, services, &|_| ()).await.expect("an engine"));
    }

    fn executors(&self) -> &Executors {
        self.executors.as_ref().expect("it runs")
    }

    fn policy(&self, version: u32, setup: Setup) -> String {
        let setup = match setup {
            Fine => "fine",
            Down => "down",
            Invalid => "invalid",
        };
        let (fail_mode, grant) = (self.fail_mode, "[grant]\negress = [\"GET http://127.0.0.1:9/*\"]");
        format!("deadline = \"{version}s\"\n{fail_mode}\n[settings]\nsetup = \"{setup}\"\n{grant}\n")
    }

    /// Takes a step. The text is what the operator reads; nothing for steps that an operator does not take.
    async fn step(&mut self, step: Step) -> String {
        let shown = |changed: Result<Taken, NotChanged>| match changed {
            Ok(Taken::Now) => "now".to_owned(),
            Ok(Taken::WhenReady) => "when ready".to_owned(),
            Err(error) => format!("{error:?}").split('(').next().unwrap_or_default().to_owned(),
        };
        let who = Who::Caller("operator".into());
        match step {
            Write(version, setup) => {
                std::fs::write(self.path("mine.toml"), self.policy(version, setup)).expect("writable");
                std::fs::copy(component(), self.path("mine.wasm")).expect("writable");
            }
            Delete => {
                for file in ["mine.toml", "mine.wasm"] {
                    std::fs::remove_file(self.path(file)).expect("it is there");
                }
            }
            Look => {
                for _ in 0..2 {
                    self.executors().follow_folder(&|_| ()).await;
                }
            }
            Probe { current, waiting } => {
                let table = self.executors().table();
                let entry = table.entry(&name()).expect("it is in the table");
                entry.current.as_ref().expect("one is in service").set_ready(current);
                if let Some(version) = &entry.waiting {
                    version.set_ready(waiting);
                }
                self.executors().after_probe().await;
            }
            Complete => {
                let table = self.executors().table();
                let (_, loaded) = table.loaded().next().expect("one is in service");
                loaded.complete();
                self.executors().after_faults().await;
            }
            Crash(times) => {
                let table = self.executors().table();
                let (_, loaded) = table.loaded().next().expect("one is in service");
                for _ in 0..times {
                    loaded.crash();
                }
                self.executors().after_faults().await;
            }
            Reload => return shown(self.executors().reload(&name(), &who).await),
            Rollback => return shown(self.executors().rollback(&name(), &who).await.map(|()| Taken::Now)),
            Put(version, setup) => {
                let upload = Upload {
                    component: Some(std::fs::read(component()).expect("it is built")),
                    policy: Some(self.policy(version, setup)),
                };
                return shown(self.executors().put(&name(), upload, &who).await);
            }
            Remove => return shown(self.executors().remove(&name(), &who).await.map(|()| Taken::Now)),
            Restart => self.restart().await,
        }
        String::new()
    }

    /// The table's entry: `1`, `1 waiting 2`, `1 refused`, `1 quarantined`, or nothing.
    fn state(&self) -> String {
        let table = self.executors().table();
        let Some(entry) = table.entry(&name()) else { return "absent".into() };
        let version = |loaded: &Arc<LoadedExecutor>| loaded.config.deadline.as_secs().to_string();
        let mut state = entry.current.as_ref().map_or_else(|| "none".to_owned(), version);
        if entry.current.as_ref().is_some_and(|loaded| loaded.is_quarantined()) {
            state += " quarantined";
        }
        if let Some(waiting) = &entry.waiting {
            state += &format!(" waiting {}", version(waiting));
        }
        if entry.refused.is_some() {
            state += " refused";
        }
        state
    }

    /// What the audit log says happened to it.
    async fn audit(&self) -> Vec<String> {
        let entries = self.executors().audit(100).await.expect("an audit log");
        let shown =
            |entry: &Entry| serde_json::to_value(entry.what).expect("JSON").as_str().map(str::to_owned);
        entries.iter().filter_map(shown).collect()
    }
}

fn component() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../guests/dist/test/probe.wasm"))
}

/// Takes the steps one by one; each is followed by what the operator reads, where one asked, and the state after it.
async fn run(fail_mode: &'static str, steps: &[(Step, &str, &str)], audit: &[&str]) {
    // The future is large.
    let mut rig = Box::pin(Rig::new(fail_mode)).await;
    for (index, (step, answer, state)) in steps.iter().enumerate() {
        let answered = Box::pin(rig.step(*step)).await;
        assert_eq!((answered.as_str(), rig.state().as_str()), (*answer, *state), "step {index}: {step:?}");
    }
    assert_eq!(rig.audit().await, audit);
}

#[tokio::test]
async fn a_version_in_the_folder_goes_into_service_and_out_of_it() {
    let steps = [
        (Look, "", "absent"),
        (Write(1, Fine), "", "absent"),
        (Look, "", "1"),
        (Look, "", "1"),
        (Write(2, Fine), "", "1"),
        (Look, "", "2"),
        (Delete, "", "2"),
        (Look, "", "absent"),
    ];
    run("", &steps, &["loaded", "swapped", "removed"]).await;
}

#[tokio::test]
async fn a_refused_version_leaves_the_last_good_one_in_service_after_a_restart_too() {
    let steps = [
        (Write(1, Fine), "", "absent"),
        (Look, "", "1"),
        (Write(2, Invalid), "", "1"),
        (Look, "", "1 refused"),
        (Look, "", "1 refused"),
        (Restart, "", "1 refused"),
        (Write(3, Fine), "", "1 refused"),
        (Look, "", "3"),
    ];
    run("", &steps, &["loaded", "refused", "refused", "loaded", "swapped"]).await;
}

#[tokio::test]
async fn a_version_that_is_not_ready_waits_while_the_old_one_is() {
    let steps = [
        (Write(1, Fine), "", "absent"),
        (Look, "", "1"),
        (Write(2, Down), "", "1"),
        (Look, "", "1 waiting 2"),
        (Probe { current: true, waiting: false }, "", "1 waiting 2"),
        (Probe { current: true, waiting: true }, "", "2"),
        (Write(3, Down), "", "2"),
        (Look, "", "2 waiting 3"),
        (Probe { current: false, waiting: false }, "", "3"),
        (Write(4, Down), "", "3"),
        (Look, "", "4"),
    ];
    run("", &steps, &["loaded", "waiting", "swapped", "waiting", "swapped", "swapped"]).await;
}

#[tokio::test]
async fn a_rollback_lasts_until_a_file_changes() {
    let steps = [
        (Write(1, Fine), "", "absent"),
        (Look, "", "1"),
        (Rollback, "Conflict", "1"),
        (Write(2, Fine), "", "1"),
        (Look, "", "2"),
        (Rollback, "now", "1"),
        (Look, "", "1"),
        (Restart, "", "1"),
        (Look, "", "1"),
        (Reload, "now", "2"),
        (Rollback, "now", "1"),
        (Write(3, Fine), "", "1"),
        (Look, "", "3"),
    ];
    run("", &steps, &["loaded", "swapped", "rolled-back", "loaded", "swapped", "rolled-back", "swapped"])
        .await;
}

#[tokio::test]
async fn a_version_that_was_never_ready_is_rolled_back_to_the_last_good_one() {
    let steps = [
        (Write(1, Fine), "", "absent"),
        (Look, "", "1"),
        (Probe { current: false, waiting: false }, "", "1"),
        (Write(2, Down), "", "1"),
        (Look, "", "2"),
        (Rollback, "now", "1"),
    ];
    run("", &steps, &["loaded", "swapped", "rolled-back"]).await;
}

#[tokio::test]
async fn an_upload_is_refused_before_anything_is_written() {
    let steps = [
        (Put(1, Invalid), "Refused", "absent"),
        (Look, "", "absent"),
        (Put(1, Fine), "now", "1"),
        (Look, "", "1"),
        (Put(2, Invalid), "Refused", "1"),
        (Put(3, Down), "when ready", "1 waiting 3"),
        (Restart, "", "3"),
        (Remove, "now", "absent"),
        (Remove, "Unknown", "absent"),
        (Reload, "Unknown", "absent"),
    ];
    run("", &steps, &["loaded", "waiting", "loaded", "removed"]).await;
}

#[tokio::test]
async fn faults_in_a_row_put_a_version_into_quarantine() {
    let steps = [
        (Write(1, Fine), "", "absent"),
        (Look, "", "1"),
        (Crash(FAULTS - 1), "", "1"),
        (Crash(1), "", "1 quarantined"),
        (Crash(1), "", "1 quarantined"),
        (Write(2, Fine), "", "1 quarantined"),
        (Look, "", "2"),
    ];
    run("", &steps, &["loaded", "quarantined", "swapped"]).await;
}

#[tokio::test]
async fn a_quarantine_goes_back_to_the_last_version_that_completed_turns_and_stays_there() {
    let steps = [
        (Write(1, Fine), "", "absent"),
        (Look, "", "1"),
        (Complete, "", "1"),
        (Write(2, Fine), "", "1"),
        (Look, "", "2"),
        (Crash(FAULTS), "", "1"),
        (Look, "", "1"),
        (Restart, "", "1"),
    ];
    for fail_mode in ["", "fail_mode = \"last-good\""] {
        run(fail_mode, &steps, &["loaded", "swapped", "quarantined", "rolled-back", "loaded"]).await;
    }
}

#[tokio::test]
async fn a_second_quarantine_does_not_go_back_to_the_version_that_crashed_before() {
    let steps = [
        (Write(1, Fine), "", "absent"),
        (Look, "", "1"),
        (Complete, "", "1"),
        (Write(2, Fine), "", "1"),
        (Look, "", "2"),
        // Version 2 works for a while, and so counts as good until it crashes.
        (Complete, "", "2"),
        (Crash(FAULTS), "", "1"),
        (Crash(FAULTS), "", "1 quarantined"),
        (Look, "", "1 quarantined"),
        (Restart, "", "1"),
        (Crash(FAULTS), "", "1 quarantined"),
    ];
    let audit = ["loaded", "swapped", "quarantined", "rolled-back", "quarantined", "loaded", "quarantined"];
    run("", &steps, &audit).await;
}

#[tokio::test]
async fn a_good_version_is_found_behind_versions_that_completed_nothing() {
    let steps = [
        (Write(1, Fine), "", "absent"),
        (Look, "", "1"),
        (Complete, "", "1"),
        (Write(2, Fine), "", "1"),
        (Look, "", "2"),
        (Write(3, Fine), "", "2"),
        (Look, "", "3"),
        (Restart, "", "3"),
        (Crash(FAULTS), "", "1"),
    ];
    run("", &steps, &["loaded", "swapped", "swapped", "loaded", "quarantined", "rolled-back"]).await;
}

#[tokio::test]
async fn without_a_good_version_or_with_closed_a_quarantine_changes_nothing() {
    let steps = [
        (Write(1, Fine), "", "absent"),
        (Look, "", "1"),
        (Write(2, Fine), "", "1"),
        (Look, "", "2"),
        (Crash(FAULTS), "", "2 quarantined"),
    ];
    run("", &steps, &["loaded", "swapped", "quarantined"]).await;
    let steps = [
        (Write(1, Fine), "", "absent"),
        (Look, "", "1"),
        (Complete, "", "1"),
        (Write(2, Fine), "", "1"),
        (Look, "", "2"),
        (Crash(FAULTS), "", "2 quarantined"),
    ];
    run("fail_mode = \"closed\"", &steps, &["loaded", "swapped", "quarantined"]).await;
}

#[tokio::test]
async fn an_executor_of_which_no_call_is_granted_is_not_ready() {
    let mut rig = Rig::new("").await;
    let readiness = |rig: &Rig| {
        let table = rig.executors().table();
        let (_, loaded) = table.loaded().next().expect("one is in service");
        loaded.readiness()
    };
    for (grant, is_ready) in [
        ("", false),
        ("[grant]\negress = [\"GET http://elsewhere/*\"]", false),
        // A part of what it declares.
        ("[grant]\negress = [\"GET http://127.0.0.1:9/one\"]", true),
    ] {
        std::fs::write(rig.path("mine.toml"), grant).expect("writable");
        std::fs::copy(component(), rig.path("mine.wasm")).expect("writable");
        rig.step(Look).await;
        match readiness(&rig) {
            Readiness::Ready => assert!(is_ready, "{grant}"),
            Readiness::NotReady(reason) => {
                assert!(
                    !is_ready && reason.contains("add egress = [\"GET http://127.0.0.1:9/*\"]"),
                    "{reason}"
                );
            }
            other => panic!("{other}"),
        }
        rig.executors().probe().await;
        assert_eq!(readiness(&rig) == Readiness::Ready, is_ready, "after a probe that passed");
    }
}

#[tokio::test]
async fn a_foreign_component_under_a_built_in_name_gets_nothing_that_it_declares() {
    let builtins = Builtins::new(vec![Builtin {
        name: "mine",
        wasm: &[],
        is_always_loaded: false,
        preset: Preset { secrets: vec!["PROBE_KEY".into()], callbacks: true, ..Preset::default() },
    }]);
    let has_nothing = |grant: &Grant| {
        let has_calls = !grant.egress.is_empty() || !grant.private.is_empty();
        let has_secrets = grant.secrets.names().next().is_some();
        !has_calls && !has_secrets && !grant.callbacks && !grant.wasi.random
    };

    let mut rig = Rig::with(builtins.clone(), "").await;
    std::fs::copy(component(), rig.path("mine.wasm")).expect("writable");
    rig.step(Look).await;
    let table = rig.executors().table();
    let (_, loaded) = table.loaded().next().expect("one is in service");
    assert!(has_nothing(&loaded.config.grant), "in the folder: {:?}", loaded.config.grant);

    let (needs, settings) = (&loaded.executor.component().description().needs, loaded.executor.settings());
    let grant = |component: ComponentRef| {
        let resolver = Resolver { env: Env(&|_| None), folder: rig.folder.path(), builtins: &builtins };
        let section = ExecutorSection { component: Some(component), ..ExecutorSection::default() };
        let executor = resolver.resolve(name(), section, None, &mut Vec::new()).expect("a valid section");
        let mut grant = executor.grant;
        grant.fill_in(&needs.egress, settings);
        grant
    };
    let by_path = grant(ComponentRef::File(component().into()));
    assert!(has_nothing(&by_path), "by its path: {by_path:?}");
    let built_in = grant(ComponentRef::Builtin("mine".into()));
    assert_eq!((built_in.egress.len(), built_in.callbacks), (needs.egress.len(), true), "{built_in:?}");
    assert!(built_in.secrets.names().eq(["PROBE_KEY"]));
}
