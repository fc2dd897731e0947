//! The changes that an operator makes to executors: reload, roll back, upload, remove; and the audit log of all changes.
//!
//! Each is one change under the [`ChangeLock`], made by the functions of `change`. A refused change leaves everything as it
//! was, the folder included.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::timeout;
use tracing::info;

use super::audit::{Entry, What, Who};
use super::change::{Report, Taken, is_builtin};
use super::change_lock::{ChangeLock, blocking};
use super::versions::{Content, Id, KeptVersion, VersionStore, write_whole};
use super::watch;
use crate::config::{ExecutorName, Files};
use crate::executors::{Executors, log};

/// How long a reader of the audit log waits for a change that is under way.
const RECORDED: Duration = Duration::from_secs(1);

/// An upload; a file that is absent from it stays as it is in the folder.
#[derive(Debug, Default)]
pub struct Upload {
    /// The component.
    pub component: Option<Vec<u8>>,
    /// The text of its configuration.
    pub policy: Option<String>,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum NotChanged {
    /// There is no executor of that name.
    #[error("there is no executor `{0}`")]
    Unknown(String),
    /// The version was refused.
    #[error("{0}")]
    Refused(String),
    /// The executor cannot be changed in this way.
    #[error("{0}")]
    Conflict(String),
    /// A file cannot be read or written.
    #[error("{0}")]
    Failed(String),
}

// === impl Executors ===

impl Executors {
    /// Reads the files of an executor again, even if that version was refused or rolled back before.
    pub async fn reload(&self, name: &ExecutorName, who: &Who) -> Result<Taken, NotChanged> {
        let mut lock = self.changes.lock().await;
        let files =
            Files { component: Some(self.folder.component(name)), policy: Some(self.folder.policy(name)) };
        let files = present(files);
        if files.component.is_some() {
            let content = blocking(move || watch::read(&files)).await;
            let content = content.map_err(|error| NotChanged::Failed(error.to_string()))?;
            lock.watch.was_tried(name, content.id());
            lock.set_skipped(name, None);
            let taken = self.take_content(&lock, name, content, who, &log).await;
            return taken.map_err(NotChanged::Refused);
        }
        let config = self.fixed.get(name).ok_or_else(|| NotChanged::Unknown(name.to_string()))?;
        let read = self.read_component(config, &log).await;
        let (wasm, content) = read.map_err(NotChanged::Failed)?;
        lock.set_skipped(name, None);
        let taken = self.take(&lock, config.clone(), wasm, content, who, &log).await;
        taken.map_err(NotChanged::Refused)
    }

    /// Goes back to the version before the one in service, and stays there until a file changes.
    pub async fn rollback(&self, name: &ExecutorName, who: &Who) -> Result<(), NotChanged> {
        let mut lock = self.changes.lock().await;
        self.go_back(&mut lock, name, who, &log).await
    }

    async fn go_back(
        &self,
        lock: &mut ChangeLock,
        name: &ExecutorName,
        who: &Who,
        report: Report<'_>,
    ) -> Result<(), NotChanged> {
        let taking = self.taking(name)?;
        let Some(kept) = lock.versions.clone() else {
            return Err(NotChanged::Conflict("no versions are kept; set `executors.state`".into()));
        };
        // A version that was never ready is not stored; then the stored current version is the one to go back to.
        let which = if kept.current(name) == taking { VersionStore::previous } else { VersionStore::current };
        self.go_back_to(lock, name, which, who, report).await
    }

    /// Goes back to the last version that completed turns and was not quarantined since.
    pub(super) async fn go_back_to_good(
        &self,
        lock: &mut ChangeLock,
        name: &ExecutorName,
    ) -> Result<(), NotChanged> {
        self.go_back_to(lock, name, VersionStore::last_good, &Who::Host, &log).await
    }

