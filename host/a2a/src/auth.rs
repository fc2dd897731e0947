//! Who calls: static bearer tokens.
//!
//! Fails closed: with one token configured, a request without a right one ends here. The token given is compared with
//! every configured one, in constant time for its length, so neither the place nor the prefix of a match shows.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;
use talaria_turns::Principal;

/// A caller and the token that proves it.
#[derive(Debug, Clone)]
pub struct Token {
    name: String,
    secret: SecretString,
}

/// Why a token cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// Without a name its tasks would belong to everybody.
    #[error("a token needs a name")]
    Nameless,
    /// Nothing would be the right answer.
    #[error("the token {0:?} is empty")]
    Empty(String),
    /// No client could send it in a header.
    #[error("the token {0:?} must be of visible ASCII characters, without spaces")]
    Unsendable(String),
}

/// Tells callers apart. Without tokens everybody is the same caller.
#[derive(Debug, Default)]
pub struct Auth {
    tokens: Vec<Token>,
}

// === impl Token ===

impl Token {
    /// A token for the caller `name`. Several tokens may have one name, to change them without a gap.
    ///
    /// # Errors
    /// [`InvalidToken`] where it could never match, or would match nothing at all.
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
}

// === impl Auth ===

impl Auth {
    /// Knows the callers with these tokens.
    #[must_use]
    pub fn new(tokens: Vec<Token>) -> Self {
        Self { tokens }
    }

    /// Whether callers must prove who they are.
    #[must_use]
    pub fn is_required(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// The caller; none where the proof is missing or wrong.
    #[must_use]
    pub fn caller(&self, headers: &HeaderMap) -> Option<Principal> {
        if !self.is_required() {
            return Some(Principal::anyone());
        }
        let given = bearer(headers)?;
        let mut caller = None;
        for token in &self.tokens {
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
    fn a_right_token_names_its_caller() {
        for (given, name) in
            [("Bearer s3cret", "platform"), ("bearer other", "peer"), ("BEARER  rotated", "peer")]
        {
            assert_eq!(auth().caller(&headers(&[given])), Some(Principal::named(name)), "{given}");
        }
    }

    #[test]
    fn anything_else_is_nobody() {
        for given in
            ["Bearer", "Bearer ", "Bearer wrong", "Bearer s3cre", "Bearer s3crett", "Basic s3cret", "s3cret"]
        {
            assert_eq!(auth().caller(&headers(&[given])), None, "{given}");
        }
        assert_eq!(auth().caller(&headers(&[])), None);
        assert_eq!(auth().caller(&headers(&["Bearer s3cret", "Bearer other"])), None, "two are none");
    }

    #[test]
    fn without_tokens_it_is_everybody() {
        assert_eq!(Auth::default().caller(&headers(&["Bearer whatever"])), Some(Principal::anyone()));
    }

    #[test]
    fn tokens_that_could_not_work_are_refused() {
        let new = |name: &str, secret: &str| Token::new(name, SecretString::from(secret)).err();
        assert_eq!(new("", "x"), Some(InvalidToken::Nameless));
        assert_eq!(new("a", ""), Some(InvalidToken::Empty("a".into())));
        assert_eq!(new("a", "two words"), Some(InvalidToken::Unsendable("a".into())));
        assert_eq!(new("a", "line\n"), Some(InvalidToken::Unsendable("a".into())));
    }
}
