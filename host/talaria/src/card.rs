//! Keeps the agent card up to date: the served card, and the one in the platform's registry, follow the configuration, the
//! workspace's files and the executors.
//!
//! Executors notify of every change of their table. Files are read every second, and a change counts when two reads in a row
//! find the same, so that a file is never used while it is being written or replaced. The card is made and signed again only
//! if its content changes.
//!
//! If `config.yaml` becomes invalid, its last valid content counts; a skill that cannot be read is left out with a warning,
//! as in the prompt. A file system that hangs delays only the next read: there is one read at a time, off the threads that
//! serve.
//!
//! The operator and the workspace decide whether the card offers streaming, not the executors: an executor that emits no
//! deltas is streamed too, in larger pieces.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_a2a::{CardConfig, LiveCard, Skill};
use talaria_config::Settled;
use talaria_turns::keys::OUTPUT_MODES;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Card;
use talaria_executors::{Executors, Table};

/// How often files are read.
const EVERY: Duration = Duration::from_secs(1);

/// Renews the card when its sources change.
pub(crate) struct Renewal {
    /// `None` if no file is part of the card.
    source: Option<Card>,
    executors: Arc<Executors>,
    served: LiveCard,
    /// The card in the shape of the platform's registry.
    registry: watch::Sender<Value>,
    url: String,
    files: Settled<CardConfig>,
}

/// Adds the media types that the executors declare to a card.
pub(crate) fn with_modes(mut card: CardConfig, executors: &Table) -> CardConfig {
    let add = |modes: &mut Vec<String>, mode: &str| {
        if !modes.iter().any(|known| known == mode) {
            modes.push(mode.to_owned());
        }
    };
    for (_, loaded) in executors.loaded() {
        for mode in loaded.input.names() {
            add(&mut card.default_input_modes, mode);
        }
        let metadata = loaded.executor.component().description().metadata.as_deref();
        let metadata: Value = metadata.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
        let said = metadata.get(OUTPUT_MODES).and_then(Value::as_array).into_iter().flatten();
        for mode in said.filter_map(Value::as_str) {
            add(&mut card.default_output_modes, mode);
        }
    }
    card
}

/// The card in the shape of the platform's registry: a shortened A2A 0.3 card.
fn registry(card: &CardConfig, url: &str) -> Value {
    let skill = |skill: &Skill| json!({ "id": skill.id, "name": skill.name, "description": skill.description, "tags": skill.tags });
    json!({
        "name": card.name,
        "description": card.description,
        "version": card.version,
        "url": url,
        "skills": card.skills.iter().map(skill).collect::<Vec<_>>(),
        "capabilities": { "streaming": card.streaming, "pushNotifications": card.push_notifications },
    })
}

// === impl Renewal ===

impl Renewal {
    /// Renews the card of a server at `url`, which started with the card `first`.
    pub(crate) fn new(
        source: Card,
        first: CardConfig,
        url: String,
        executors: Arc<Executors>,
        served: LiveCard,
    ) -> Self {
        let registry = watch::Sender::new(registry(&first, &url));
        let source = source.follows_files().then_some(source);
        Self { source, executors, served, registry, url, files: Settled::new(first) }
    }

    /// The card for the platform's registry, and its changes.
    pub(crate) fn registry(&self) -> watch::Receiver<Value> {
        self.registry.subscribe()
    }

    /// Follows files and executors until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&mut self) {
        let executors = Arc::clone(&self.executors);
        let mut look = pin!(look(self.source.clone()));
        loop {
            tokio::select! {
                found = &mut look => {
                    match found {
                        Some(found) => drop(self.files.see(found)),
                        None => {
                            self.source = None;
                            warn!("cannot follow the workspace's files any more; restart to follow them again");
                        }
                    }
                    look.set(self::look(self.source.clone()));
                }
                () = executors.changed() => {}
            }
            self.renew();
        }
    }

    fn renew(&self) {
        let card = with_modes(self.files.get().clone(), &self.executors.table());
        let listed = registry(&card, &self.url);
        if self.served.renew(card) {
            info!("agent card changed");
        }
        self.registry.send_if_modified(|before| {
            let is_new = *before != listed;
            *before = listed;
            is_new
        });
    }
}

/// Reads the files after a pause; `None` if that panicked.
async fn look(source: Option<Card>) -> Option<CardConfig> {
    let Some(source) = source else { return std::future::pending().await };
    tokio::time::sleep(EVERY).await;
    tokio::task::spawn_blocking(move || source.current()).await.ok()
}
