//! Callers' tokens that are in files, renewed when the files change.
//!
//! Every [`EVERY`] each file is read. Another token in it becomes its caller's once two looks in a row found the same,
//! so a file that is being written is not taken half. What cannot be a token (nothing, unreadable, malformed, another
//! caller's) changes nothing: the last good one stays, and one line in the log says why. Callers are not added or
//! dropped here; there is no content of a file that lets anybody in who has no token. No line holds a token.
//!
//! What bounds it: a file is read up to the longest secret, and only while it is a regular file, so that a pipe or a
//! device cannot hold up the look. One look at a time, off the threads that serve.
//!
//! Why not `notify`: it watches what a path leads to, and a Kubernetes secret is swapped two symbolic links above; network,
//! overlay and bind mounts tell it nothing at all. A few small reads every other second find every change on every
//! file system.

use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use talaria_a2a::{Auth, NotRenewed, Token};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::config;

/// How often files are read. A renewed token counts after twice this at the latest, which is little beside the minute
/// that Kubernetes takes to bring a secret to the file.
const EVERY: Duration = Duration::from_secs(2);

/// The files of tokens, and who uses what is in them.
pub(crate) struct Watch {
    auth: Auth,
    files: Vec<Watched>,
}

struct Watched {
    name: String,
    path: PathBuf,
    /// The token in use.
    current: SecretString,
    /// What the last look found, where that is not what is in use.
    found: Option<Found>,
    /// Why what is there is not used, where that was said.
    told: Option<String>,
}

type Found = Result<SecretString, String>;

// === impl Watch ===

impl Watch {
    /// None where no token is in a file, or only in what can be read once, such as a pipe.
    pub(crate) fn new(tokens: &[config::Token], auth: Auth) -> Option<Self> {
        let files: Vec<_> = tokens
            .iter()
            .filter_map(|token| {
                let path = token.file.clone().filter(|path| path.is_file())?;
                let (name, current) = (token.name.clone(), token.token.clone());
                Some(Watched { name, path, current, found: None, told: None })
            })
            .collect();
        (!files.is_empty()).then_some(Self { auth, files })
    }

    /// Looks now and then, until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut now_and_then = tokio::time::interval(EVERY);
        now_and_then.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while shutdown.run_until_cancelled(now_and_then.tick()).await.is_some() {
            let look = tokio::task::spawn_blocking(move || {
                self.look();
                self
            });
            self = match shutdown.run_until_cancelled(look).await {
                Some(Ok(watch)) => watch,
                Some(Err(error)) => {
                    error!(%error, "files of tokens are not looked at any more; restart to renew tokens");
                    return;
                }
                None => return,
            };
        }
    }

    /// One look at every file.
    fn look(&mut self) {
        let mut fresh = Vec::new();
        for file in &mut self.files {
            match file.look() {
                Some(Ok(token)) => fresh.push(token),
                Some(Err(why)) => file.refuse(why),
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
                Some(why) => file.refuse(why.to_string()),
                None => file.accept(),
            }
        }
    }
}

// === impl Watched ===

impl Watched {
    /// What is there twice in a row and not in use: a token, or why it is none.
    fn look(&mut self) -> Option<Result<Token, String>> {
        let found = read(&self.path);
        if is_same(&found, &Ok(self.current.clone())) {
            (self.found, self.told) = (None, None);
            return None;
        }
        let settled = self.found.as_ref().is_some_and(|before| is_same(before, &found));
        self.found = Some(found.clone());
        if !settled {
            return None;
        }
        let token = |secret| Token::new(self.name.clone(), secret).map_err(|error| error.to_string());
        Some(found.and_then(token))
    }

    fn accept(&mut self) {
        if let Some(Ok(secret)) = self.found.take() {
            self.current = secret;
        }
        self.told = None;
        info!(caller = self.name, file = %self.path.display(), "the token was renewed");
    }

    fn refuse(&mut self, why: String) {
        if self.told.as_ref() != Some(&why) {
            warn!(caller = self.name, why, "the token was not renewed: the last good one stays");
            self.told = Some(why);
        }
    }
}

fn read(path: &Path) -> Found {
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => Err(format!("`{}` is no regular file", path.display())),
        // A path that leads nowhere is told by the reading.
        _ => config::read_secret(path),
    }
}

fn is_same(one: &Found, other: &Found) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one.expose_secret() == other.expose_secret(),
        (Err(one), Err(other)) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
