//! The secrets of this process.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use secrecy::{ExposeSecret as _, SecretString};

use crate::shapes::{kinds, label, rewrite, scrub_private_keys, scrub_rest, visible};
use crate::values::{SHORTEST, Values};

/// The most values that are known at once. A file of tokens that changes every minute must not fill the memory; the
/// value that was learned first is forgotten.
const MOST: usize = 4_096;

/// Endings of the names of environment variables that hold a secret.
const SECRET_NAMES: [&str; 9] =
    ["_KEY", "_KEYS", "_TOKEN", "_TOKENS", "_SECRET", "_PASSWORD", "_PASSWD", "_CREDENTIALS", "_PAT"];

static PROCESS: LazyLock<Redactor> = LazyLock::new(Redactor::default);

/// Replaces secrets in texts. Clones share what they know. The default knows no values.
#[derive(Clone, Default)]
pub struct Redactor(Arc<Inner>);

#[derive(Default)]
struct Inner {
    learned: Mutex<Vec<SecretString>>,
    /// The search for them; `None` since something was learned, until a text is redacted. A start learns many secrets one by
    /// one, and each search is made from all of them.
    values: ArcSwapOption<Values>,
}

// === impl Redactor ===

impl Redactor {
    /// Creates a redactor that knows these values and no others.
    pub fn new(values: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let redactor = Self::default();
        redactor.learn(values);
        redactor
    }

    /// Returns the redactor of this process, which knows every secret that was read. There is one, as there is one log: a
    /// secret that had to be passed along would leak where somebody forgot to.
    pub fn process() -> &'static Self {
        &PROCESS
    }

    /// Adds values. White space around a value is not part of it. Values of less than 8 bytes are ignored, and so are
    /// values that are part of a label.
    pub fn learn(&self, values: impl IntoIterator<Item = impl AsRef<str>>) {
        let mut learned = self.0.learned.lock().unwrap_or_else(PoisonError::into_inner);
        let before = learned.len();
        for value in values {
            let value = value.as_ref().trim();
            let in_label = kinds().any(|kind| label(kind).contains(value));
            let known = learned.iter().any(|known| known.expose_secret() == value);
            if value.len() >= SHORTEST && !in_label && !known {
                learned.push(value.into());
            }
        }
        if learned.len() == before {
            return;
        }
        let excess = learned.len().saturating_sub(MOST);
        learned.drain(..excess);
        self.0.values.store(None);
    }

    /// Adds the values of environment variables whose names say that they are secret, such as `OPENAI_API_KEY`: a gateway that
    /// this process starts may get them, and repeat them. A value that is the path of a file is not secret.
    pub fn learn_variables(&self, variables: impl IntoIterator<Item = (OsString, OsString)>) {
        let secret = variables.into_iter().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            let name = name.to_ascii_uppercase();
            let is_secret = SECRET_NAMES.iter().any(|ending| name.ends_with(ending));
            (is_secret && !Path::new(&value).exists()).then_some(value)
        });
        self.learn(secret);
    }

    /// Returns the text without known values; borrowed if it has none.
    pub fn values<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &*self.0.values.load() {
            Some(values) => values.replace(text),
            None => self.known().replace(text),
        }
    }

    /// Returns the text without known values and without what has the shape of a secret; borrowed if it has neither.
    pub fn all<'t>(&self, text: &'t str) -> Cow<'t, str> {
        // A private key first: the removal of a value inside it would break it apart.
        let text = scrub_private_keys(visible(text));
        let text = rewrite(text, |text| self.values(text));
        scrub_rest(text)
    }

    /// The values as they are known now.
    pub(crate) fn known(&self) -> Arc<Values> {
        if let Some(values) = self.0.values.load_full() {
            return values;
        }
        // Nothing is learned meanwhile, so the search cannot be older than what is known.
        let learned = self.0.learned.lock().unwrap_or_else(PoisonError::into_inner);
        // Fails only for more bytes than secrets can have: they are bounded in number and in length.
        let values = Values::new(learned.iter().map(|value| value.expose_secret())).unwrap_or_default();
        let values = Arc::new(values);
        self.0.values.store(Some(Arc::clone(&values)));
        values
    }
}

/// Shows only the number of known values.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.0.learned.lock().unwrap_or_else(PoisonError::into_inner).len();
        write!(f, "Redactor({known} known)")
    }
}

#[cfg(test)]
mod tests;
