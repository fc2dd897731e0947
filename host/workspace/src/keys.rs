//! The tokens with which the platform and this workspace authenticate to each other.
//!
//! | file in the workspace's folder | authenticates | issued by the platform |
//! |---|---|---|
//! | `.auth_token` | this workspace to the platform | at the first registration, or during provisioning |
//! | `.platform_inbound_secret` | the platform to this workspace | at registrations and heartbeats |
//!
//! Both files are replaced as a whole and readable only by their owner. If a file cannot be written, that is logged and the
//! token is used until the process ends. A file without a valid token is logged and treated as missing.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use secrecy::{ExposeSecret as _, SecretString};
use talaria_redact::Redactor;
use tracing::{info, warn};

use crate::folder;

/// The longest token, in bytes: common servers accept header lines of this length.
const LONGEST: usize = 8 * 1024;

/// A token in a file.
#[derive(Debug)]
pub(crate) struct Key {
    path: PathBuf,
    /// The token that is used if the file has none.
    otherwise: Option<SecretString>,
    current: Mutex<Option<SecretString>>,
}

// === impl Key ===

impl Key {
    /// Reads the token from its file, if the file exists.
    pub(crate) fn open(path: PathBuf, otherwise: Option<SecretString>) -> Self {
        let key = Self { path, otherwise, current: Mutex::new(None) };
        key.reread();
        key
    }

    /// The current token.
    pub(crate) fn get(&self) -> Option<SecretString> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again, since the platform may have written it. Returns whether the token changed.
    pub(crate) fn reread(&self) -> bool {
        let found = match folder::text(&self.path, LONGEST) {
            Ok(text) => text.map(|text| SecretString::from(text.trim())),
            Err(trouble) => {
                warn!(%trouble, "cannot read the token");
                None
            }
        };
        let found = found.filter(|token| {
            let usable = is_token(token);
            if !usable {
                warn!(file = %self.path.display(), "the file does not hold a token of visible ASCII characters; ignored");
            }
            usable
        });
        if found.is_some() && self.path.metadata().is_ok_and(|metadata| folder::is_shared(&metadata)) {
            warn!(file = %self.path.display(), "other users may read this token; run `chmod 600` on the file");
        }
        self.set(found.or_else(|| self.otherwise.clone()))
    }

    /// Replaces the token and writes it to the file. Returns whether the token changed.
    pub(crate) fn take(&self, token: SecretString) -> bool {
        if !is_token(&token) {
            warn!(file = %self.path.display(), "the platform sent a token that does not fit into a header; ignored");
            return false;
        }
        let text = token.expose_secret().to_owned();
        let fresh = self.set(Some(token));
        if fresh {
            match folder::write_private(&self.path, &text) {
                Ok(()) => info!(file = %self.path.display(), "wrote a token"),
                Err(error) => {
                    warn!(file = %self.path.display(), %error, "token not written; lost on restart");
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
        Redactor::process().learn(token.iter().map(|token| token.expose_secret()));
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
    fn a_token_survives_a_restart_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".auth_token");
        let key = Key::open(path.clone(), None);
        assert_eq!(text(&key), None);
        assert!(key.take("tok-1".into()));
        assert!(!key.take("tok-1".into()), "the token did not change");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(text(&Key::open(path.clone(), None)).as_deref(), Some("tok-1"));
        fs::write(&path, "tok-2\n").unwrap();
        assert!(key.reread());
        assert_eq!(text(&key).as_deref(), Some("tok-2"), "the platform wrote it");
        assert!(!key.reread());
    }

    #[test]
    fn an_invalid_token_counts_as_missing() {
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
        assert!(nowhere.take("tok".into()), "a token that cannot be written is used all the same");
        assert_eq!(text(&nowhere).as_deref(), Some("tok"));
    }
}
