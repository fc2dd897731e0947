//! The audit log: who changed which executor, and what operators did to turns and to the host, one JSON object per line, appended to `audit.jsonl` and never rewritten.
//!
//! A line is on disk before its change is acknowledged. If a line cannot be written, the host's log has it instead and the
//! change still happens: a full disk must not stop an operator who rolls back a broken executor.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use talaria_turns::Timestamp;
use tracing::warn;

use crate::config::ExecutorName;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// It went into service; no version of that name was before.
    Loaded,
    /// It replaced the version in service.
    Swapped,
    /// It waits until its upstream answers, while the old version stays in service.
    Waiting,
    /// It does not go into service.
    Refused,
    /// The version before it is in service again.
    RolledBack,
    /// It crashed several times in a row and was taken out of service.
    Quarantined,
    /// Its files are gone; it was taken out of service.
    Removed,
    /// An operator cancelled a task.
    Canceled,
    /// An operator answered the question of a task.
    Answered,
    /// An operator had a push notification sent again.
    Retried,
    /// An operator changed the log filter.
    LogChanged,
    /// Somebody gave the admin server a wrong token.
    SignInRefused,
}

/// Who made a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// The host, at its start.
    Start,
    /// Somebody who changed the executors folder.
    Folder,
    /// The host, after a probe or faults.
    Host,
    /// The holder of a token of the admin server.
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
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub executor: String,
    /// The task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The digest of the component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The digest of the component that was in service before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The log. Clones append to the same file.
#[derive(Clone)]
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
        // One write, so that lines never mix.
        let written = tokio::task::spawn_blocking(move || {
            (&*file).write_all(line.as_bytes()).and_then(|()| file.sync_data())
        });
        match written.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, ?entry, "change not written to the audit log"),
            Err(error) => warn!(%error, ?entry, "change not written to the audit log"),
        }
    }

    /// The last entries, oldest first. Malformed lines are skipped.
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
        Self { at, who, what, executor, task: None, digest: None, before: None, reason: None }
    }

    /// What an operator did that is not a change of an executor.
    pub(crate) fn act(by: &str, what: What, task: Option<&str>, reason: Option<&str>) -> Self {
        Self {
            at: Timestamp::now().to_string(),
            who: Who::Caller(by.to_owned()),
            what,
            executor: String::new(),
            task: task.map(str::to_owned),
            digest: None,
            before: None,
            reason: reason.map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reads_entries_back_and_skips_malformed_lines() {
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
