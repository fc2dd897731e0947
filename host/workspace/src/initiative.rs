//! What a workspace says by itself: a first prompt, once, one whenever it has been idle for a while, and what came too late
//! to be an answer.
//!
//! Prompts go through the platform's proxy, so that they appear in the conversation like everybody's messages, and come back
//! as ordinary turns. The first prompt is marked as sent *before* it is sent: one that makes the agent crash must not do so
//! at every start. It waits for the first heartbeat that the platform took, so that one which starts later than the
//! workspace, or an end of this process before that, does not lose it.
//!
//! A late reply goes to the person who asked (`/notify`), who has read by then that there would be none. It is tried a few
//! times and then given up, since it is with its task in any case.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_backoff::Backoff;
use tracing::{info, warn};

use crate::contact::Keys;
use crate::platform::{Platform, Unanswered};
use crate::prompt::Assembly;
use crate::pulse::Pulse;

/// The marker's name.
const MARKER: &str = ".initial_prompt_done";

/// How often a prompt is tried: a container's network takes a moment to settle.
const TRIES: u32 = 5;

/// How long the platform may take to pass a notice on.
const NOTICE: Duration = Duration::from_secs(10);

/// How long a turn may take, as the seeds bound it.
const TURN: Duration = Duration::from_secs(600);

/// How long an idle prompt is awaited at least and at most.
const IDLE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(300));

/// Sends prompts for as long as it runs.
pub struct Initiative {
    platform: Platform,
    assembly: Arc<Assembly>,
    pulse: Arc<Pulse>,
}

// === impl Initiative ===

impl Initiative {
    /// Through this platform.
    ///
    /// # Errors
    /// When the platform's address is none.
    pub fn new(
        platform_url: &str,
        keys: &Keys,
        assembly: Arc<Assembly>,
        pulse: Arc<Pulse>,
    ) -> Result<Self, String> {
        let platform = Platform::new(platform_url, &assembly.places().id, keys.token())?;
        Ok(Self { platform, assembly, pulse })
    }

    /// Sends the first prompt, if it was not sent ever, and then idle ones, for ever.
    pub async fn run(self: Arc<Self>) {
        let manifest = self.assembly.current().manifest.clone();
        if let Some(prompt) = manifest.initial_prompt {
            self.pulse.heard().await;
            match mark(&self.assembly.places().folder) {
                Ok(true) => self.send("initial", &prompt, TURN).await,
                Ok(false) => {}
                Err(error) => {
                    warn!(%error, file = MARKER, "the first prompt is not sent: it could not be marked as sent");
                }
            }
        }
        loop {
            let manifest = self.assembly.current().manifest.clone();
            tokio::time::sleep(manifest.idle_interval).await;
            let Some(prompt) = manifest.idle_prompt.filter(|_| self.pulse.read().active == 0) else {
                continue;
            };
            self.send("idle", &prompt, manifest.idle_interval.clamp(IDLE.0, IDLE.1)).await;
        }
    }

    /// Shows a text to whoever uses the workspace.
    pub async fn notify(&self, text: &str) {
        let path = format!("/workspaces/{}/notify", self.assembly.places().id);
        self.post("notice", &path, &json!({ "message": text }), NOTICE).await;
    }

    async fn send(&self, kind: &str, prompt: &str, within: Duration) {
        let message = json!({
            "role": "user",
            "messageId": format!("{kind}-{}", uuid::Uuid::new_v4().simple()),
            "parts": [{ "kind": "text", "text": prompt }],
        });
        let body = json!({ "method": "message/send", "params": { "message": message } });
        let path = format!("/workspaces/{}/a2a", self.assembly.places().id);
        self.post(kind, &path, &body, within).await;
    }

    async fn post(&self, kind: &str, path: &str, body: &Value, within: Duration) {
        let mut backoff = Backoff::from_first(Duration::from_secs(1));
        loop {
            match self.platform.post(path, body, within).await {
                Ok(_) => return info!(kind, "prompt to the own workspace sent"),
                // It got through; the answer did not.
                Err(Unanswered::NotJson(_)) => return,
                Err(error) => {
                    let delay = backoff.next_delay();
                    if backoff.attempts() == TRIES {
                        return warn!(kind, %error, "prompt to the own workspace not sent; giving up");
                    }
                    info!(kind, %error, ?delay, "prompt to the own workspace not sent; will retry");
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }
}

/// Marks the first prompt as sent; false where it was before.
fn mark(folder: &Path) -> io::Result<bool> {
    match fs::File::options().write(true).create_new(true).open(folder.join(MARKER)) {
        Ok(file) => file.sync_all().map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_prompt_is_marked_once() {
        let folder = tempfile::tempdir().unwrap();
        assert!(mark(folder.path()).unwrap());
        assert!(!mark(folder.path()).unwrap());
        assert!(mark(&folder.path().join("missing")).is_err());
    }
}
