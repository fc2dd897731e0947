//! Every outbound HTTP call, in one place: a guest's, denied by default, and those to webhooks.
//!
//! A guest's call passes these gates in order, and the first that refuses answers:
//!
//! 1. the URL is parsed strictly ([`Pattern`] says what is refused and why);
//! 2. one of the executor's granted patterns must match method, scheme, host, port and path;
//! 3. the address that a granted name leads to must be one of the internet, unless the grant says that this name may lead
//!    into a private network; an address that is granted itself is reached whatever it is;
//! 4. the headers are checked, and `{secret:NAME}` is filled in where the secret is bound to this destination;
//! 5. sizes and the deadline of [`Bounds`] hold from the first byte sent to the last byte read.
//!
//! The guest never sees a secret's bytes: it names one, the host fills it in after the policy said yes. Secrets are
//! filled into header values only; in a URL `{secret:` is refused, in a body it is sent as written. Where an upstream repeats
//! one, it is blotted out before the guest reads it (`echo`).
//!
//! Deliberately absent: redirects (a 3xx is an answer like any other, since following one would leave the grant),
//! cookies, proxies from the environment, decompression, `CONNECT` and `TRACE` (a tunnel has no policy, and a trace
//! echoes the secrets that were filled in).
//!
//! [Webhooks] have no grant, since remote callers name them; there the resolved address decides ([`Addresses`]).
//!
//! Failures are one [`Error`] with a [kind](ErrorKind) to act on and a sentence that a guest may show.

#![forbid(unsafe_code)]

mod access;
mod address;
mod client;
mod connect;
mod denial;
mod echo;
mod error;
mod events;
mod exchange;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod headers;
mod names;
mod origin;
mod pattern;
mod pool;
mod rehearsal;
mod secrets;
mod target;
mod webhook;

pub use access::{Access, Bounds, Needs};
pub use address::{Addresses, Special};
pub use client::{Config, Egress, Request, Response, Roots};
pub use denial::Denials;
pub use error::{Error, ErrorKind};
pub use events::SseEvent;
pub use exchange::Exchange;
pub use names::Names;
pub use origin::{Origin, OriginClient};
pub use pattern::{HostPattern, InvalidPattern, Pattern};
pub use rehearsal::{Call, Rehearsal};
pub use secrecy::SecretString;
pub use secrets::{InvalidSecret, Secrets};
pub use webhook::{Answer, Webhooks};
