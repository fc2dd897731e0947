//! The agent card, followed: what is served and what the platform is told are what the configuration, the workspace's
//! files and the executors say now.
//!
//! Executors tell of every change of their table. Files are looked at every second, as everywhere in this product, and a
//! change of them counts once two looks in a row found the same, so that nobody is told of a file that is half written or
//! is being replaced. The card is made again, and signed, only where it says something else.
//!
//! A `config.yaml` that turns bad counts as it was when it was good, and a skill that cannot be read is left out with a
//! warning, as for the prompt. A file system that hangs holds up the next look and nothing else: one look at a time, off
//! the threads that serve.
//!
//! Whether streams are offered is the operator's and the workspace's to say, not the executors': one that emits no deltas
//! is streamed all the same, in larger pieces.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_a2a::{CardConfig, LiveCard, Skill};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Card;
use talaria_executors::{Executors, Table};

/// How often files are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// What a component's description calls the media types that it answers with.
const OUTPUT_MODES: &str = "talaria/output-modes";

/// Renews the card.
pub(crate) struct Renewal {
    /// None where no file counts.
    source: Option<Card>,
    executors: Arc<Executors>,
    served: LiveCard,
    /// In the shape of the registry, for the platform.
    registry: watch::Sender<Value>,
    url: String,
    files: Settling,
}

/// What the files say.
struct Settling {
    /// What was found twice.
    settled: CardConfig,
    /// What the last look found, where that is something else.
    found: Option<CardConfig>,
}

/// The card with what executors take and answer with beside text, as they say of themselves.
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

/// The card in the shape of the registry, which is that of A2A 0.3, shortened.
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
    /// Of a card that is served at `url`, and was `first` when the server was made.
    pub(crate) fn new(
        source: Card,
        first: CardConfig,
        url: String,
        executors: Arc<Executors>,
        served: LiveCard,
    ) -> Self {
        let registry = watch::Sender::new(registry(&first, &url));
        let source = source.follows_files().then_some(source);
        Self { source, executors, served, registry, url, files: Settling { settled: first, found: None } }
    }

    /// What the platform is to be told, from now on.
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
                        Some(found) => self.files.look(found),
                        None => {
                            self.source = None;
                            warn!("the card does not follow the workspace's files any more; restart for that");
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
        let card = with_modes(self.files.settled.clone(), &self.executors.table());
        let told = registry(&card, &self.url);
        if self.served.renew(card) {
            info!("the card changed");
        }
        self.registry.send_if_modified(|before| {
            let is_new = *before != told;
            *before = told;
            is_new
        });
    }
}

// === impl Settling ===

impl Settling {
    fn look(&mut self, found: CardConfig) {
        if found == self.settled {
            self.found = None;
        } else if self.found.as_ref() == Some(&found) {
            (self.settled, self.found) = (found, None);
        } else {
            self.found = Some(found);
        }
    }
}

/// What the files say in a while; none where looking at them went wrong.
async fn look(source: Option<Card>) -> Option<CardConfig> {
    let Some(source) = source else { return std::future::pending().await };
    tokio::time::sleep(EVERY).await;
    tokio::task::spawn_blocking(move || source.current()).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_when_two_looks_in_a_row_found_the_same() {
        let card = |name: &str| CardConfig { name: name.into(), ..CardConfig::default() };
        let mut files = Settling { settled: card("a"), found: None };
        // What was found, and what counts then.
        for (found, counts) in [
            ("half", "a"),
            ("b", "a"),
            ("b", "b"),
            ("gone for a moment", "b"),
            ("b", "b"),
            ("gone for a moment", "b"),
            ("gone for a moment", "gone for a moment"),
        ] {
            files.look(card(found));
            assert_eq!(files.settled.name, counts, "{found}");
        }
    }
}
