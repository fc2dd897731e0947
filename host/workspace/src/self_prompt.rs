//! The prompts that a workspace gives itself: the first one, once, and one whenever it has been idle for a while. Also the
//! notices about replies that came too late.
//!
//! Prompts go through the platform's proxy, so that they appear in the conversation like any other message, and come back
//! as ordinary turns. The first prompt is marked as sent *before* it is sent: a prompt that
//! crashes the agent must not do so at every start. It waits for the first heartbeat that the platform accepted, so it is not
//! lost if the platform starts later than the workspace, or if this process ends before that. From then on it is tried, with
//! growing pauses, until the platform takes it: a platform may accept heartbeats long before its proxy forwards messages. A
//! prompt that may have arrived is not sent again.
//!
//! A late reply goes to the person who asked (`/notify`), who has been told by then that there would be
//! none. After a few attempts it is given up, since the task has it in any case.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_backoff::Backoff;
use tracing::{info, warn};

use crate::activity::Activity;
use crate::platform::{CallError, Platform};
use crate::platform_session::Keys;
use crate::prompt::Assembly;

/// The kinds of what is sent, for the log and for message ids.
const FIRST: &str = "initial";
const NOTICE_KIND: &str = "notice";

/// The file that marks the first prompt as sent.
const MARKER: &str = ".initial_prompt_done";

/// Attempts to send a prompt: the network of a container takes a moment to settle.
const TRIES: u32 = 5;

/// The longest pause between two attempts to send the first prompt.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The time that the platform may take to show a notice.
const NOTICE: Duration = Duration::from_secs(10);

/// The time that a turn may take, as in the Python bridge.
const TURN: Duration = Duration::from_secs(600);

/// The least and the most time that the turn of an idle prompt may take.
const IDLE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(300));

/// Sends the prompts of a workspace to itself.
pub struct SelfPrompts {
    platform: Platform,
    assembly: Arc<Assembly>,
    activity: Arc<Activity>,
}

// === impl SelfPrompts ===

impl SelfPrompts {
    /// Sends through this platform.
    ///
    /// # Errors
    /// If the platform's address cannot be called.
    pub fn new(
        (platform_url, egress): (&str, &talaria_egress::Config),
        keys: &Keys,
        assembly: Arc<Assembly>,
        activity: Arc<Activity>,
    ) -> Result<Self, String> {
        let platform = Platform::new(platform_url, &assembly.places().id, keys.token(), egress.clone())?;
        Ok(Self { platform, assembly, activity })
    }

    /// Sends the first prompt, unless it was ever sent, and then idle prompts for ever.
    pub async fn run(self: Arc<Self>) {
        let manifest = self.assembly.current().manifest.clone();
        if let Some(prompt) = manifest.initial_prompt {
            self.activity.heard().await;
            match mark(&self.assembly.places().folder) {
                Ok(true) => self.send(FIRST, &prompt, TURN).await,
                Ok(false) => {}
                Err(error) => {
                    warn!(%error, file = MARKER, "first prompt not sent: could not be marked as sent");
                }
            }
        }
        loop {
            let manifest = self.assembly.current().manifest.clone();
            tokio::time::sleep(manifest.idle_interval).await;
            let Some(prompt) = manifest.idle_prompt.filter(|_| self.activity.read().active == 0) else {
                continue;
            };
            self.send("idle", &prompt, manifest.idle_interval.clamp(IDLE.0, IDLE.1)).await;
        }
    }

    /// Shows a text to the person who uses the workspace.
    pub async fn notify(&self, text: &str) {
        let path = format!("/workspaces/{}/notify", self.assembly.places().id);
        self.post(NOTICE_KIND, &path, &json!({ "message": text }), NOTICE).await;
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
        let mut backoff = Backoff::from_first(Duration::from_secs(1)).up_to(LONGEST_PAUSE);
        loop {
            match self.platform.post(path, body, within).await {
                Ok(_) => return info!(kind, "prompt to the own workspace sent"),
                // The prompt arrived; only the answer is unusable.
                Err(CallError::NotJson(_)) => return,
                // A second turn would be worse than a lost answer, which the conversation has anyway.
                Err(CallError::Silent(error)) if kind != NOTICE_KIND => {
                    return info!(kind, error, "prompt to the own workspace sent; its answer did not come");
                }
                Err(error) => {
                    let delay = backoff.next_delay();
                    if gives_up(kind, &error, backoff.attempts()) {
                        return warn!(kind, %error, "prompt to the own workspace not sent; giving up");
                    }
                    info!(kind, %error, ?delay, "prompt to the own workspace not sent; will retry");
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }
}

/// Whether another attempt is of no use: the platform rejects the prompt itself, or there were enough attempts. The first
/// prompt has any number of attempts.
fn gives_up(kind: &str, error: &CallError, attempts: u32) -> bool {
    let is_rejected = matches!(error, CallError::Rejected { status: 400 | 403 | 405 | 410 | 413 | 422, .. });
    is_rejected || (kind != FIRST && attempts >= TRIES)
}

/// Marks the first prompt as sent; false if it was marked before.
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
    fn the_first_prompt_is_given_up_only_if_the_platform_rejects_it() {
        let rejected = |status| CallError::Rejected { status, said: String::new() };
        let down = || CallError::Down("connection refused".into());
        for (kind, error, attempts, expected) in [
            (FIRST, down(), 1_000, false),
            (FIRST, rejected(503), 1_000, false),
            (FIRST, rejected(404), 1_000, false),
            (FIRST, rejected(400), 1, true),
            ("idle", down(), TRIES - 1, false),
            ("idle", down(), TRIES, true),
            (NOTICE_KIND, rejected(403), 1, true),
        ] {
            assert_eq!(gives_up(kind, &error, attempts), expected, "{kind} {error} {attempts}");
        }
    }

    #[test]
    fn a_first_prompt_is_marked_once() {
        let folder = tempfile::tempdir().unwrap();
        assert!(mark(folder.path()).unwrap());
        assert!(!mark(folder.path()).unwrap());
        assert!(mark(&folder.path().join("missing")).is_err());
    }
}
