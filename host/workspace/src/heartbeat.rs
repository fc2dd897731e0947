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
//! **The card.** A change of the card triggers a heartbeat. After that, or after the next heartbeat that succeeds, the new
//! card is sent to `/registry/update-card`, and again after each heartbeat until the platform accepts it. A card that the
//! platform accepted, there or in a registration, is not sent again. If the platform answers 404, 405 or 501, it has lost
//! the workspace or does not have that route; the two look the same, and for both the workspace registers again, which
//! also delivers the card. So a platform without the route costs two calls and a log line per change, and nothing in
//! between.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use talaria_backoff::Backoff;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::activity::Activity;
use crate::keys::Key;
use crate::platform::{CallError, Platform};
use crate::platform_context::PlatformContext;

/// Intervals and timeouts. The defaults are those of the platform's own runtime; tests use shorter ones.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// The interval between two heartbeats.
    pub beat: Duration,
    /// The shortest interval between two heartbeats, however many turns begin and end.
    pub least: Duration,
    /// The timeout of a call.
    pub timeout: Duration,
    /// The interval at which peers and instructions are fetched.
    pub refresh: Duration,
}

/// The host, as seen by heartbeats.
pub trait Host: Send + Sync + 'static {
    /// The state of the default executor, if it is known.
    fn status(&self) -> Option<Status>;

    /// Accepts this secret from the platform from now on.
    fn admit(&self, secret: &SecretString);

    /// The interval between two heartbeats now, if it can change; [`Timing::beat`] otherwise. Must not block.
    fn beat(&self) -> Option<Duration> {
        None
    }
}

/// The state of the default executor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Its name.
    pub executor: String,
    /// What the executor does itself instead of the platform, by the names on the wire.
    pub capabilities: Vec<(&'static str, bool)>,
    /// How long the executor may be silent.
    pub idle_timeout_seconds: Option<u32>,
    /// The reason why every turn would fail now; `None` while turns can succeed.
    pub wedged: Option<String>,
    /// A note for the operator, such as a fallback that took over or an executor that was refused.
    pub note: Option<String>,
}

/// Registers the workspace and sends its heartbeats.
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
    pub(crate) activity: Arc<Activity>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) platform_context: Arc<ArcSwap<PlatformContext>>,
    pub(crate) timing: Timing,
    /// Becomes true after the first attempt to reach the platform.
    pub(crate) tried: watch::Sender<bool>,
}

