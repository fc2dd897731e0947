//! The command line of `talaria store`, for operators.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `talaria store`
#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    /// Copy the store to a file, while the host runs.
    Backup(StoreBackup),
    /// Replace the store by a backup, while the host is stopped.
    Restore(StoreRestore),
    /// Read the whole store and report what is damaged.
    Check(StoreCheck),
}

/// `talaria store backup`
#[derive(Debug, Args)]
#[command(after_help = "\
The copy is the store at one moment, whatever is written meanwhile: one file, checked, for its owner only (mode 0600).
It appears under its name when it is complete. It has every message and answer, and tokens of push receivers: protect it
as you protect the store. Versions of executors are not in it; they are in the folder `executors.state`.

Exit code 0: written; 1: not written; 64: the configuration cannot be used.

Examples:
  talaria store backup /backup/talaria.db
  talaria store backup /backup/talaria.db --force --config /etc/talaria.toml --output json")]
pub(crate) struct StoreBackup {
    /// The file to write
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// The configuration file [default: talaria.toml in the working directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `talaria store restore`
#[derive(Debug, Args)]
#[command(after_help = "\
Refuses while a host owns the store: stop it first. The backup is checked before anything changes. The store that it
replaces stays beside it, as talaria.db.bak; delete that once all is well. Turns that were under way when the backup was
made are treated at the next start like those that a crash interrupted.

Exit code 0: restored; 1: nothing was changed; 64: the configuration cannot be used.

Examples:
  talaria store restore /backup/talaria.db
  talaria store restore /backup/talaria.db --config /etc/talaria.toml --output json")]
pub(crate) struct StoreRestore {
    /// The backup
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The configuration file [default: talaria.toml in the working directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `talaria store check`
#[derive(Debug, Args)]
#[command(after_help = "\
Runs SQLite's integrity check, then reads every task from its log. Changes nothing, and works while the host runs.

Exit code 0: nothing is damaged; 1: something is, or the store cannot be read; 64: the configuration cannot be used.

Examples:
  talaria store check
  talaria store check --config /etc/talaria.toml --output json")]
pub(crate) struct StoreCheck {
    /// The configuration file [default: talaria.toml in the working directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

// === impl Store ===

impl Store {
    /// The configuration file that was named.
    pub(crate) fn config(&self) -> Option<&PathBuf> {
        match self {
            Self::Backup(StoreBackup { config, .. })
            | Self::Restore(StoreRestore { config, .. })
            | Self::Check(StoreCheck { config }) => config.as_ref(),
        }
    }
}
