//! What the platform and this workspace prove themselves to each other with.
//!
//! | file in the workspace's folder | holds | made by |
//! |---|---|---|
//! | `.auth_token` | what this workspace proves itself to the platform with | the platform, at the first registration, or while it provisions |
//! | `.platform_inbound_secret` | what the platform proves itself to this workspace with | the platform, at registrations and heartbeats |
//!
//! Both are written whole, for their owner only. A file that cannot be written is a warning: the value is used until the
//! process ends. A file that holds no token is a warning, and counts as missing.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use secrecy::{ExposeSecret as _, SecretString};
use tracing::{info, warn};

use crate::folder;

/// The longest token, in bytes: what fits a header line of common servers.
const LONGEST: usize = 8 * 1024;

/// A token in a file.
#[derive(Debug)]
pub(crate) struct Key {
    path: PathBuf,
    /// What is used where the file has none.
    otherwise: Option<SecretString>,
    current: Mutex<Option<SecretString>>,
}

// === impl Key ===

impl Key {
    /// Reads the file, if there is one.
    pub(crate) fn open(path: PathBuf, otherwise: Option<SecretString>) -> Self {
        let key = Self { path, otherwise, current: Mutex::new(None) };
        key.reread();
        key
    }

    /// The token.
    pub(crate) fn get(&self) -> Option<SecretString> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again: somebody else may have written it. Whether there is another token than before.
    pub(crate) fn reread(&self) -> bool {
        let found = match folder::text(&self.path, LONGEST) {
            Ok(text) => text.map(|text| SecretString::from(text.trim())),
            Err(trouble) => {
                warn!(%trouble, "no token was read");
                None
            }
        };
        let found = found.filter(|token| {
            let usable = is_token(token);
            if !usable {
                warn!(file = %self.path.display(), "the file holds no token of visible ASCII characters; ignored");
            }
            usable
        });
        if found.is_some() && self.path.metadata().is_ok_and(|metadata| folder::is_shared(&metadata)) {
            warn!(file = %self.path.display(), "others than its owner may read this token; `chmod 600` it");
        }
        self.set(found.or_else(|| self.otherwise.clone()))
    }

    /// Takes a new token and writes it down. Whether it is another than before.
    pub(crate) fn take(&self, token: SecretString) -> bool {
        if !is_token(&token) {
            warn!(file = %self.path.display(), "the platform sent a token that cannot be sent back; ignored");
            return false;
        }
        let text = token.expose_secret().to_owned();
        let fresh = self.set(Some(token));
        if fresh {
            match folder::write_private(&self.path, &text) {
                Ok(()) => info!(file = %self.path.display(), "a token was written down"),
                Err(error) => {
                    warn!(file = %self.path.display(), %error, "a token could not be written down; it is lost with this process");
                }
            }
        }
        fresh
    }

    fn set(&self, token: Option<SecretString>) -> bool {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let text =
            |token: &Option<SecretString>| token.as_ref().map(|token| token.expose_secret().to_owned());
        let fresh = text(&current) != text(&token);
        *current = token;
        fresh
    }
}

fn is_token(token: &SecretString) -> bool {
    let text = token.expose_secret();
    !text.is_empty() && text.len() <= LONGEST && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn text(key: &Key) -> Option<String> {
        key.get().map(|token| token.expose_secret().to_owned())
    }

    #[test]
    fn a_token_is_kept_over_a_restart_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".auth_token");
        let key = Key::open(path.clone(), None);
        assert_eq!(text(&key), None);
        assert!(key.take("tok-1".into()));
        assert!(!key.take("tok-1".into()), "the same is no news");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(text(&Key::open(path.clone(), None)).as_deref(), Some("tok-1"));
        fs::write(&path, "tok-2\n").unwrap();
        assert!(key.reread());
        assert_eq!(text(&key).as_deref(), Some("tok-2"), "the platform wrote it");
        assert!(!key.reread());
    }

    #[test]
    fn what_is_no_token_counts_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for bad in ["", "\n", "two words", "ä", &"x".repeat(LONGEST + 1)] {
            fs::write(&path, bad).unwrap();
            assert_eq!(text(&Key::open(path.clone(), None)), None);
            assert_eq!(text(&Key::open(path.clone(), Some("given".into()))).as_deref(), Some("given"));
        }
        let key = Key::open(path, None);
        assert!(!key.take("line\nbreak".into()));
        let nowhere = Key::open(folder.path().join("no/such/token"), None);
        assert!(nowhere.take("tok".into()), "it is used even so");
        assert_eq!(text(&nowhere).as_deref(), Some("tok"));
    }
}
