//! The session with the platform: the tokens, and the thread that registers this workspace and sends its heartbeats.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use subtle::ConstantTimeEq as _;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

use crate::activity::Activity;
use crate::heartbeat::{Heartbeat, Host, Timing};
use crate::keys::Key;
use crate::platform::Platform;
use crate::prompt::Assembly;

/// The tokens of workspace and platform, for calls in both directions.
#[derive(Debug, Clone)]
pub struct Keys {
    token: Arc<Key>,
    secret: Arc<Key>,
}

/// How this workspace presents itself to the platform.
#[derive(Debug, Clone)]
pub struct PlatformSession {
    /// The platform's address.
    pub platform_url: String,
    /// How calls to it leave this host.
    pub egress: talaria_egress::Config,
    /// The address at which it reaches this workspace.
    pub url: String,
    /// The card, in the shape of the registry, as it changes.
    pub card: watch::Receiver<Value>,
    /// The workspace that this one belongs to.
    pub parent: Option<String>,
    /// Intervals and timeouts.
    pub timing: Timing,
}

// === impl Keys ===

impl Keys {
    /// Reads the tokens from the workspace's folder. `token` is used if there is no file with one.
    pub fn open(folder: &Path, token: Option<SecretString>) -> Self {
        let secret = Arc::new(Key::open(folder.join(".platform_inbound_secret"), None));
        Self { token: Arc::new(Key::open(folder.join(".auth_token"), token)), secret }
    }

    pub(crate) fn token(&self) -> Arc<Key> {
        Arc::clone(&self.token)
    }

    /// The token with which this workspace calls the platform, if it is known.
    pub fn workspace_token(&self) -> Option<SecretString> {
        self.token.get()
    }

    /// The tokens that are known now.
    pub fn known(&self) -> impl Iterator<Item = SecretString> {
        [self.token.get(), self.secret.get()].into_iter().flatten()
    }

    /// Whether a bearer token is the platform's. Always false while no token is known.
    pub fn is_platform(&self, bearer: &[u8]) -> bool {
        let same = |known: SecretString| bool::from(known.expose_secret().as_bytes().ct_eq(bearer));
        self.known().map(same).fold(false, |any, one| any | one)
    }
}

// === impl PlatformSession ===

impl PlatformSession {
    /// Registers and sends heartbeats on a thread of its own, until `shutdown`. Returns after the first attempt, or after
    /// `wait`.
    ///
    /// # Errors
    /// If the platform's address cannot be called.
    pub async fn start(
        self,
        assembly: &Assembly,
        keys: &Keys,
        activity: Arc<Activity>,
        host: Arc<dyn Host>,
        (tracker, shutdown): (&TaskTracker, CancellationToken),
        wait: Duration,
    ) -> Result<(), String> {
        let workspace = assembly.places().id.clone();
        let (tried, mut first) = watch::channel(false);
        let heartbeat = Heartbeat {
            platform: Platform::new(&self.platform_url, &workspace, Arc::clone(&keys.token), self.egress)?,
            workspace,
            parent: self.parent,
            url: self.url,
            card: self.card,
            token: Arc::clone(&keys.token),
            secret: Arc::clone(&keys.secret),
            activity,
            host,
            platform_context: assembly.platform_context(),
            timing: self.timing,
            tried,
        };
        tracker.spawn_blocking(move || match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(heartbeat.run(shutdown)),
            Err(error) => {
                error!(%error, "heartbeats not started: cannot build their runtime; restart Talaria")
            }
        });
        let _ = tokio::time::timeout(wait, first.wait_for(|tried| *tried)).await;
        Ok(())
    }
}
