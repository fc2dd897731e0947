//! The tokens that Talaria makes up: the one in the path of the reply URL, for a callback listener without a secret, and that
//! of the agent's tools.
//!
//! An upstream answers minutes after its request, to the URL in that request, and an agent calls tools with the token that it
//! read when it started. Talaria may have been restarted meanwhile, so a token is in a file beside the store, which only its
//! owner can read. A file that somebody else can read, or that holds no token, is replaced. With a store in memory a token
//! lasts as long as the process.

use anyhow::Context as _;
use secrecy::{ExposeSecret as _, SecretString};
use talaria_config::files;
use talaria_redact::Redactor;

use crate::config::{StoreUrl, read_secret};

/// What a token is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// Callbacks without a secret.
    Callbacks,
    /// The agent's tools.
    Tools,
}

/// The length of a token: 32 hexadecimal digits, twice.
const LENGTH: usize = 64;

/// Returns the token of this store, and makes one if it has no token yet.
pub(super) fn read_or_create(store: &StoreUrl, purpose: Purpose) -> anyhow::Result<SecretString> {
    let StoreUrl::Sqlite(store) = store else { return Ok(fresh()) };
    let (extension, otherwise) = match purpose {
        Purpose::Callbacks => ("callback-token", "set `callback.secret`"),
        Purpose::Tools => ("tools-token", "set `tools.listen = \"off\"`"),
    };
    let path = store.with_extension(extension);
    let is_private = path.metadata().is_ok_and(|file| !files::is_shared(&file));
    if let Some(token) = read_secret(&path).ok().filter(|token| is_private && is_token(token)) {
        return Ok(token);
    }
    let token = fresh();
    files::write_private(&path, token.expose_secret()).with_context(|| {
        format!("cannot write {}; make its folder writable, or {otherwise}", path.display())
    })?;
    Ok(token)
}

fn is_token(token: &SecretString) -> bool {
    let token = token.expose_secret();
    token.len() == LENGTH && token.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A text of more than 240 random bits.
pub(crate) fn random() -> String {
    let random = || uuid::Uuid::new_v4().simple().to_string();
    format!("{}{}", random(), random())
}

/// Makes a token.
fn fresh() -> SecretString {
    let token = random();
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
        let read = || read_or_create(&store, Purpose::Callbacks).unwrap().expose_secret().to_owned();
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
        let tools = read_or_create(&store, Purpose::Tools).unwrap();
        assert_ne!(tools.expose_secret(), read(), "each purpose has its own");
        let memory = || read_or_create(&StoreUrl::Memory, Purpose::Tools).unwrap().expose_secret().to_owned();
        assert_ne!(memory(), memory());
        assert!(Redactor::process().all(&format!("a {first} b")).contains("REDACTED"), "it is a secret");
    }
}
