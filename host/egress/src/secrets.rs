//! Secrets that a guest may name but never sees.
//!
//! A header value may contain `{secret:NAME}`. It is filled in only if the call matches one of the patterns that the secret
//! is bound to: a guest with two grants cannot send one upstream's key to the other.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use talaria_redact::Values;

use crate::access::Access;
use crate::denial::DenialKind;
use crate::error::Error;
use crate::pattern::Pattern;
use crate::target::Target;

const OPEN: &str = "{secret:";

/// The secrets of one executor, by name.
#[derive(Clone, Default)]
pub struct Secrets {
    by_name: BTreeMap<String, Secret>,
    /// What to mask in responses, for each set of secrets that a call may meet; made at the first such call.
    masks: Arc<Mutex<BTreeMap<Vec<String>, Values>>>,
}

#[derive(Clone)]
struct Secret {
    value: SecretString,
    destinations: Vec<Pattern>,
}

/// A secret that could never be sent in a header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// The name could not be written inside `{secret:…}`.
    #[error("bad secret name {name:?}; use letters, digits, _ - and . only")]
    Name {
        /// The name as given.
        name: String,
    },
    /// The value holds a line break or another control character.
    #[error(
        "the value of secret {name} holds a line break or control character; remove it (a file's last newline counts)"
    )]
    Value {
        /// The secret's name; the value must not be shown.
        name: String,
    },
    /// The secrets are too many or too large to be searched for in responses.
    #[error("secret {name} is too large to be masked in responses; shorten it")]
    TooLarge {
        /// The secret's name.
        name: String,
    },
}

// === impl Secrets ===

impl Secrets {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a secret for the calls that match one of `destinations`, in place of one of the same name. An empty value is a
    /// secret that is known but not set: a call that names it is denied with that reason.
    pub fn insert(
        &mut self,
        name: impl Into<String>,
        value: SecretString,
        destinations: Vec<Pattern>,
    ) -> Result<(), InvalidSecret> {
        let name = name.into();
        if !is_name(&name) {
            return Err(InvalidSecret::Name { name });
        }
        if HeaderValue::from_bytes(value.expose_secret().as_bytes()).is_err() {
            return Err(InvalidSecret::Value { name });
        }
        self.by_name.insert(name.clone(), Secret { value, destinations });
        if Values::new(self.values().map(ExposeSecret::expose_secret)).is_err() {
            self.by_name.remove(&name);
            return Err(InvalidSecret::TooLarge { name });
        }
        // Clones made before keep their own.
        self.masks = Arc::default();
        Ok(())
    }

    /// Whether the secret is known and has a value.
    pub fn is_set(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(Secret::is_set)
    }

    /// The names of all secrets, set or not, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// The values that are set, for the redactor.
    pub fn values(&self) -> impl Iterator<Item = &SecretString> {
        self.by_name.values().filter(|secret| secret.is_set()).map(|secret| &secret.value)
    }

    /// Returns what to mask in a response of this target: the secrets that are bound to its host, whether or not this call
    /// sends them, since the host may show what another call brought. Secrets of other hosts are left out on purpose: a
    /// guest could send guesses to a host that repeats them, and see which were masked.
    pub(crate) fn of(&self, target: &Target) -> Values {
        let bound = |secret: &Secret| {
            secret.is_set() && secret.destinations.iter().any(|pattern| pattern.reaches_host_of(target))
        };
        let bound: Vec<(&String, &Secret)> =
            self.by_name.iter().filter(|(_, secret)| bound(secret)).collect();
        if bound.is_empty() {
            return Values::default();
        }
        let names = bound.iter().map(|(name, _)| (*name).clone()).collect();
        let mut masks = self.masks.lock().unwrap_or_else(PoisonError::into_inner);
        masks
            .entry(names)
            .or_insert_with(|| {
                let values = bound.iter().map(|(_, secret)| secret.value.expose_secret());
                // All of them fit into one search, see `insert`, so some of them do.
                Values::new(values).unwrap_or_default()
            })
            .clone()
    }

    /// Returns the header value with its secrets filled in; `None` if it names no secret.
    pub(crate) fn fill(
        &self,
        template: &str,
        access: &Access,
        target: &Target,
    ) -> Result<Option<String>, Error> {
        if !template.contains(OPEN) {
            return Ok(None);
        }
        let mut filled = String::with_capacity(template.len());
        let mut rest = template;
        while let Some((before, after)) = rest.split_once(OPEN) {
            let Some((name, after)) = after.split_once('}').filter(|(name, _)| is_name(name)) else {
                return Err(Error::invalid(
                    "a header has {secret: without a name and }; write {secret:NAME}",
                ));
            };
            filled.push_str(before);
            filled.push_str(self.expose(name, access, target)?);
            rest = after;
        }
        filled.push_str(rest);
        Ok(Some(filled))
    }

    fn expose(&self, name: &str, access: &Access, target: &Target) -> Result<&str, Error> {
        if access.needs.as_ref().is_some_and(|needs| !needs.secrets.iter().any(|needed| needed == name)) {
            let what = format_args!("use secret {name}");
            return Err(Error::denied(access.deny_undeclared(what, &format!("secret: {name}"))));
        }
        let (what, add) = match self.by_name.get(name) {
            Some(secret) if !secret.is_set() => {
                let executor = &access.executor;
                return Err(Error::denied(format!(
                    "secret {name} of executor {executor} is not set; set it in the environment or in its file"
                )));
            }
            Some(secret) if secret.destinations.iter().any(|pattern| pattern.matches(target)) => {
                return Ok(secret.value.expose_secret());
            }
            Some(_) => (
                format!("send secret {name} to {} {target}", target.method),
                format!("secrets = [{{ name = \"{name}\", to = [\"{}\"] }}]", Pattern::of(target)),
            ),
            None => (format!("use secret {name}"), format!("secrets = [\"{name}\"]")),
        };
        Err(Error::denied(access.deny(DenialKind::Secret, what, &add)))
    }
}

/// Shows names only, never values.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Secret {
    fn is_set(&self) -> bool {
        !self.value.expose_secret().is_empty()
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}
