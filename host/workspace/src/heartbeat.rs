//! Registration and heartbeat.
//!
//! The promise: as long as this process lives, the platform gets a heartbeat every [`Timing::beat`], and within a second after
//! a turn begins or ends, however busy the host is. So heartbeats have a thread and a runtime of their own and share only
//! counters with turns. No failure ends them: if the platform is down, slow or answers nonsense, a line goes to the log and
//! the next heartbeat is tried.
//!
//! A failed registration is retried with growing delays; until one succeeds, every heartbeat carries the card, from which
//! the platform fills its registry. A platform that answers 404 to a heartbeat has lost the workspace,
//! which registers again. Both answers may carry `auth_token`, `platform_inbound_secret` and `generation`.
//!
//! **The card.** The platform is told of one that changed (`/registry/update-card`) right after the next heartbeat that
//! gets through, which a change brings on, and again after each one until it took it. It is told once: what it was told
//! last is remembered, and a registration tells it too. A platform that answers 404, 405 or 501 has lost the workspace
//! or does not know that route, which cannot be told apart; both are answered by registering again, and since that
//! carries the card, nothing is left to tell. So a platform without the route costs two calls and a line in the log for
//! each change, and nothing in between.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::activity::Activity;
use crate::keys::Key;
use crate::platform::{Platform, Unanswered};
use crate::platform_context::PlatformContext;

/// Intervals and timeouts. The defaults are those of the platform's own runtime; tests use shorter ones.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// The pause between two heartbeats.
    pub beat: Duration,
    /// The shortest pause between two, however many turns begin and end.
    pub least: Duration,
    /// The longest wait for an answer.
    pub timeout: Duration,
    /// The interval at which peers and instructions are fetched.
    pub refresh: Duration,
}

/// The host, as heartbeats need it.
pub trait Host: Send + Sync + 'static {
    /// The state of the default executor, if it is known.
    fn status(&self) -> Option<Status>;

    /// Accepts this secret from the platform from now on.
    fn admit(&self, secret: &SecretString);
}

/// The state of the default executor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Its name.
    pub executor: String,
    /// What it does itself instead of the platform, by the names on the wire.
    pub capabilities: Vec<(&'static str, bool)>,
    /// How long it may be silent.
    pub idle_timeout_seconds: Option<u32>,
    /// Why no turn can succeed now, if none can.
    pub wedged: Option<String>,
    /// What else the operator should know: a fallback that took over, an executor that was refused.
    pub note: Option<String>,
}

/// Keeps the platform informed.
pub(crate) struct Heartbeat {
    pub(crate) platform: Platform,
    pub(crate) workspace: String,
    pub(crate) parent: Option<String>,
    /// The address at which the platform reaches this workspace.
    pub(crate) url: String,
    /// The card, in the shape of the registry, as it changes.
    pub(crate) card: watch::Receiver<Value>,
    pub(crate) token: Arc<Key>,
    pub(crate) secret: Arc<Key>,
    pub(crate) pulse: Arc<Activity>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) surroundings: Arc<ArcSwap<PlatformContext>>,
    pub(crate) timing: Timing,
    /// Becomes true after the first attempt to reach the platform.
    pub(crate) tried: watch::Sender<bool>,
}

/// What is remembered between beats.
#[derive(Default)]
struct Memory {
    registered: bool,
    /// The card that the platform took last.
    card: Option<Value>,
    /// Heartbeats that failed, in a row.
    failures: u32,
    /// Registrations that failed, in a row.
    unregistered: u32,
    /// Cards that it did not take, in a row.
    untold: u32,
    generation: Option<i64>,
    /// Why the surroundings were not refreshed, as it was told last.
    told: Option<String>,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            beat: Duration::from_secs(30),
            least: Duration::from_secs(1),
            timeout: Duration::from_secs(10),
            refresh: Duration::from_secs(60),
        }
    }
}

// === impl Status ===

