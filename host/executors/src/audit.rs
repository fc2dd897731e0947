//! What was changed about executors, by whom: one JSON object a line, appended to `audit.jsonl` and never rewritten.
//!
//! A line is on disk before the change is acknowledged. A line that cannot be written is in the log instead, and the
//! change goes on: an operator who rolls back a broken executor must not be stopped by a full disk.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use talaria_turns::Timestamp;
use tracing::warn;

use crate::config::ExecutorName;

/// What happened to an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// It takes turns; nothing of that name did before.
    Loaded,
    /// It takes the turns of the version before.
    Swapped,
    /// It waits until its upstream answers, while the version before takes turns.
    Waiting,
    /// It takes no turns.
    Refused,
    /// The version before takes turns again.
    RolledBack,
    /// It crashed again and again, and takes no turns.
    Quarantined,
    /// It is gone.
    Removed,
}

/// Who did it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// The host, when it started.
    Start,
    /// Whoever changed the folder.
    Folder,
    /// The host, because of what the executor did.
    Host,
    /// The holder of a token of the operator's server.
    #[serde(untagged)]
    Caller(String),
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub at: String,
    /// Who did it.
    pub who: Who,
    /// What happened.
    pub what: What,
    /// The executor's name.
    pub executor: String,
    /// Of the component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Of the component that took turns before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The log.
pub(crate) struct Audit {
    path: PathBuf,
    file: Arc<File>,
}

// === impl Audit ===

impl Audit {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join("audit.jsonl");
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        Ok(Self { path, file: Arc::new(file) })
    }

    pub(crate) async fn append(&self, entry: &Entry) {
        let mut line = serde_json::to_string(entry).unwrap_or_default();
        line.push('\n');
        let file = Arc::clone(&self.file);
        // One write, so that a line is never torn by another's.
        let written = tokio::task::spawn_blocking(move || {
            (&*file).write_all(line.as_bytes()).and_then(|()| file.sync_data())
        });
        match written.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, ?entry, "a change is not in the audit log"),
            Err(error) => warn!(%error, ?entry, "a change is not in the audit log"),
        }
    }

    /// The last entries, oldest first. A line that is none is passed over.
    pub(crate) async fn last(&self, most: usize) -> io::Result<Vec<Entry>> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut last = std::collections::VecDeque::new();
            for line in BufReader::new(File::open(path)?).lines() {
                if let Ok(entry) = serde_json::from_str(&line?) {
                    last.push_back(entry);
                }
                if last.len() > most {
                    last.pop_front();
                }
            }
            Ok(last.into())
        });
        read.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

// === impl Entry ===

impl Entry {
    pub(crate) fn new(who: Who, what: What, executor: &ExecutorName) -> Self {
        let (at, executor) = (Timestamp::now().to_string(), executor.as_str().to_owned());
        Self { at, who, what, executor, digest: None, before: None, reason: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn entries_are_appended_and_survive_a_line_that_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let name: ExecutorName = "mine".parse().unwrap();
        for (who, what) in [(Who::Start, What::Loaded), (Who::Caller("admin".into()), What::RolledBack)] {
            Audit::open(folder.path()).unwrap().append(&Entry::new(who, what, &name)).await;
            let mut file = OpenOptions::new().append(true).open(folder.path().join("audit.jsonl")).unwrap();
            file.write_all(b"{torn\n").unwrap();
        }
        let audit = Audit::open(folder.path()).unwrap();
        let all = audit.last(10).await.unwrap();
        assert_eq!(all.iter().map(|entry| entry.what).collect::<Vec<_>>(), [What::Loaded, What::RolledBack]);
        assert_eq!(all[1].who, Who::Caller("admin".into()));
        assert_eq!(audit.last(1).await.unwrap()[0].what, What::RolledBack);
        let text = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
        assert!(text.contains(r#""who":"admin","what":"rolled-back","executor":"mine""#), "{text}");
    }
}
