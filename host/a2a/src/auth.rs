//! Authentication of callers by static bearer tokens.
//!
//! Fails closed: if any token is configured, a request without a valid one is rejected. The token of a request is compared with
//! every configured one, in constant time for its length, so timing reveals neither the position nor the prefix of a match.
//!
//! Tokens can be renewed while the server runs, callers cannot: [`Auth::renew`] gives an existing caller another token and
//! cannot add or remove callers, so a server that requires tokens keeps requiring them. The one exception is a caller that is
//! known from the start and whose token arrives later ([`Auth::awaiting`]): until then nobody can be that caller, and every
//! request needs a token. A request is checked against the tokens that were current when its head was read; what it opened,
//! such as a stream, stays open.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;
use talaria_turns::Principal;

/// A caller and its token.
#[derive(Debug, Clone)]
pub struct Token {
    name: String,
    secret: SecretString,
}

/// Why a token is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// The tasks of a caller without a name would belong to everybody.
    #[error("a token needs a name")]
    Nameless,
    /// An empty token would match a request without one.
    #[error("the token {0:?} is empty")]
    Empty(String),
    /// A client could not send it in a header.
    #[error("the token {0:?} must be of visible ASCII characters, without spaces")]
    Unsendable(String),
}

/// Authenticates callers. All clones share their tokens.
#[derive(Debug, Clone, Default)]
pub struct Auth {
    tokens: Arc<ArcSwap<Vec<Token>>>,
    /// The caller whose token may arrive later.
    awaited: Option<Arc<str>>,
    /// Serializes renewals.
    renewing: Arc<Mutex<()>>,
}

/// Why a caller keeps its current token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRenewed {
    /// A renewal cannot add a caller.
    #[error("there is no caller {0:?}")]
    Unknown(String),
    /// The token would identify two callers.
    #[error("the new token of {0:?} is another caller's too")]
    Shared(String),
}

// === impl Token ===

impl Token {
    /// Creates a token for the caller `name`. A caller may have several tokens, so that they can be rotated without a gap.
    ///
    /// # Errors
    /// [`InvalidToken`] if it could never match, or would match a request without a token.
    pub fn new(name: impl Into<String>, secret: SecretString) -> Result<Self, InvalidToken> {
        let name = name.into();
        if name.is_empty() {
            return Err(InvalidToken::Nameless);
        }
        let text = secret.expose_secret();
        if text.is_empty() {
            return Err(InvalidToken::Empty(name));
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(InvalidToken::Unsendable(name));
        }
        Ok(Self { name, secret })
    }

    /// The name of the caller.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it identifies another caller than `other` by the same secret.
    fn conflicts_with(&self, other: &Self) -> bool {
        self.name != other.name && self.secret.expose_secret() == other.secret.expose_secret()
    }
}

// === impl Auth ===

impl Auth {
    /// Accepts these tokens; if there are none, anyone may call.
    #[must_use]
    pub fn new(tokens: Vec<Token>) -> Self {
        Self { tokens: Arc::new(ArcSwap::from_pointee(tokens)), ..Self::default() }
    }

    /// Adds a caller whose token arrives with a renewal.
    #[must_use]
    pub fn awaiting(self, name: &str) -> Self {
        Self { awaited: Some(name.into()), ..self }
    }

