//! What an operator does to executors: reload, roll back, upload, remove, and look at what was changed.
//!
//! Each is one change, made by the functions of `change` while nobody else makes one. What is refused leaves everything as
//! it was, the folder included.

use std::path::PathBuf;
use std::sync::Arc;

use super::Executors;
use super::audit::{Entry, What, Who};
use super::change::{Keeper, Report, Taken, blocking, is_builtin, read_component};
use super::kept::{Content, Kept, write_whole};
use super::watch;
use crate::config::{ExecutorName, Files};

/// What an operator uploads; what is absent stays as it is in the folder.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    pub(crate) component: Option<Vec<u8>>,
    pub(crate) policy: Option<String>,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotChanged {
    #[error("there is no executor `{0}`")]
    Unknown(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Failed(String),
}

// === impl Executors ===

impl Executors {
    /// Reads an executor's files again, whatever was refused or rolled back before.
    pub(crate) async fn reload(&self, name: &ExecutorName, who: &Who) -> Result<Taken, NotChanged> {
        let mut keeper = self.keeper.lock().await;
        let files =
            Files { component: Some(self.folder.component(name)), policy: Some(self.folder.policy(name)) };
        let files = present(files);
        if files.component.is_some() {
            let content = blocking(move || watch::read(&files)).await;
            let content = content.map_err(|error| NotChanged::Failed(error.to_string()))?;
            keeper.watch.was_tried(name, content.id());
            keeper.pass_over(name, None);
            let taken = self.take_content(&keeper, name, content, who, &super::log).await;
            return taken.map_err(NotChanged::Refused);
        }
        let config = self.fixed.get(name).ok_or_else(|| NotChanged::Unknown(name.to_string()))?;
        let read = read_component(config, &self.oci, &super::log).await;
        let (wasm, content) = read.map_err(NotChanged::Failed)?;
        keeper.pass_over(name, None);
        let taken = self.take(&keeper, config.clone(), wasm, content, who, &super::log).await;
        taken.map_err(NotChanged::Refused)
    }

    /// Goes back to the version before the one that takes turns, and stays there until a file changes.
    pub(crate) async fn rollback(&self, name: &ExecutorName, who: &Who) -> Result<(), NotChanged> {
        let mut keeper = self.keeper.lock().await;
        self.go_back(&mut keeper, name, who, &super::log).await
    }

    pub(super) async fn go_back(
        &self,
        keeper: &mut Keeper,
        name: &ExecutorName,
        who: &Who,
        report: Report<'_>,
    ) -> Result<(), NotChanged> {
        let table = self.table();
        let seat = table.seat(name).ok_or_else(|| NotChanged::Unknown(name.to_string()))?;
        let Some(kept) = keeper.kept.clone() else {
            return Err(NotChanged::Conflict("no versions are kept; set `executors.state`".into()));
        };
        let taking = seat.current.as_ref().and_then(|loaded| loaded.content.as_ref()).map(Content::id);
        // A version that never was ready is not kept: then the one that was is the one to go back to.
        let which = if kept.current(name) == taking { Kept::previous } else { Kept::current };
        let content = keeper.kept(name, which).await.map_err(NotChanged::Failed)?;
        let Some(content) = content else {
            return Err(NotChanged::Conflict(format!("no earlier good version of `{name}` is kept")));
        };
        let loaded = self.load_kept(name, content, report).await.map_err(NotChanged::Refused)?;
        self.seat(keeper, &loaded, What::RolledBack, who).await;
        let passed_over = match keeper.watch.tried(name) {
            Some(id) => Some(id.clone()),
            None => taking,
        };
        keeper.pass_over(name, passed_over.as_ref());
        Ok(())
    }

    /// Loads an upload and, where it is good, writes it into the folder.
    pub(crate) async fn put(
        &self,
        name: &ExecutorName,
        upload: Upload,
        who: &Who,
    ) -> Result<Taken, NotChanged> {
        let mut keeper = self.keeper.lock().await;
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
        // Tried before anything is written: what is refused leaves no trace in the folder.
        let wasm = Arc::clone(&content.wasm);
        let loaded = self.loader.load(config, wasm, Some(content.clone()), &super::log).await;
        let loaded = Arc::new(loaded.map_err(NotChanged::Refused)?);
        let (folder, id) = (self.folder.path().to_owned(), content.id());
        blocking(move || {
            std::fs::create_dir_all(&folder)?;
            if let Some(text) = &content.policy {
                write_whole(&policy, text.as_bytes())?;
            }
            write_whole(&component, &content.wasm)
        })
        .await
        .map_err(|error| {
            NotChanged::Failed(format!("cannot write to {}: {error}", self.folder.path().display()))
        })?;
        keeper.watch.was_tried(name, id);
        keeper.pass_over(name, None);
        Ok(self.settle(&keeper, &loaded, who).await)
    }

    /// Removes an executor's files, and takes it out of service.
    pub(crate) async fn remove(&self, name: &ExecutorName, who: &Who) -> Result<(), NotChanged> {
        let keeper = self.keeper.lock().await;
        let files = present(Files {
            component: Some(self.folder.component(name)),
            policy: Some(self.folder.policy(name)),
        });
        if files.component.is_none() {
            return Err(match self.table().seat(name) {
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
            NotChanged::Failed(format!("cannot change {}: {error}", self.folder.path().display()))
        })?;
        self.gone(&keeper, name, who, &super::log).await;
        Ok(())
    }

    /// What was changed last, oldest first.
    pub(crate) async fn audit(&self, most: usize) -> Result<Vec<Entry>, NotChanged> {
        let keeper = self.keeper.lock().await;
        match &keeper.audit {
            Some(audit) => audit.last(most).await.map_err(|error| NotChanged::Failed(error.to_string())),
            None => Err(NotChanged::Conflict("no log of changes is kept; set `executors.state`".into())),
        }
    }
}

/// The files that are there.
fn present(files: Files) -> Files {
    let there = |path: &PathBuf| path.exists();
    Files { component: files.component.filter(there), policy: files.policy.filter(there) }
}
