//! Why a call failed, in words that the guest may read.
//!
//! The kind follows from the type of the HTTP client's error, never from its text. The message is ours: short, lower case,
//! with the destination in brackets, and never with a header's value in it. The text of the libraries goes to the log at
//! `debug`.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::address::Special;
use crate::connect::Failure;

/// Why a call failed, for code that decides what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The policy denies it: no pattern matches, a secret is unknown, unset or bound elsewhere, an address may not be
    /// connected to, or a webhook redirects.
    Denied,
    /// The request itself cannot be sent: a bad URL, method, header, or a body above the bound.
    InvalidRequest,
    /// The host's name does not resolve.
    Dns,
    /// No connection: refused by the peer, unreachable, or not made within the connect timeout.
    Connect,
    /// No secure connection: no trusted roots, a bad certificate, or no TLS at the other end.
    Tls,
    /// The deadline of the call passed.
    TimedOut,
    /// The response, its headers, or one of its events exceeds the bound.
    TooLarge,
    /// The other end broke HTTP: cut the response short, sent garbage, or events that are not UTF-8.
    Protocol,
}

/// Why a call failed: a kind to act on and a message that a guest may read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    special: Option<Special>,
}

/// Formats a duration as people write it: `10s`, `250ms`.
pub(crate) struct Pretty(pub(crate) Duration);

// === impl Error ===

impl Error {
    /// Creates an error of this kind; a guest may show the message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), special: None }
    }

    pub(crate) fn denied(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Denied, message)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::TooLarge, message)
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Protocol, message)
    }

    pub(crate) fn timed_out(limit: Duration, authority: &str) -> Self {
        Self::new(ErrorKind::TimedOut, format!("timed out after {} ({authority})", Pretty(limit)))
    }

    /// The kind, for code.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message, for people; the same text as `Display`.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The kind of the address that may not be connected to, if that is the reason.
    pub(crate) fn special(&self) -> Option<Special> {
        self.special
    }

    /// Translates an error of the HTTP client.
    pub(crate) fn from_client(error: &(dyn StdError + 'static), authority: &str) -> Self {
        tracing::debug!(error = ?error, authority, "outbound call failed");
        let mut cause = Some(error);
        let mut http = None;
        while let Some(error) = cause {
            if let Some(failure) = error.downcast_ref::<Failure>() {
                let special = match failure {
                    Failure::Address { special, .. } => Some(*special),
                    _ => None,
                };
                return Self { special, ..Self::new(failure.kind(), failure.to_string()) };
            }
            if let Some(error) = error.downcast_ref::<io::Error>() {
                return Self::from_io(error, authority);
            }
            if let Some(error) = error.downcast_ref::<hyper::Error>() {
                http = Some(error);
            }
            cause = error.source();
        }
        match http {
            Some(error) if error.is_parse_too_large() => {
                Self::too_large(format!("the response's headers are too large or too many ({authority})"))
            }
            Some(error) if error.is_parse() => {
                Self::protocol(format!("the response is not valid HTTP ({authority})"))
            }
            Some(error) if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => {
                Self::protocol(format!("connection closed before the end of the response ({authority})"))
            }
            _ => Self::protocol(format!("the HTTP exchange broke off ({authority})")),
        }
    }

    fn from_io(error: &io::Error, authority: &str) -> Self {
        // With TLS 1.3 a rejection by the server arrives after the handshake, in the first read.
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) => {
                let failure = Failure::tls(error, authority);
                Self::new(failure.kind(), failure.to_string())
            }
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                Self::protocol(format!("connection closed before the end of the response ({authority})"))
            }
            None => Self::protocol(format!("{} ({authority})", error.kind())),
        }
    }
}

// === impl Pretty ===

impl fmt::Display for Pretty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_millis() {
            0 => write!(f, "{}s", self.0.as_secs()),
            _ => write!(f, "{}ms", self.0.as_millis()),
        }
    }
}
