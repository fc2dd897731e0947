//! Holds requests to the card: an operation that the card does not offer is rejected with the code that the protocol has
//! for it, and every request must name the extensions that the card requires.
//!
//! [`Capabilities::admit`] runs before the parameters are decoded. What only the parameters tell, a push configuration that
//! comes with a message, is checked by [`Capabilities::require_push`] while they are decoded.

use http::header::{HeaderMap, HeaderValue};

use crate::card::{CardConfig, Extension};
use crate::operation::Verb;
use crate::rejection::{ErrorKind, Rejection};
use crate::service_params::{EXTENSIONS, X_EXTENSIONS};
use crate::version::Version;

/// What the card offers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Capabilities {
    streaming: bool,
    push: bool,
    extended_card: bool,
    extensions: Vec<Extension>,
}

// === impl Capabilities ===

impl Capabilities {
    pub(crate) fn new(card: &CardConfig) -> Self {
        Self {
            streaming: card.streaming,
            push: card.push_notifications,
            extended_card: card.extended_card,
            extensions: card.all_extensions().collect(),
        }
    }

    /// Checks that the card offers `verb` to a caller who supports these extensions.
    pub(crate) fn admit(&self, verb: Verb, extensions: &[String]) -> Result<(), Rejection> {
        let is_missing = |extension: &&Extension| extension.required && !extensions.contains(&extension.uri);
        if let Some(Extension { uri, .. }) = self.extensions.iter().find(is_missing) {
            let message = format!("this agent needs the extension {uri}; name it in A2A-Extensions");
            return Err(Rejection::new(ErrorKind::ExtensionSupportRequired, message));
        }
        let unsupported = |what: &str| {
            let message = format!("this agent has no {what}, as its card says");
            Err(Rejection::new(ErrorKind::UnsupportedOperation, message))
        };
        match verb {
            Verb::Stream | Verb::Subscribe if !self.streaming => unsupported("streams"),
            Verb::ExtendedCard if !self.extended_card => unsupported("extended card"),
            verb if verb.is_about_push() => self.require_push(),
            _ => Ok(()),
        }
    }

    /// Checks that the card offers push notifications. Accepting a configuration and never sending anything would leave the
    /// caller waiting for ever.
    pub(crate) fn require_push(&self) -> Result<(), Rejection> {
        if self.push { Ok(()) } else { Err(Rejection::no_push()) }
    }

    /// Adds a header with those of the caller's extensions that are active, if there are any.
    pub(crate) fn echo(&self, extensions: &[String], version: Version, headers: &mut HeaderMap) {
        if extensions.is_empty() {
            return;
        }
        let offered = self.extensions.iter().map(|extension| &extension.uri);
        let active: Vec<_> = offered.filter(|uri| extensions.contains(uri)).map(String::as_str).collect();
        if let Ok(value) = HeaderValue::try_from(active.join(", "))
            && !active.is_empty()
        {
            let name = match version {
                Version::V1 => EXTENSIONS,
                Version::V03 => X_EXTENSIONS,
            };
            headers.insert(name, value);
        }
    }
}

/// Whether a caller that accepts these media types accepts text. `*` stands for anything, a bare type (`text`, as in 0.2)
/// for all its subtypes, and an empty list for any type.
pub(crate) fn accepts_text(modes: &[String]) -> bool {
    let kind = |mode: &String| mode.split(['/', ';']).next().unwrap_or_default().trim().to_ascii_lowercase();
    modes.is_empty() || modes.iter().map(kind).any(|kind| kind == "text" || kind == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_accepted_by_type_by_wildcard_or_by_default() {
        for (modes, text) in [
            (vec![], true),
            (vec!["text/plain"], true),
            (vec!["application/json", "Text/Markdown; charset=utf-8"], true),
            (vec!["*/*"], true),
            (vec!["text"], true),
            (vec!["application/json"], false),
            (vec!["image/*", ""], false),
        ] {
            let modes: Vec<_> = modes.into_iter().map(str::to_owned).collect();
            assert_eq!(accepts_text(&modes), text, "{modes:?}");
        }
    }
}
