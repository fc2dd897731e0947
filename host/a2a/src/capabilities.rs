//! What the server offers, checked before a request's parameters are read.
//!
//! The card says it and this holds to it: what is not declared is refused with the code that the protocol has for it,
//! and an extension that the card requires must be named by every request.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::card::{CardConfig, Extension};
use crate::operation::{Configuration, Verb};
use crate::refusal::{Kind, Refusal};
use crate::version::Version;

/// What the server offers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Capabilities {
    streaming: bool,
    /// Whether callers may have themselves told.
    push: bool,
    extended_card: bool,
    extensions: Vec<Extension>,
}

/// The header in 1.0.
pub(crate) const EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
/// The header in 0.3.
const X_EXTENSIONS: HeaderName = HeaderName::from_static("x-a2a-extensions");

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

    /// Whether this may be asked for at all, by a caller who knows the extensions `asked`.
    pub(crate) fn admit(&self, verb: Verb, asked: &[&str]) -> Result<(), Refusal> {
        let missing =
            self.extensions.iter().find(|extension| extension.required && !asked.contains(&&*extension.uri));
        if let Some(Extension { uri, .. }) = missing {
            let message = format!("this agent needs the extension {uri}; name it in A2A-Extensions");
            return Err(Refusal::new(Kind::ExtensionSupportRequired, message));
        }
        let unsupported = |what: &str| {
            let message = format!("this agent has no {what}, as its card says");
            Err(Refusal::new(Kind::UnsupportedOperation, message))
        };
        match verb {
            Verb::Stream | Verb::Subscribe if !self.streaming => unsupported("streams"),
            Verb::ExtendedCard if !self.extended_card => unsupported("extended card"),
            Verb::SetHook | Verb::GetHook | Verb::ListHooks | Verb::RemoveHook if !self.push => {
                Err(Refusal::no_push())
            }
            _ => Ok(()),
        }
    }

    /// Says which of the extensions `asked` are active, where any is.
    pub(crate) fn echo(&self, asked: &[&str], version: Version, headers: &mut HeaderMap) {
        let active: Vec<_> = self
            .extensions
            .iter()
            .map(|extension| &*extension.uri)
            .filter(|uri| asked.contains(uri))
            .collect();
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

    /// Refuses a caller whose wishes for the answer cannot be met. Media types are none of them: the executor hears which
    /// ones are wanted, and the answer comes in what there is.
    pub(crate) fn serve(&self, wanted: &Configuration) -> Result<(), Refusal> {
        if wanted.hook.is_some() && !self.push {
            // Taking it and never calling back would leave the caller waiting for ever.
            return Err(Refusal::no_push());
        }
        Ok(())
    }
}

/// The extensions that a caller knows, by the header of either version.
pub(crate) fn asked(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(EXTENSIONS).into_iter().chain(headers.get_all(X_EXTENSIONS));
    let names = values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    names.map(str::trim).filter(|uri| !uri.is_empty()).collect()
}

/// Whether a caller who can use these media types can use text. `*` stands for anything, a type alone (`text`, as 0.2 had
/// it) for all of its kind; no types, any.
pub(crate) fn take_text(modes: &[String]) -> bool {
    let kind = |mode: &String| mode.split(['/', ';']).next().unwrap_or_default().trim().to_ascii_lowercase();
    modes.is_empty() || modes.iter().map(kind).any(|kind| kind == "text" || kind == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_text_says_so_by_a_type_a_wildcard_or_nothing() {
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
            assert_eq!(take_text(&modes), text, "{modes:?}");
        }
    }

    #[test]
    fn extensions_come_in_lists_and_in_either_header() {
        let mut headers = HeaderMap::new();
        headers.append(EXTENSIONS, HeaderValue::from_static("urn:a, urn:b,"));
        headers.append(EXTENSIONS, HeaderValue::from_static(",urn:c"));
        headers.append(X_EXTENSIONS, HeaderValue::from_static("urn:d"));
        assert_eq!(asked(&headers), ["urn:a", "urn:b", "urn:c", "urn:d"]);
    }
}
