//! The snapshot: the state of the workspace at shutdown, for the next start.
//!
//! Secrets are redacted from every text, and the output of sandboxes is left out, because others may read the volume that
//! holds the file. The file is written whole or not at all, and a failed write does not fail the shutdown. The next start
//! reads the snapshot; one that cannot be read is logged, renamed and ignored.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use talaria_redact::Redactor;
use tracing::{info, warn};

use crate::activity::Reading;
use crate::folder;
use crate::transcript::Transcript;

/// The maximum number of transcript lines in a snapshot.
const LINES: usize = 200;

/// The largest snapshot that is read, in bytes: `LINES` times the longest line, and some room.
const BYTES: usize = 8 << 20;

/// Marks in a text that identify the output of a sandbox.
const SANDBOX: [&str; 3] = ["source=sandbox", "tool=run_code", "[sandbox_output]"];

/// A snapshot, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The id of the workspace.
    pub workspace_id: String,
    /// The time of the snapshot.
    pub timestamp: String,
    /// A description of the newest running turn; empty if no turn is running.
    #[serde(default)]
    pub current_task: String,
    /// The number of running turns.
    #[serde(default)]
    pub active_tasks: usize,
    /// The uptime of the process.
    #[serde(default)]
    pub uptime_seconds: u64,
    /// The context of the last transcript line.
    #[serde(default)]
    pub session_id: String,
    /// The part that differs between runtimes.
    #[serde(default)]
    pub adapter: Adapter,
}

/// The part of a snapshot that differs between runtimes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adapter {
    /// The context of the last transcript line.
    #[serde(default)]
    pub session_id: String,
    /// The last lines of the transcript.
    #[serde(default)]
    pub transcript_lines: Vec<Value>,
}

// === impl Snapshot ===

impl Snapshot {
    /// Takes a snapshot. If the transcript cannot be read, that is logged and the snapshot has none.
    pub async fn take(workspace: &str, reading: &Reading, transcript: &Transcript) -> Self {
        let (transcript_lines, session) = transcript.last(LINES).await.unwrap_or_else(|error| {
            warn!(%error, "cannot read the transcript; the snapshot has none");
            Default::default()
        });
        Self {
            workspace_id: workspace.into(),
            timestamp: talaria_turns::Timestamp::now().to_string(),
            current_task: reading.current.clone(),
            active_tasks: reading.active,
            uptime_seconds: reading.uptime,
            session_id: session.clone(),
            adapter: Adapter { session_id: session, transcript_lines },
        }
    }

    /// Writes the snapshot to a file. An error is only logged.
    pub fn write(&self, path: &Path) {
        let written = serde_json::to_value(self).map_err(std::io::Error::other).and_then(|mut value| {
            clean(&mut value, Redactor::process());
            folder::write_private(path, &format!("{value:#}\n"))
        });
        match written {
            Ok(()) => info!(file = %path.display(), "wrote the snapshot"),
            Err(error) => warn!(file = %path.display(), %error, "snapshot not written"),
        }
    }

    /// Reads a snapshot; `None` if the file is missing or cannot be used.
    pub fn read(path: &Path) -> Option<Self> {
        let problem = match folder::text(path, BYTES) {
            Ok(None) => return None,
            Ok(Some(text)) => match serde_json::from_str::<Self>(&text) {
                Ok(mut snapshot) => {
                    snapshot.adapter.transcript_lines.truncate(LINES);
                    return Some(snapshot);
                }
                Err(error) => format!("not a snapshot (line {}, column {})", error.line(), error.column()),
            },
            Err(trouble) => trouble.what,
        };
        let mut aside = path.as_os_str().to_owned();
        aside.push(".broken");
        let moved = fs::rename(path, &aside).is_ok();
        let aside = Path::new(&aside).display().to_string();
        warn!(file = %path.display(), problem, moved_to = moved.then_some(aside), "cannot use the last snapshot; ignored");
        None
    }
}

/// Redacts secrets in every text, and removes the output of sandboxes from lists.
fn clean(value: &mut Value, redactor: &Redactor) {
    match value {
        Value::String(text) => *text = redactor.all(text).into_owned(),
        Value::Array(items) => {
            items.retain(|item| !is_sandbox(item));
            items.iter_mut().for_each(|item| clean(item, redactor));
        }
        Value::Object(fields) => {
            let redacted = |(key, mut field): (String, Value)| {
                clean(&mut field, redactor);
                (redactor.all(&key).into_owned(), field)
            };
            *fields = std::mem::take(fields).into_iter().map(redacted).collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_sandbox(item: &Value) -> bool {
    match item {
        Value::String(text) => SANDBOX.iter().any(|mark| text.contains(mark)),
        Value::Object(fields) => {
            let is = |name: &str, value: &str| fields.get(name).and_then(Value::as_str) == Some(value);
            is("source", "sandbox") || is("tool", "run_code") || fields.values().any(is_sandbox)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use talaria_store::Memory;
    use talaria_turns::TaskId;

    use super::*;
    use crate::activity::Activity;

    #[tokio::test]
    async fn a_snapshot_holds_no_secrets_and_no_sandbox_output() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".agent_snapshot.json");
        let activity = Activity::default();
        activity.begin(&TaskId::fresh(), "deploy");
        let line = |text: &str| json!({ "context_id": "ctx", "content": text });
        let said = ["use sk-proj-abcdefghijklmnop", "[sandbox_output] anything at all", "done"].map(line);
        let transcript = Transcript::new(Arc::new(Memory::new(1)), said.to_vec());
        Redactor::process().learn(["known-secret-value"]);
        let mut snapshot = Snapshot::take("ws-1", &activity.read(), &transcript).await;
        snapshot.adapter.transcript_lines.push(json!({ "tool": "run_code", "output": "x" }));
        snapshot.adapter.transcript_lines.push(json!({ "content": ["known-secret-value"] }));
        snapshot.write(&path);
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            !text.contains("sk-proj") && !text.contains("sandbox") && !text.contains("known-secret"),
            "{text}"
        );
        let read = Snapshot::read(&path).unwrap();
        assert_eq!(
            (read.workspace_id.as_str(), read.active_tasks, read.current_task.as_str()),
            ("ws-1", 1, "deploy")
        );
        assert_eq!((read.session_id.as_str(), read.adapter.transcript_lines.len()), ("ctx", 3));
    }

    #[test]
    fn an_unreadable_snapshot_is_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snapshot.json");
        assert_eq!(Snapshot::read(&path), None);
        for broken in [b"{\"workspace_id\": 7".as_slice(), b"[]", b"\0\xff", b""] {
            fs::write(&path, broken).unwrap();
            assert_eq!(Snapshot::read(&path), None);
            assert!(!path.exists());
            assert_eq!(fs::read(folder.path().join("snapshot.json.broken")).unwrap(), broken);
        }
    }
}