/// The state between heartbeats.
#[derive(Default)]
struct Memory {
    registered: bool,
    /// The card that the platform accepted last.
    card: Option<Value>,
    /// The number of heartbeats that failed in a row.
    failures: u32,
    /// The number of registrations that failed in a row.
    failed_registrations: u32,
    /// The number of card updates that failed in a row.
    failed_updates: u32,
    generation: Option<i64>,
    /// The last problem of fetching the platform's context, so that each is logged once.
    context_problem: Option<String>,
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
    /// The `runtime_metadata` of a heartbeat. The platform ignores members that it does not know.
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
    /// Sends heartbeats until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.beat_forever()).await;
    }

    async fn beat_forever(self) {
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
                // Without a registration every heartbeat tries to fetch the context again.
                refresh_at =
                    Instant::now() + if memory.registered { self.timing.refresh } else { Duration::ZERO };
            }
            self.tried.send_replace(true);
            if self.beat(&mut memory).await {
                self.send_card(&mut memory).await;
            }
            // The next attempt to register should not wait for a whole interval.
            let pause = match memory.registered {
                true => self.host.beat().unwrap_or(self.timing.beat),
                false => {
                    let failures = memory.failures.max(memory.failed_registrations);
                    // The first failure already doubles the delay.
                    Backoff::from_first(self.timing.least).up_to(self.timing.beat).delay(failures.min(10) + 1)
                }
            };
            let due = sleep_until(began + pause);
            let woken = async {
                tokio::select! {
                    () = self.activity.changed() => {}
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
                (memory.failed_registrations, memory.failed_updates) = (0, 0);
                info!(workspace = self.workspace, url = self.url, "registered with the platform");
                self.take(&answer, memory);
            }
            Err(error) => {
                memory.failed_registrations = memory.failed_registrations.saturating_add(1);
                if is_logged(memory.failed_registrations) {
                    let (workspace, tries, fix) =
                        (&self.workspace, memory.failed_registrations, advice(&error));
                    warn!(workspace, %error, tries, fix, "not registered with the platform; will retry");
                }
            }
        }
    }

    /// Sends a heartbeat. Returns whether the platform accepted it.
    async fn beat(&self, memory: &mut Memory) -> bool {
        let reading = self.activity.read();
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
                let message = status
                    .wedged
                    .as_ref()
                    .or(status.note.as_ref().filter(|_| reading.sample_error.is_empty()));
                if let Some(message) = message {
                    body.insert("sample_error".into(), json!(message));
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
                self.activity.delivered(&reading);
                if memory.failures > 0 {
                    info!(failures = memory.failures, "heartbeats succeed again");
                }
                memory.failures = 0;
                self.take(&answer, memory);
                true
            }
            Err(error) => {
                memory.failures = memory.failures.saturating_add(1);
                if let CallError::Rejected { status: 404, .. } = error {
                    memory.registered = false;
                }
                if is_logged(memory.failures) {
                    let fix = advice(&error);
                    warn!(%error, failures = memory.failures, fix, "heartbeat failed; will retry");
                }
                false
            }
        }
    }

    /// Sends the card to the platform, unless it accepted this card last.
    async fn send_card(&self, memory: &mut Memory) {
        let card = self.card.borrow().clone();
        if !memory.registered || memory.card.as_ref() == Some(&card) {
            return;
        }
        let body = json!({ "workspace_id": self.workspace, "agent_card": card });
        match self.platform.post("/registry/update-card", &body, self.timing.timeout).await {
            Ok(_) => {
                info!("sent the new card to the platform");
                (memory.card, memory.failed_updates) = (Some(card), 0);
            }
            Err(error @ CallError::Rejected { status: 404 | 405 | 501, .. }) => {
                info!(%error, "the platform does not accept card updates; registering again with the new card");
                memory.registered = false;
            }
            Err(error) => {
                memory.failed_updates = memory.failed_updates.saturating_add(1);
                if is_logged(memory.failed_updates) {
                    warn!(%error, tries = memory.failed_updates, "new card not sent to the platform; will retry");
                }
            }
        }
    }

    /// Takes over the tokens and the generation in a response.
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

    /// Fetches the platform's context for the prompt. A part that cannot be fetched stays as it was.
    async fn refresh(&self, memory: &mut Memory) {
        let before = self.platform_context.load_full();
        let all = PlatformContext::fetch(&self.platform, &self.workspace, self.parent.as_deref(), &before);
        let Ok((fresh, problem)) = timeout(self.timing.timeout, all).await else { return };
        if fresh != *before {
            self.platform_context.store(Arc::new(fresh));
        }
        if problem != memory.context_problem {
            if let Some(problem) = &problem {
                warn!(problem, "cannot fetch the platform's context; the prompt keeps the last one");
            }
            memory.context_problem = problem;
        }
    }
}

/// Resolves when the card changes; never, once its sender is gone.
async fn changed(card: &mut watch::Receiver<Value>) {
    if card.changed().await.is_err() {
        std::future::pending().await
    }
}

/// Whether to log after this many failures in a row: the first, and every tenth.
fn is_logged(failures: u32) -> bool {
    failures == 1 || failures.is_multiple_of(10)
}

/// Advice for the operator on how to fix an error.
fn advice(error: &CallError) -> &'static str {
    match error {
        CallError::Rejected { status: 401 | 403, .. } => {
            "the token in .auth_token is not this workspace's; restart the workspace from the platform, which writes a new one"
        }
        CallError::Rejected { status: 409, .. } => {
            "the platform has different data for this workspace; check WORKSPACE_ID and that no other bridge runs for it"
        }
        CallError::Rejected { status: 400, .. } => {
            "the platform rejects the address of this workspace; set `a2a.url`"
        }
        _ => "check PLATFORM_URL",
    }
}