    /// Gives callers new tokens, all at once, so that two callers may also swap theirs. Callers that are not named keep their
    /// tokens, and so do those in the returned errors.
    #[must_use]
    pub fn renew(&self, fresh: &[Token]) -> Vec<NotRenewed> {
        let _guard = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.tokens.load_full();
        let named = |name: &str| fresh.iter().rfind(|token| token.name == name);
        let mut new: Vec<_> = old.iter().map(|token| named(&token.name).unwrap_or(token)).collect();
        let unknown = fresh.iter().filter(|token| old.iter().all(|known| known.name != token.name));
        let (awaited, unknown): (Vec<_>, Vec<_>) =
            unknown.partition(|token| self.awaited.as_deref() == Some(token.name.as_str()));
        let mut kept: Vec<_> =
            unknown.into_iter().map(|token| NotRenewed::Unknown(token.name.clone())).collect();
        // A caller that keeps its old token may conflict with another new one. The old tokens never conflict, so this ends.
        loop {
            let reverted: Vec<_> = (new.iter().zip(old.iter()))
                .map(|(token, before)| {
                    !std::ptr::eq(*token, before) && new.iter().any(|other| token.conflicts_with(other))
                })
                .collect();
            if !reverted.contains(&true) {
                break;
            }
            for ((token, before), _) in
                new.iter_mut().zip(old.iter()).zip(reverted).filter(|(_, reverted)| *reverted)
            {
                kept.push(NotRenewed::Shared(before.name.clone()));
                *token = before;
            }
        }
        if let Some(token) = awaited.last() {
            if new.iter().any(|other| token.conflicts_with(other)) {
                kept.push(NotRenewed::Shared(token.name.clone()));
            } else {
                new.push(token);
            }
        }
        self.tokens.store(Arc::new(new.into_iter().cloned().collect()));
        kept
    }

