//! Renews the tokens of callers that are in files, when the files change.
//!
//! Every [`EVERY`] each file is read. A new token counts when two reads in a row find it, so that a file is never used while
//! it is being written. A file that holds no valid token (empty, unreadable, malformed, the token of another caller) changes
//! nothing: the last good token stays, and one log line says why. Callers are neither added nor removed here, so no content
//! of a file lets anybody in who has no token. No log line holds a token.
//!
//! Reading is bounded by the longest secret, and only regular files are read, so that a pipe or a device cannot block it.
//! There is one read at a time, off the threads that serve. Why the files are polled is in [`Settled`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use talaria_a2a::{Auth, NotRenewed, Token};
use talaria_config::Settled;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::config;

/// How often files are read. A new token counts after at most twice this, which is little compared with the minute that
/// Kubernetes takes to update the file of a secret.
const EVERY: Duration = Duration::from_secs(2);

/// The files of tokens, and the server that uses the tokens.
pub(crate) struct Watch {
    auth: Auth,
    files: Vec<Watched>,
}

struct Watched {
    name: String,
    path: PathBuf,
    /// The token in use.
    in_use: SecretString,
    /// What the file holds.
    file: Settled<Content>,
    /// Why that is not in use, if it was logged.
    logged: Option<String>,
}

/// The content of a token's file, or why it cannot be read.
#[derive(Clone)]
struct Content(Result<SecretString, String>);

// === impl Watch ===

impl Watch {
    /// `None` if no token is in a regular file; a pipe can be read only once.
    pub(crate) fn new(tokens: &[config::Token], auth: Auth) -> Option<Self> {
        let files: Vec<_> = tokens
            .iter()
            .filter_map(|token| {
                let path = token.file.clone().filter(|path| path.is_file())?;
                let (name, current) = (token.name.clone(), token.token.clone());
                let file = Settled::new(Content(Ok(current.clone())));
                Some(Watched { name, path, in_use: current, file, logged: None })
            })
            .collect();
        (!files.is_empty()).then_some(Self { auth, files })
    }

    /// Reads the files every [`EVERY`] until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut timer = tokio::time::interval(EVERY);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while shutdown.run_until_cancelled(timer.tick()).await.is_some() {
            let look = tokio::task::spawn_blocking(move || {
                self.look();
                self
            });
            self = match shutdown.run_until_cancelled(look).await {
                Some(Ok(watch)) => watch,
                Some(Err(error)) => {
                    error!(%error, "token files are not read any more; restart to renew tokens");
                    return;
                }
                None => return,
            };
        }
    }

    /// Reads every file once.
    fn look(&mut self) {
        let mut fresh = Vec::new();
        for file in &mut self.files {
            match file.look() {
                Some(Ok(token)) => fresh.push(token),
                Some(Err(why)) => file.reject(why),
                None => {}
            }
        }
        if fresh.is_empty() {
            return;
        }
        let kept = self.auth.renew(&fresh);
        for file in &mut self.files {
            if !fresh.iter().any(|token| token.name() == file.name) {
                continue;
            }
            let not_renewed = kept.iter().find(|kept| match kept {
                NotRenewed::Unknown(name) | NotRenewed::Shared(name) => *name == file.name,
            });
            match not_renewed {
                Some(why) => file.reject(why.to_string()),
                None => file.accept(),
            }
        }
    }
}

// === impl Watched ===

impl Watched {
    /// Reads the file. Returns what it holds, if that has settled and is not in use: a token, or why it is not valid.
    fn look(&mut self) -> Option<Result<Token, String>> {
        let found = read(&self.path);
        if found == Content(Ok(self.in_use.clone())) {
            self.file = Settled::new(found);
            self.logged = None;
            return None;
        }
        self.file.see(found);
        if *self.file.get() == Content(Ok(self.in_use.clone())) {
            return None;
        }
        let token = |secret| Token::new(self.name.clone(), secret).map_err(|error| error.to_string());
        Some(self.file.get().clone().0.and_then(token))
    }

    fn accept(&mut self) {
        if let Content(Ok(secret)) = self.file.get() {
            self.in_use = secret.clone();
        }
        self.logged = None;
        info!(caller = self.name, file = %self.path.display(), "token renewed");
    }

    fn reject(&mut self, why: String) {
        if self.logged.as_ref() != Some(&why) {
            warn!(caller = self.name, why, "token not renewed; the last good one stays");
            self.logged = Some(why);
        }
    }
}

fn read(path: &Path) -> Content {
    Content(match path.metadata() {
        Ok(metadata) if !metadata.is_file() => Err(format!("`{}` is not a regular file", path.display())),
        // Reading reports a path that does not exist.
        _ => config::read_secret(path),
    })
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Ok(one), Ok(other)) => one.expose_secret() == other.expose_secret(),
            (Err(one), Err(other)) => one == other,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
