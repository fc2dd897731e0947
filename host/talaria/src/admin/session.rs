//! The sessions of the console: a cookie in place of the token, for a browser.
//!
//! Signing in takes the token of `admin.token` and gives a cookie that scripts cannot read and that no other site's page can
//! send (`HttpOnly`, `SameSite=Strict`), and a second secret that every request which changes something must repeat in
//! `x-csrf-token`. Both are random, are in memory only, and end with the process, after [`LASTS`], or with the sign-out.
//! Without a token there is nothing to sign in to.
//!
//! Bounds: [`MOST`] sessions, of which the oldest goes, and [`TRIES`] wrong tokens a minute. A token is long and random, so
//! the second only keeps the logs readable.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::COOKIE;
use subtle::ConstantTimeEq as _;

use crate::app::random;

/// How long a session lasts: a day of work.
const LASTS: Duration = Duration::from_secs(12 * 3_600);

/// The sessions at once.
const MOST: usize = 64;

/// The wrong tokens in a minute; then signing in is refused until it is over.
const TRIES: u32 = 20;

const NAME: &str = "talaria_session";

/// The header that repeats the second secret.
pub(super) const CSRF: &str = "x-csrf-token";

/// The sessions.
#[derive(Default)]
pub(super) struct Sessions(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    open: Vec<Session>,
    /// The wrong tokens of this minute, and when it began.
    wrong: Option<(Instant, u32)>,
}

/// A session.
#[derive(Clone)]
pub(super) struct Session {
    id: String,
    pub(super) csrf: String,
    until: Instant,
}

// === impl Sessions ===

impl Sessions {
    /// Opens a session. Returns it, and the value of `Set-Cookie`.
    pub(super) fn open(&self) -> (Session, String) {
        let session = Session { id: random(), csrf: random(), until: Instant::now() + LASTS };
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.open.retain(|known| known.until > Instant::now());
        if inner.open.len() >= MOST {
            inner.open.remove(0);
        }
        inner.open.push(session.clone());
        let cookie =
            format!("{NAME}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}", session.id, LASTS.as_secs());
        (session, cookie)
    }

    /// The session of a request.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<Session> {
        let id = cookie(headers)?;
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        inner.open.iter().find(|session| session.until > now && same(&session.id, id)).cloned()
    }

    /// Ends the session of a request. Returns the value of `Set-Cookie`.
    pub(super) fn close(&self, headers: &HeaderMap) -> String {
        if let Some(id) = cookie(headers) {
            let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            inner.open.retain(|session| !same(&session.id, id));
        }
        format!("{NAME}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0")
    }

    /// Whether another token may be tried.
    pub(super) fn may_try(&self) -> bool {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !inner.wrong.is_some_and(|(since, tries)| since.elapsed() < Duration::from_secs(60) && tries >= TRIES)
    }

    /// Counts a wrong token. Returns how many there were in this minute.
    pub(super) fn was_wrong(&self) -> u32 {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, tries) = match inner.wrong {
            Some((since, tries)) if since.elapsed() < Duration::from_secs(60) => {
                (since, tries.saturating_add(1))
            }
            _ => (Instant::now(), 1),
        };
        inner.wrong = Some((since, tries));
        tries
    }
}

// === impl Session ===

impl Session {
    /// Whether a request repeats the second secret.
    pub(super) fn is_repeated(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(CSRF).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        value.to_str().is_ok_and(|value| same(value, &self.csrf))
    }
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies = values.flat_map(|value| value.split(';'));
    cookies.find_map(|pair| pair.trim().strip_prefix(NAME)?.strip_prefix('='))
}

/// Compares in a time that says nothing about where two secrets differ.
fn same(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_session_is_known_by_its_cookie_until_it_is_closed() {
        let sessions = Sessions::default();
        let (session, set) = sessions.open();
        assert!(set.contains("HttpOnly; SameSite=Strict"), "{set}");
        let cookie = format!("other=1; {}", set.split(';').next().unwrap());
        let request = headers(&[("cookie", &cookie)]);
        assert!(sessions.of(&request).is_some_and(|known| known.csrf == session.csrf));
        assert!(sessions.of(&headers(&[("cookie", "talaria_session=")])).is_none());
        assert!(sessions.of(&headers(&[("cookie", "talaria_sessionx=1")])).is_none());
        assert!(!session.is_repeated(&request) && !session.is_repeated(&headers(&[(CSRF, "x")])));
        assert!(session.is_repeated(&headers(&[(CSRF, &session.csrf)])));
        assert!(sessions.close(&request).contains("Max-Age=0"));
        assert!(sessions.of(&request).is_none());
    }

    #[test]
    fn sessions_and_tries_are_bounded() {
        let sessions = Sessions::default();
        let (_, first) = sessions.open();
        for _ in 0..MOST {
            sessions.open();
        }
        let cookie = first.split(';').next().unwrap();
        assert!(sessions.of(&headers(&[("cookie", cookie)])).is_none(), "the oldest went");
        for _ in 0..TRIES {
            assert!(sessions.may_try());
            sessions.was_wrong();
        }
        assert!(!sessions.may_try());
    }
}
