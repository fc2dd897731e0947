//! Connects `talaria-workspace` with the server and the executors, if `WORKSPACE_ID` is set.
//!
//! `app` calls [`WorkspaceService::open`] before anything else reads the workspace, [`WorkspaceService::start`] when turns can be accepted, and
//! [`WorkspaceService::snapshot`] when a stop is requested.

pub(crate) mod late;
mod pages;
pub(crate) mod prompt;
pub(crate) mod tools;
mod transcript;

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;
use talaria_a2a::{Auth, Token};
use talaria_turns::Store;
use talaria_workspace::{
    Activity, Assembly, Host, Keys, PlatformSession, Reading, SelfPrompts, Snapshot, Status, Timing,
    Transcript,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::config::{self, PLATFORM};
use pages::Pages;
use talaria_executors::{Executors, Readiness, Table};
use transcript::Records;

/// How long the start waits for the platform. Normally the first turn then knows the peers, and a platform that is down
/// delays the start only a little.
const FIRST_CONTACT: Duration = Duration::from_secs(3);

/// The service of one workspace.
pub(crate) struct WorkspaceService {
    config: config::Workspace,
    keys: Keys,
    pub(crate) activity: Arc<Activity>,
    transcript: Arc<Transcript>,
    /// The prompts that the host sends to itself; `None` in smoke mode.
    pub(crate) self_prompts: Option<Arc<SelfPrompts>>,
}

/// The state of the host, for heartbeats.
struct HostState {
    executors: Arc<Executors>,
    assembly: Arc<Assembly>,
    auth: Auth,
}

// === impl WorkspaceService ===

impl WorkspaceService {
    /// Reads the snapshot of the last process, and installs plugins. If the store `forgets` everything with the process, the
    /// transcript starts with that of the snapshot.
    pub(crate) fn open(
        config: &config::Workspace,
        store: Arc<dyn Store>,
        forgets: bool,
    ) -> anyhow::Result<Self> {
        let folder = &config.assembly.places().folder;
        let keys = Keys::open(folder, config.token.clone());
        let snapshot = Snapshot::read(&config.snapshot);
        if let Some(Snapshot { timestamp, active_tasks, .. }) = &snapshot {
            info!(timestamp, active_tasks, "read the snapshot of the last stop");
        }
        let before = snapshot.filter(|_| forgets).map(|snapshot| snapshot.adapter.transcript_lines);
        let transcript = Transcript::new(store, before.unwrap_or_default());
        config.assembly.install_plugins();
        let (activity, assembly) = (Arc::<Activity>::default(), Arc::clone(&config.assembly));
        let platform = (config.platform_url.as_str(), &config.egress);
        let self_prompts = SelfPrompts::new(platform, &keys, assembly, Arc::clone(&activity));
        let self_prompts =
            Some(Arc::new(self_prompts.map_err(anyhow::Error::msg)?)).filter(|_| !config.smoke);
        Ok(Self { config: config.clone(), keys, activity, transcript: Arc::new(transcript), self_prompts })
    }

    /// Returns the routes that are served beside A2A.
    pub(crate) fn pages(&self, executors: &Arc<Executors>, auth: Auth) -> Arc<dyn talaria_a2a::ExtraRoutes> {
        let runtime = self.config.assembly.current().manifest.runtime.clone();
        Arc::new(Pages {
            runtime: runtime.unwrap_or_else(|| "talaria".into()),
            keys: self.keys.clone(),
            auth,
            records: Records::new(Arc::clone(&self.transcript), Arc::clone(executors)),
            executors: Arc::clone(executors),
        })
    }

    /// Registers with the platform and sends heartbeats until `shutdown`. `card` is in the shape of the platform's registry.
    pub(crate) async fn start(
        &self,
        card: watch::Receiver<Value>,
        url: &str,
        (executors, auth): (&Arc<Executors>, Auth),
        (tracker, shutdown): (&TaskTracker, &CancellationToken),
    ) -> anyhow::Result<()> {
        if self.config.smoke {
            info!("MOLECULE_SMOKE_MODE is set: the platform is not called");
            return Ok(());
        }
        let assembly = &self.config.assembly;
        let platform_url = self.config.platform_url.as_str().to_owned();
        let timing = Timing { beat: assembly.current().manifest.heartbeat, ..Timing::default() };
        let contact = PlatformSession {
            platform_url: platform_url.clone(),
            egress: self.config.egress.clone(),
            url: url.to_owned(),
            card,
            parent: self.config.parent.clone(),
            timing,
        };
        let state =
            Arc::new(HostState { executors: Arc::clone(executors), assembly: Arc::clone(assembly), auth });
        let threads = (tracker, shutdown.clone());
        let started =
            contact.start(assembly, &self.keys, Arc::clone(&self.activity), state, threads, FIRST_CONTACT);
        started.await.map_err(anyhow::Error::msg)?;
        if let Some(self_prompts) = self.self_prompts.clone() {
            let shutdown = shutdown.clone();
            tracker.spawn(async move { shutdown.run_until_cancelled(self_prompts.run()).await });
        }
        Ok(())
    }

    /// Writes a snapshot of the activity at `reading`.
    pub(crate) async fn snapshot(&self, reading: &Reading) {
        let snapshot = Snapshot::take(self.config.id(), reading, &self.transcript).await;
        snapshot.write(&self.config.snapshot);
    }
}

// === impl HostState ===

impl Host for HostState {
    fn status(&self) -> Option<Status> {
        Some(status(&self.executors.table()))
    }

    fn beat(&self) -> Option<Duration> {
        // The card is renewed from the same files every second.
        Some(self.assembly.last()?.manifest.heartbeat)
    }

    fn admit(&self, secret: &SecretString) {
        if !self.auth.is_required() {
            return;
        }
        let token = Token::new(PLATFORM, secret.clone()).map_err(|error| error.to_string());
        let renewed = token.and_then(|token| match self.auth.renew(&[token]).first() {
            None => Ok(()),
            Some(why) => Err(why.to_string()),
        });
        match renewed {
            Ok(()) => info!(caller = PLATFORM, "platform secret renewed"),
            Err(why) => warn!(caller = PLATFORM, why, "platform secret rejected"),
        }
    }
}

/// Returns the status of the executor that takes the turns.
fn status(executors: &Table) -> Status {
    let default = executors.default_name();
    let why = |readiness: Readiness| match readiness {
        Readiness::Ready => None,
        Readiness::NotReady(reason) | Readiness::Quarantined(reason) => Some(reason),
    };
    let known = executors.loaded().find(|(name, _)| *name == default);
    let refused = executors.refused().find(|(name, _)| *name == default);
    let trouble = match (known, refused) {
        (Some((_, loaded)), _) => why(loaded.readiness()),
        (None, refused) => {
            Some(refused.map_or_else(|| "it is not there".into(), |(_, reason)| reason.to_owned()))
        }
    };
    let trouble = trouble.map(|reason| format!("{default} is not ready: {reason}"));
    let Some((name, taking)) = executors.stand_in(default) else {
        return Status { executor: default.to_string(), wedged: trouble, ..Status::default() };
    };
    let description = taking.executor.component().description();
    let (wedged, note) = match (taking.is_ready(), name == default) {
        (true, true) => (None, None),
        (true, false) => (None, trouble.map(|trouble| format!("{trouble}; {name} takes its turns"))),
        (false, _) => (trouble, None),
    };
    let able = description.capabilities;
    Status {
        executor: name.to_string(),
        capabilities: vec![
            ("heartbeat", able.heartbeat),
            ("scheduler", able.scheduler),
            ("session", able.session),
            ("status_mgmt", able.status_mgmt),
            ("retry", able.retry),
            ("activity_decoration", able.activity_decoration),
            ("channel_dispatch", able.channel_dispatch),
        ],
        idle_timeout_seconds: description.idle_timeout_seconds,
        wedged,
        note,
    }
}
