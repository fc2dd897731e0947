//! How peers post callbacks: the one part of a callback transport that is not general.
//!
//! A [`CallbackWire`] says where peers post, how they prove who they are, what their bodies mean and what they read as an
//! answer. Everything else is the same for all of them and stays in this crate: bounds and timeouts, durability, which
//! turn gets a callback, and the order of a chat.
//!
//! The listener calls a wire in this order: [`path`](CallbackWire::path),
//! [`verify_head`](CallbackWire::verify_head) before it reads the body, [`verify_body`](CallbackWire::verify_body)
//! before anything parses it, [`parse`](CallbackWire::parse), and [`answer`](CallbackWire::answer) with the outcome. A
//! wire does no I/O and keeps no state, so it cannot delay or reorder callbacks.

mod plain;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Response, StatusCode};
use http_body_util::Full;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;

use crate::callback::{Callback, DeliveredAs, InvalidCallback};

pub use self::plain::{PlainWire, Pointer};

/// A shape of callbacks.
pub trait CallbackWire: Send + Sync + 'static {
    /// The path that peers post to, with its leading slash. The mailbox may add a token behind it, see
    /// [`Config::path_token`](crate::Config::path_token).
    fn path(&self) -> &str;

    /// Whether the head of a request comes from a peer that may post. It is called before the body is read, so that a
    /// stranger costs no memory. Compare secrets in constant time, as [`SecretHeader`] does.
    fn verify_head(&self, head: &Parts) -> bool;

    /// Whether the body is what that peer sent, for wires that sign bodies. It is called before the body is parsed.
    fn verify_body(&self, _head: &Parts, _body: &[u8]) -> bool {
        true
    }

    /// Parses a body.
    ///
    /// # Errors
    /// [`InvalidCallback`], whose text goes into the answer.
    fn parse(&self, body: &[u8]) -> Result<Callback, InvalidCallback>;

    /// The JSON object for the turn that waits for `message`. A wire may add members; it must keep those of
    /// [`Callback::turn_body`], which the contract of executors names.
    fn turn_body(&self, callback: &Callback, message: &str, delivered_as: DeliveredAs) -> Value {
        callback.turn_body(message, delivered_as)
    }

    /// The answer that the peer reads. By default `{"ok":true}`, with `"stale":true` where the callback had no use, or
    /// `{"ok":false,"error":"…"}` with the status of the answer.
    fn answer(&self, answer: &Answer<'_>) -> Response<Full<Bytes>> {
        match answer {
            Answer::Accepted => talaria_listen::json(StatusCode::OK, json!({ "ok": true }).to_string()),
            Answer::Stale => {
                talaria_listen::json(StatusCode::OK, json!({ "ok": true, "stale": true }).to_string())
            }
            failed => {
                let body = json!({ "ok": false, "error": failed.error() });
                talaria_listen::json(failed.status(), body.to_string())
            }
        }
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    /// A turn has the callback, or will.
    Accepted,
    /// It came late, for the second time, or for nobody. The peer must not send it again.
    Stale,
    /// The body was rejected, for this reason.
    Invalid(&'a str),
    /// The peer did not prove who it is.
    Unauthorized,
    /// The listener rejected the request before a wire was asked. A status of 503 means that the peer must send it again.
    Rejected(StatusCode, &'static str),
}

/// A header whose value proves that a request comes from the peer. Without a secret every request passes.
pub struct SecretHeader {
    name: HeaderName,
    secret: Option<SecretString>,
}

// === impl Answer ===

impl Answer<'_> {
    /// The usual status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Accepted | Self::Stale => StatusCode::OK,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Rejected(status, _) => *status,
        }
    }

    /// The reason; empty for a callback that was accepted.
    #[must_use]
    pub fn error(&self) -> &str {
        match self {
            Self::Accepted | Self::Stale => "",
            Self::Invalid(reason) | Self::Rejected(_, reason) => reason,
            Self::Unauthorized => "unauthorized",
        }
    }
}

// === impl SecretHeader ===

impl SecretHeader {
    /// A header that must hold `secret`. No secret and an empty one mean that nothing is checked.
    #[must_use]
    pub fn new(name: HeaderName, secret: Option<SecretString>) -> Self {
        Self { name, secret: secret.filter(|secret| !secret.expose_secret().is_empty()) }
    }

    /// Whether a request carries the secret, exactly once. The comparison takes the same time for every value of a length.
    #[must_use]
    pub fn is_in(&self, head: &Parts) -> bool {
        let Some(secret) = &self.secret else { return true };
        let mut given = head.headers.get_all(&self.name).iter();
        let (Some(given), None) = (given.next(), given.next()) else { return false };
        secret.expose_secret().as_bytes().ct_eq(given.as_bytes()).into()
    }
}
