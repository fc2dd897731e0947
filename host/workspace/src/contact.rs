//! The start of everything that goes on between the platform and this workspace.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use subtle::ConstantTimeEq as _;
use talaria_observe::Redactor;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

use crate::heart::{Heart, Host, Timing};
use crate::keys::Key;
use crate::platform::Platform;
use crate::prompt::Assembly;
use crate::pulse::Pulse;

/// The platform's tokens, shared by those who call it and those whom it calls.
#[derive(Debug, Clone)]
pub struct Keys {
    token: Arc<Key>,
    secret: Arc<Key>,
}

/// What the platform is told of this workspace, and where.
#[derive(Debug, Clone)]
pub struct Contact {
    /// The platform's address.
    pub platform_url: String,
    /// Where it reaches this workspace.
    pub url: String,
    /// The card, in the shape of the registry, as it changes.
    pub card: watch::Receiver<Value>,
    /// The workspace that this one belongs to.
    pub parent: Option<String>,
    /// When things are done.
    pub timing: Timing,
}

// === impl Keys ===

impl Keys {
    /// Reads what is in the workspace's folder. `token` is used where there is no file with one.
    pub fn open(folder: &Path, token: Option<SecretString>) -> Self {
        let secret = Arc::new(Key::open(folder.join(".platform_inbound_secret"), None));
        Self { token: Arc::new(Key::open(folder.join(".auth_token"), token)), secret }
    }

    pub(crate) fn token(&self) -> Arc<Key> {
        Arc::clone(&self.token)
    }

    /// What the platform and this workspace know and nobody else does.
    pub fn known(&self) -> impl Iterator<Item = SecretString> {
        [self.token.get(), self.secret.get()].into_iter().flatten()
    }

    /// What takes them out of texts.
    pub fn redactor(&self) -> Redactor {
        let known: Vec<_> = self.known().collect();
        Redactor::new(known.iter().map(|secret| secret.expose_secret()))
    }

    /// Whether whoever sends this is the platform. Nobody is while there is no token.
    pub fn is_platform(&self, bearer: &[u8]) -> bool {
        let same = |known: SecretString| bool::from(known.expose_secret().as_bytes().ct_eq(bearer));
        self.known().map(same).fold(false, |any, one| any | one)
    }
}

// === impl Contact ===

impl Contact {
    /// Registers and beats on a thread of its own, until `shutdown`. Returns after the first try, or after `wait`.
    ///
    /// # Errors
    /// When the platform's address is none.
    pub async fn start(
        self,
        assembly: &Assembly,
        keys: &Keys,
        pulse: Arc<Pulse>,
        host: Arc<dyn Host>,
        (tracker, shutdown): (&TaskTracker, CancellationToken),
        wait: Duration,
    ) -> Result<(), String> {
        let workspace = assembly.places().id.clone();
        let (tried, mut first) = watch::channel(false);
        let heart = Heart {
            platform: Platform::new(&self.platform_url, &workspace, Arc::clone(&keys.token))?,
            workspace,
            parent: self.parent,
            url: self.url,
            card: self.card,
            token: Arc::clone(&keys.token),
            secret: Arc::clone(&keys.secret),
            pulse,
            host,
            surroundings: assembly.surroundings(),
            timing: self.timing,
            tried,
        };
        tracker.spawn_blocking(move || match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(heart.run(shutdown)),
            Err(error) => error!(%error, "no heartbeats: there is no thread for them; restart the bridge"),
        });
        let _ = tokio::time::timeout(wait, first.wait_for(|tried| *tried)).await;
        Ok(())
    }
}