    /// The version in service, if it has files.
    fn taking(&self, name: &ExecutorName) -> Result<Option<Id>, NotChanged> {
        let table = self.table();
        let entry = table.entry(name).ok_or_else(|| NotChanged::Unknown(name.to_string()))?;
        Ok(entry.current.as_ref().and_then(|loaded| loaded.content.as_ref()).map(Content::id))
    }

    async fn go_back_to(
        &self,
        lock: &mut ChangeLock,
        name: &ExecutorName,
        which: fn(&VersionStore, &ExecutorName) -> Option<Id>,
        who: &Who,
        report: Report<'_>,
    ) -> Result<(), NotChanged> {
        let taking = self.taking(name)?;
        let content = lock.stored(name, which).await.map_err(NotChanged::Failed)?;
        let Some(content) = content else {
            return Err(NotChanged::Conflict(format!("no earlier good version of `{name}` is kept")));
        };
        let loaded = self.load_stored(name, content, report).await.map_err(NotChanged::Refused)?;
        self.put_in_service(lock, &loaded, What::RolledBack, who).await;
        let passed_over = match lock.watch.tried(name) {
            Some(id) => Some(id.clone()),
            None => taking,
        };
        lock.set_skipped(name, passed_over.as_ref());
        Ok(())
    }

    /// Loads an upload and, if that succeeds, writes it into the folder.
    pub async fn put(&self, name: &ExecutorName, upload: Upload, who: &Who) -> Result<Taken, NotChanged> {
        let mut lock = self.changes.lock().await;
        if self.fixed.get(name).is_some_and(|config| !is_builtin(config)) {
            let what = format!("`{name}` is configured in talaria.toml; change it there");
            return Err(NotChanged::Conflict(what));
        }
        let (component, policy) = (self.folder.component(name), self.folder.policy(name));
        let content = {
            let (component, policy) = (component.clone(), policy.clone());
            blocking(move || {
                let wasm = match upload.component {
                    Some(wasm) => wasm,
                    None => watch::read_component(&component)?,
                };
                let policy = match upload.policy {
                    Some(text) => Some(text),
                    None => watch::read_policy(&policy)?,
                };
                Ok(Content { wasm: wasm.into(), policy })
            })
        };
        let content = content.await.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                NotChanged::Conflict(format!("`{name}` has no component yet; upload one"))
            }
            _ => NotChanged::Failed(error.to_string()),
        })?;
        let config = self.configure(name, content.policy.as_deref()).map_err(NotChanged::Refused)?;
        // Loaded before anything is written, so that a refused upload leaves no trace in the folder.
        let wasm = Arc::clone(&content.wasm);
        let loaded = self.loader.load_version(config, wasm, Some(content.clone()), &log).await;
        let loaded = Arc::new(loaded.map_err(NotChanged::Refused)?);
        let (folder, id) = (self.folder.path.to_owned(), content.id());
        blocking(move || {
            std::fs::create_dir_all(&folder)?;
            if let Some(text) = &content.policy {
                write_whole(&policy, text.as_bytes())?;
            }
            write_whole(&component, &content.wasm)
        })
        .await
        .map_err(|error| {
            NotChanged::Failed(format!("cannot write to {}: {error}", self.folder.path.display()))
        })?;
        lock.watch.was_tried(name, id);
        lock.set_skipped(name, None);
        Ok(self.settle(&lock, &loaded, who).await)
    }

    /// Deletes the files of an executor and takes it out of service.
    pub async fn remove(&self, name: &ExecutorName, who: &Who) -> Result<(), NotChanged> {
        let lock = self.changes.lock().await;
        let files = present(Files {
            component: Some(self.folder.component(name)),
            policy: Some(self.folder.policy(name)),
        });
        if files.component.is_none() {
            return Err(match self.table().entry(name) {
                Some(_) => {
                    NotChanged::Conflict(format!("`{name}` does not come from the folder of executors"))
                }
                None => NotChanged::Unknown(name.to_string()),
            });
        }
        if *name == self.table().default && !self.fixed.contains_key(name) {
            return Err(NotChanged::Conflict(format!(
                "`{name}` is the default executor; choose another with `executors.default` first"
            )));
        }
        blocking(move || {
            for path in [files.component, files.policy].into_iter().flatten() {
                std::fs::remove_file(path)?;
            }
            Ok(())
        })
        .await
        .map_err(|error| {
            NotChanged::Failed(format!("cannot change {}: {error}", self.folder.path.display()))
        })?;
        self.gone(&lock, name, who, &log).await;
        Ok(())
    }

    /// The last `most` entries of the audit log, oldest first.
    pub async fn audit(&self, most: usize) -> Result<Vec<Entry>, NotChanged> {
        // A change takes effect before it is in the log. One that takes long, because it compiles, is not waited for.
        let _recorded = timeout(RECORDED, self.changes.lock()).await;
        match &self.audit {
            Some(audit) => audit.last(most).await.map_err(|error| NotChanged::Failed(error.to_string())),
            None => Err(NotChanged::Conflict("no log of changes is kept; set `executors.state`".into())),
        }
    }

    /// Writes what an operator did, other than a change of an executor, to the log and to the audit log.
    pub async fn note(&self, by: &str, what: What, task: Option<&str>, reason: Option<&str>) {
        info!(by, ?what, task, reason, "operator acted");
        if let Some(audit) = &self.audit {
            audit.append(&Entry::act(by, what, task, reason)).await;
        }
    }

    /// Changes the settings of an executor from the folder: loads it with them and, if that succeeds, writes them into its
    /// file. The rest of the file keeps its values, not its comments.
    pub async fn configure_with(
        &self,
        name: &ExecutorName,
        settings: Map<String, Value>,
        who: &Who,
    ) -> Result<Taken, NotChanged> {
        let path = self.folder.policy(name);
        let text = blocking(move || watch::read_policy(&path)).await;
        let text = text.map_err(|error| NotChanged::Failed(error.to_string()))?.unwrap_or_default();
        let policy = with_settings(&text, settings).map_err(NotChanged::Refused)?;
        // A change of the file meanwhile is overwritten, as by an upload.
        self.put(name, Upload { component: None, policy: Some(policy) }, who).await
    }

    /// The versions of an executor that are on disk: the present one, the one before, and those that completed turns.
    pub async fn versions(&self, name: &ExecutorName) -> Vec<KeptVersion> {
        let (Some(versions), name) = (self.versions.clone(), name.clone()) else { return Vec::new() };
        blocking(move || Ok(versions.list(&name))).await.unwrap_or_default()
    }
}

