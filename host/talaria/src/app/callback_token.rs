//! The token in the path of the reply URL, for a callback listener without a secret.
//!
//! An upstream answers minutes after its request, to the URL in that request, and Talaria may have been restarted meanwhile.
//! Therefore the token is in a file beside the store, which only its owner can read. A file that somebody else can read, or
//! that holds no token, is replaced. A store in memory forgets its turns at a restart, so its token needs no file.

use std::path::Path;

use anyhow::Context as _;
use secrecy::{ExposeSecret as _, SecretString};
use talaria_config::files;
use talaria_redact::Redactor;

use crate::config::{StoreUrl, read_secret};

/// The extension of the file, which otherwise has the name of the store.
const EXTENSION: &str = "callback-token";

/// The length of a token: 32 hexadecimal digits, twice.
const LENGTH: usize = 64;

/// Returns the token of this store, and makes one if it has no token yet.
pub(super) fn read_or_create(store: &StoreUrl) -> anyhow::Result<SecretString> {
    match store {
        StoreUrl::Memory => Ok(fresh()),
        StoreUrl::Sqlite(path) => in_file(&path.with_extension(EXTENSION)),
    }
}

fn in_file(path: &Path) -> anyhow::Result<SecretString> {
    let is_private = path.metadata().is_ok_and(|file| !files::is_shared(&file));
    if let Some(token) = read_secret(path).ok().filter(|token| is_private && is_token(token)) {
        return Ok(token);
    }
    let token = fresh();
    files::write_private(path, token.expose_secret()).with_context(|| {
        format!("cannot write {}; make its folder writable, or set `callback.secret`", path.display())
    })?;
    Ok(token)
}

fn is_token(token: &SecretString) -> bool {
    let token = token.expose_secret();
    token.len() == LENGTH && token.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Makes a token of more than 240 random bits.
fn fresh() -> SecretString {
    let random = || uuid::Uuid::new_v4().simple().to_string();
    let token = format!("{}{}", random(), random());
    Redactor::process().learn([&token]);
    token.into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn a_token_stays_the_same_for_its_store_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = StoreUrl::Sqlite(folder.path().join("talaria.db"));
        let read = || read_or_create(&store).unwrap().expose_secret().to_owned();
        let first = read();
        assert!(is_token(&first.clone().into()), "{first}");
        assert_eq!(read(), first);
        let file = folder.path().join("talaria.callback-token");
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let second = read();
        assert_ne!(second, first, "others may have read it");
        fs::write(&file, "short").unwrap();
        assert_ne!(read(), second, "not a token");
        let memory = || read_or_create(&StoreUrl::Memory).unwrap().expose_secret().to_owned();
        assert_ne!(memory(), memory());
        assert!(Redactor::process().all(&format!("a {first} b")).contains("REDACTED"), "it is a secret");
    }
}