impl Status {
    /// `runtime_metadata` of a heartbeat. The platform ignores what it does not know.
    fn metadata(&self) -> Value {
        let capabilities: Map<_, _> =
            self.capabilities.iter().map(|(name, is)| ((*name).to_owned(), json!(is))).collect();
        let mut metadata = json!({ "capabilities": capabilities, "executor": self.executor });
        if let (Value::Object(metadata), Some(seconds @ 1..)) = (&mut metadata, self.idle_timeout_seconds) {
            metadata.insert("idle_timeout_seconds".into(), json!(seconds));
        }
        metadata
    }
}

// === impl Heartbeat ===

impl Heartbeat {
    /// Beats until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.beat_for_ever()).await;
    }

    async fn beat_for_ever(self) {
        let (mut memory, mut card) = (Memory::default(), self.card.clone());
        let mut refresh_at = Instant::now();
        if let Some(secret) = self.secret.get() {
            self.host.admit(&secret);
        }
        loop {
            let began = Instant::now();
            if !memory.registered {
                self.register(&mut memory).await;
            }
            if Instant::now() >= refresh_at {
                self.refresh(&mut memory).await;
                // Without the platform the beat decides when it is asked again.
                refresh_at =
                    Instant::now() + if memory.registered { self.timing.refresh } else { Duration::ZERO };
            }
            self.tried.send_replace(true);
            if self.beat(&mut memory).await {
                self.tell_card(&mut memory).await;
            }
            // A first registration should not wait for a whole beat.
            let pause = match memory.registered {
                true => self.timing.beat,
                false => {
                    let tries = memory.failures.max(memory.unregistered);
                    (self.timing.least * 2_u32.saturating_pow(tries.min(10))).min(self.timing.beat)
                }
            };
            let due = sleep_until(began + pause);
            let woken = async {
                tokio::select! {
                    () = self.pulse.changed() => {}
                    () = changed(&mut card) => {}
                }
                sleep_until(began + self.timing.least).await;
            };
            tokio::select! {
                () = due => {}
                () = woken => {}
            }
        }
    }

    async fn register(&self, memory: &mut Memory) {
        let card = self.card.borrow().clone();
        let body = json!({ "id": self.workspace, "url": self.url, "agent_card": card });
        match self.platform.post("/registry/register", &body, self.timing.timeout).await {
            Ok(answer) => {
                (memory.registered, memory.card) = (true, Some(card));
                (memory.unregistered, memory.untold) = (0, 0);
                info!(workspace = self.workspace, url = self.url, "registered with the platform");
                self.take(&answer, memory);
            }
            Err(error) => {
                memory.unregistered = memory.unregistered.saturating_add(1);
                if is_news(memory.unregistered) {
                    let (workspace, tries, fix) = (&self.workspace, memory.unregistered, advice(&error));
                    warn!(workspace, %error, tries, fix, "not registered with the platform; it is tried again");
                }
            }
        }
    }

    /// Says whether it reached the platform.
    async fn beat(&self, memory: &mut Memory) -> bool {
        let reading = self.pulse.read();
        let mut body = json!({
            "workspace_id": self.workspace,
            "error_rate": reading.error_rate,
            "sample_error": reading.sample_error,
            "active_tasks": reading.active,
            "current_task": reading.current,
            "uptime_seconds": reading.uptime,
        });
        if let Value::Object(body) = &mut body {
            if let Some(status) = self.host.status() {
                let word = status
                    .wedged
                    .as_ref()
                    .or(status.note.as_ref().filter(|_| reading.sample_error.is_empty()));
                if let Some(word) = word {
                    body.insert("sample_error".into(), json!(word));
                }
                if status.wedged.is_some() {
                    body.insert("runtime_state".into(), json!("wedged"));
                }
                body.insert("runtime_metadata".into(), status.metadata());
            }
            if !memory.registered {
                body.insert("agent_card".into(), self.card.borrow().clone());
            }
            if let Some(generation) = memory.generation {
                body.insert("observed_generation".into(), json!(generation));
            }
        }
        match self.platform.post("/registry/heartbeat", &body, self.timing.timeout).await {
            Ok(answer) => {
                self.pulse.delivered(&reading);
                if memory.failures > 0 {
                    info!(failures = memory.failures, "heartbeats reach the platform again");
                }
                memory.failures = 0;
                self.take(&answer, memory);
                true
            }
            Err(error) => {
                memory.failures = memory.failures.saturating_add(1);
                if let Unanswered::Refused { status: 404, .. } = error {
                    memory.registered = false;
                }
                if is_news(memory.failures) {
                    let fix = advice(&error);
                    warn!(%error, failures = memory.failures, fix, "a heartbeat did not reach the platform");
                }
                false
            }
        }
    }

    /// Tells the platform of the card, where it knows another.
    async fn tell_card(&self, memory: &mut Memory) {
        let card = self.card.borrow().clone();
        if !memory.registered || memory.card.as_ref() == Some(&card) {
            return;
        }
        let body = json!({ "workspace_id": self.workspace, "agent_card": card });
        match self.platform.post("/registry/update-card", &body, self.timing.timeout).await {
            Ok(_) => {
                info!("the platform knows the new card");
                (memory.card, memory.untold) = (Some(card), 0);
            }
            Err(error @ Unanswered::Refused { status: 404 | 405 | 501, .. }) => {
                info!(%error, "the platform takes no new card; registering again tells it");
                memory.registered = false;
            }
            Err(error) => {
                memory.untold = memory.untold.saturating_add(1);
                if is_news(memory.untold) {
                    warn!(%error, tries = memory.untold, "the platform did not take the new card; it is tried again");
                }
            }
        }
    }

    /// What the platform gives along with an answer.
    fn take(&self, answer: &Value, memory: &mut Memory) {
        let text =
            |name: &str| answer.get(name)?.as_str().filter(|text| !text.is_empty()).map(SecretString::from);
        if let Some(token) = text("auth_token") {
            self.token.take(token);
        }
        if let Some(secret) = text("platform_inbound_secret")
            && self.secret.take(secret)
            && let Some(secret) = self.secret.get()
        {
            self.host.admit(&secret);
        }
        memory.generation = answer.get("generation").and_then(Value::as_i64).or(memory.generation);
    }

    /// Asks for what the prompt needs. What cannot be had stays as it was.
    async fn refresh(&self, memory: &mut Memory) {
        let before = self.surroundings.load_full();
        let all = PlatformContext::fetch(&self.platform, &self.workspace, self.parent.as_deref(), &before);
        let Ok((fresh, problem)) = timeout(self.timing.timeout, all).await else { return };
        if fresh != *before {
            self.surroundings.store(Arc::new(fresh));
        }
        if problem != memory.told {
            if let Some(problem) = &problem {
                warn!(problem, "the prompt lacks what the platform did not say, or has what it said before");
            }
            memory.told = problem;
        }
    }
}

/// Resolves when the card changed; never again where nobody is left to change it.
async fn changed(card: &mut watch::Receiver<Value>) {
    if card.changed().await.is_err() {
        std::future::pending().await
    }
}

/// Whether so many failures in a row are worth a line: the first, and every tenth.
fn is_news(failures: u32) -> bool {
    failures == 1 || failures.is_multiple_of(10)
}

/// What to do about a refusal.
fn advice(error: &Unanswered) -> &'static str {
    match error {
        Unanswered::Refused { status: 401 | 403, .. } => {
            "the token in .auth_token is not this workspace's; restart the workspace from the platform, which writes a new one"
        }
        Unanswered::Refused { status: 409, .. } => {
            "the platform knows this workspace otherwise; check WORKSPACE_ID and that no other bridge runs for it"
        }
        Unanswered::Refused { status: 400, .. } => "the platform does not take this address; set `a2a.url`",
        _ => "check PLATFORM_URL",
    }
}