    /// Whether callers need a token.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.awaited.is_some() || !self.tokens.load().is_empty()
    }

    /// Returns the caller; `None` if the token is missing or wrong.
    #[must_use]
    pub fn caller(&self, headers: &HeaderMap) -> Option<Principal> {
        let tokens = self.tokens.load();
        if tokens.is_empty() && self.awaited.is_none() {
            return Some(Principal::anyone());
        }
        let given = bearer(headers)?;
        let mut caller = None;
        for token in tokens.iter() {
            if bool::from(token.secret.expose_secret().as_bytes().ct_eq(given)) {
                caller = Some(token);
            }
        }
        caller.map(|token| Principal::named(&token.name))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?.as_bytes(), values.next()) else { return None };
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth() -> Auth {
        let token = |name: &str, secret: &str| Token::new(name, SecretString::from(secret)).unwrap();
        Auth::new(vec![token("platform", "s3cret"), token("peer", "other"), token("peer", "rotated")])
    }

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[test]
    fn a_valid_token_identifies_its_caller() {
        for (given, name) in
            [("Bearer s3cret", "platform"), ("bearer other", "peer"), ("BEARER  rotated", "peer")]
        {
            assert_eq!(auth().caller(&headers(&[given])), Some(Principal::named(name)), "{given}");
        }
    }

    #[test]
    fn any_other_header_is_rejected() {
        for given in
            ["Bearer", "Bearer ", "Bearer wrong", "Bearer s3cre", "Bearer s3crett", "Basic s3cret", "s3cret"]
        {
            assert_eq!(auth().caller(&headers(&[given])), None, "{given}");
        }
        assert_eq!(auth().caller(&headers(&[])), None);
        assert_eq!(
            auth().caller(&headers(&["Bearer s3cret", "Bearer other"])),
            None,
            "two headers are ambiguous"
        );
    }

    #[test]
    fn without_tokens_anyone_may_call() {
        assert_eq!(Auth::default().caller(&headers(&["Bearer whatever"])), Some(Principal::anyone()));
    }

    fn renewed(auth: &Auth, fresh: &[(&str, &str)]) -> Vec<NotRenewed> {
        let fresh: Vec<_> = fresh
            .iter()
            .map(|(name, secret)| Token::new(*name, SecretString::from(*secret)).unwrap())
            .collect();
        auth.renew(&fresh)
    }

    fn name_of(auth: &Auth, secret: &str) -> Option<Principal> {
        auth.caller(&headers(&[&format!("Bearer {secret}")]))
    }

    #[test]
    fn every_clone_uses_a_renewed_token_from_the_next_request_on() {
        let token = |name: &str, secret: &str| Token::new(name, SecretString::from(secret)).unwrap();
        let auth = Auth::new(vec![token("platform", "s3cret"), token("peer", "other")]);
        let clone = auth.clone();
        assert_eq!(renewed(&auth, &[("platform", "new")]), []);
        assert_eq!(name_of(&clone, "new"), Some(Principal::named("platform")), "the owner stays the same");
        assert_eq!(name_of(&clone, "s3cret"), None);
        assert_eq!(
            name_of(&clone, "other"),
            Some(Principal::named("peer")),
            "a caller that is not named keeps its token"
        );
    }

    #[test]
    fn a_renewal_neither_adds_nor_loses_nor_confuses_callers() {
        let token = |name: &str, secret: &str| Token::new(name, SecretString::from(secret)).unwrap();
        let auth = Auth::new(vec![token("a", "1"), token("b", "2"), token("c", "3")]);
        assert_eq!(renewed(&auth, &[("d", "4")]), [NotRenewed::Unknown("d".into())]);
        assert_eq!(name_of(&auth, "4"), None);
        assert_eq!(renewed(&auth, &[]), []);
        assert_eq!(renewed(&auth, &[("a", "2"), ("c", "5")]), [NotRenewed::Shared("a".into())]);
        let names =
            |secrets: &[&str]| secrets.iter().map(|secret| name_of(&auth, secret)).collect::<Vec<_>>();
        let [a, b, c] = ["a", "b", "c"].map(|name| Some(Principal::named(name)));
        assert_eq!(names(&["1", "2", "5", "3"]), [a.clone(), b.clone(), c.clone(), None]);
        assert_eq!(renewed(&auth, &[("a", "2"), ("b", "1")]), [], "two callers may swap their tokens");
        assert_eq!(names(&["2", "1", "5"]), [a.clone(), b.clone(), c.clone()]);
        let all_the_same = renewed(&auth, &[("a", "9"), ("b", "9"), ("c", "9")]);
        assert_eq!(all_the_same, ["a", "b", "c"].map(|name| NotRenewed::Shared(name.into())));
        // `b` keeps its old token and so conflicts with the new one of `c`.
        assert_eq!(renewed(&auth, &[("b", "2"), ("c", "1")]).len(), 2);
        assert_eq!(names(&["2", "1", "5", "9"]), [a, b, c, None], "nobody is left without a token");
        assert!(auth.is_required());
        assert_eq!(renewed(&Auth::default(), &[("a", "1")]), [NotRenewed::Unknown("a".into())]);
    }

    #[test]
    fn a_token_that_arrives_later_leaves_no_gap() {
        let auth = Auth::default().awaiting("platform");
        assert!(auth.is_required());
        assert_eq!(name_of(&auth, "anything"), None, "nobody has the token yet");
        assert_eq!(renewed(&auth, &[("other", "x")]), [NotRenewed::Unknown("other".into())]);
        assert_eq!(renewed(&auth, &[("platform", "first")]), []);
        assert_eq!(name_of(&auth, "first"), Some(Principal::named("platform")));
        assert_eq!(renewed(&auth, &[("platform", "second")]), []);
        assert_eq!((name_of(&auth, "first"), name_of(&auth, "second").is_some()), (None, true));

        let token = Token::new("peer", SecretString::from("taken")).unwrap();
        let auth = Auth::new(vec![token]).awaiting("platform");
        assert_eq!(renewed(&auth, &[("platform", "taken")]), [NotRenewed::Shared("platform".into())]);
        assert_eq!(name_of(&auth, "taken"), Some(Principal::named("peer")));
        assert_eq!(renewed(&auth, &[("platform", "own")]), []);
        assert_eq!(name_of(&auth, "own"), Some(Principal::named("platform")));
    }

    #[test]
    fn rejects_tokens_that_could_not_work() {
        let new = |name: &str, secret: &str| Token::new(name, SecretString::from(secret)).err();
        assert_eq!(new("", "x"), Some(InvalidToken::Nameless));
        assert_eq!(new("a", ""), Some(InvalidToken::Empty("a".into())));
        assert_eq!(new("a", "two words"), Some(InvalidToken::Unsendable("a".into())));
        assert_eq!(new("a", "line\n"), Some(InvalidToken::Unsendable("a".into())));
    }
}
