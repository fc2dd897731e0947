//! `talaria store`: backup, restore and check of the store in a file.
//!
//! The commands read the configuration only for `store.url`; they load no executor and resume no turn. A store in memory has
//! nothing to copy, and says so.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use serde::Serialize;
use talaria_store::{Checked, Copied, Owner, Progress, Restored};

use crate::config::{Config, StoreUrl};
use crate::output;

/// How often the progress of a copy is told.
const EVERY: Duration = Duration::from_secs(2);

/// The result of `store backup`.
#[derive(Debug, Serialize)]
pub(crate) struct Backup {
    store: PathBuf,
    #[serde(flatten)]
    copied: Copied,
}

/// The result of `store restore`.
#[derive(Debug, Serialize)]
pub(crate) struct Restore {
    #[serde(flatten)]
    restored: Restored,
}

/// The result of `store check`.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    store: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
    ok: bool,
    #[serde(flatten)]
    checked: Checked,
}

/// The file of the store.
fn file(config: &Config) -> anyhow::Result<&Path> {
    match &config.store {
        StoreUrl::Sqlite(path) => Ok(path),
        StoreUrl::Memory => bail!("the store is in memory (`store.url`); there is no file"),
    }
}

/// Tells the progress of a copy that takes long.
fn progress() -> impl FnMut(Progress) {
    let mut told = Instant::now();
    move |Progress { done, total }| {
        if told.elapsed() >= EVERY {
            told = Instant::now();
            output::note(format!("copied {} of {}", Size(done), Size(total)));
        }
    }
}

// === impl Backup ===

impl Backup {
    pub(crate) fn write(config: &Config, to: &Path, force: bool) -> anyhow::Result<Self> {
        let store = file(config)?;
        let copied = talaria_store::backup(store, to, force, &mut progress())?;
        Ok(Self { store: store.to_owned(), copied })
    }
}

impl fmt::Display for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Copied { file, bytes } = &self.copied;
        write!(f, "backed up {} to {} ({})", self.store.display(), file.display(), Size(*bytes))
    }
}

// === impl Restore ===

impl Restore {
    pub(crate) fn replace(config: &Config, from: &Path) -> anyhow::Result<Self> {
        Ok(Self { restored: talaria_store::restore(from, file(config)?, &mut progress())? })
    }
}

impl fmt::Display for Restore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Restored { file, bytes, replaced } = &self.restored;
        write!(f, "restored {} ({})", file.display(), Size(*bytes))?;
        match replaced {
            Some(replaced) => write!(f, "; what was there is now {}", replaced.display()),
            None => Ok(()),
        }
    }
}

// === impl Check ===

impl Check {
    pub(crate) fn read(config: &Config) -> anyhow::Result<Self> {
        let store = file(config)?;
        let checked = talaria_store::check(store)?;
        let (owner, ok) = (Owner::of(store), checked.problems.is_empty());
        Ok(Self { store: store.to_owned(), owner, ok, checked })
    }

    pub(crate) fn is_well(&self) -> bool {
        self.ok
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checked {
            schema,
            known_schema,
            tasks,
            events,
            open_turns,
            bytes,
            free_bytes,
            log_bytes,
            problems,
        } = &self.checked;
        writeln!(f, "store       {}", self.store.display())?;
        match &self.owner {
            Some(owner) => writeln!(f, "owner       {owner}")?,
            None => writeln!(f, "owner       no running host")?,
        }
        let note = if schema == known_schema {
            String::new()
        } else {
            format!(" (the next start makes it {known_schema}; tasks are read then)")
        };
        writeln!(f, "schema      {schema}{note}")?;
        writeln!(f, "tasks       {tasks}, with {events} events and {open_turns} open turns")?;
        let (bytes, free, log) = (Size(*bytes), Size(*free_bytes), Size(*log_bytes));
        writeln!(f, "size        {bytes}, {free} of it free; write-ahead log {log}")?;
        for problem in problems {
            writeln!(f, "PROBLEM     {problem}")?;
        }
        match self.ok {
            true => write!(f, "nothing is damaged"),
            false => write!(f, "the store is damaged; restore a backup with `talaria store restore FILE`"),
        }
    }
}

/// A number of bytes, for people.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes < 1 << 20 => write!(f, "{} KiB", bytes.div_ceil(1 << 10)),
            bytes => write!(f, "{} MiB", bytes >> 20),
        }
    }
}