/// Replaces the settings in the text of an executor's file.
fn with_settings(text: &str, settings: Map<String, Value>) -> Result<String, String> {
    let mut file: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    let settings = toml::Value::try_from(settings)
        .map_err(|error| format!("settings that TOML cannot hold: {error}; leave out what is null"))?;
    file.insert("settings".into(), settings);
    toml::to_string(&file).map_err(|error| error.to_string())
}

/// The files that exist.
fn present(files: Files) -> Files {
    let there = |path: &PathBuf| path.exists();
    Files { component: files.component.filter(there), policy: files.policy.filter(there) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_replaced_and_the_rest_stays() {
        let text = "[settings]\nold = 1\n[grant]\negress = [\"GET https://a/*\"]\n";
        let settings = json!({ "new": { "deep": [1, "two"] }, "flag": true });
        let changed = with_settings(text, settings.as_object().unwrap().clone()).unwrap();
        let read: toml::Table = toml::from_str(&changed).unwrap();
        assert_eq!(read["grant"]["egress"][0].as_str(), Some("GET https://a/*"));
        assert_eq!(json!(read["settings"]), settings);
        assert!(with_settings("not toml", Map::new()).is_err());
        let null = json!({ "a": null });
        assert!(with_settings("", null.as_object().unwrap().clone()).is_err());
    }
}
