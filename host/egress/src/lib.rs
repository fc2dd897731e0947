//! Every outbound HTTP call of the product: those of guests, which are denied by default, those to webhooks, and the
//! host's own.
//!
//! A guest's call passes these gates in order, and fails at the first that it does not pass:
//!
//! 1. The URL is parsed strictly (`target` says what is rejected and why).
//! 2. One of the executor's granted patterns must match method, scheme, host, port and path.
//! 3. A granted name must lead to an address on the internet, unless the grant says that it may lead into a private
//!    network. An address that is granted itself may be any.
//! 4. The headers are checked, and `{secret:NAME}` is filled in if the secret is bound to this destination.
//! 5. The sizes and the deadline of [`Bounds`] hold from the first byte sent to the last byte read.
//!
//! A guest never sees the bytes of a secret: it names one, and the host fills it in after the policy has allowed the call.
//! Secrets are filled into header values only; `{secret:` in a URL is rejected, and in a body it is sent as written. If an
//! upstream repeats a secret, it is masked before the guest reads it (`secrets`,
//! and `talaria_redact`).
//!
//! Deliberately absent: redirects (following one would leave the grant, so a 3xx is returned like any other response),
//! cookies, decompression, and guests' own `CONNECT` and `TRACE` (a tunnel has no policy, and a trace repeats the secrets that
//! were filled in).
//!
//! Proxies are the operator's ([`Proxies`]): a guest neither chooses nor sees one, and the address rules stay.
//!
//! [Webhooks] have no grant, because remote callers name them; the resolved address decides ([`Addresses`]). The host's
//! own calls go to one origin that the operator named ([`OriginClient`]).
//!
//! Every failure is an [`Error`]: a [kind](ErrorKind) to act on, and a sentence that a guest may show.

#![forbid(unsafe_code)]

mod access;
mod address;
mod client;
mod connect;
mod denial;
mod error;
mod exchange;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod headers;
mod origin;
mod pattern;
mod pool;
mod proxy;
mod resolver;
mod secrets;
mod sse;
mod stub_upstream;
mod target;
mod targets;
mod webhook;

pub use access::{Access, Bounds, Needs};
pub use address::{Addresses, Special};
pub use client::{Config, Egress, Request, Response, Roots};
pub use denial::{DenialKind, Denials};
pub use error::{Error, ErrorKind};
pub use exchange::Exchange;
pub use origin::{Origin, OriginClient};
pub use pattern::{HostPattern, InvalidPattern, Pattern};
pub use proxy::{InvalidProxy, Proxies};
pub use resolver::Names;
pub use secrecy::SecretString;
pub use secrets::{InvalidSecret, Secrets};
pub use sse::SseEvent;
pub use stub_upstream::{Call, StubUpstream};
pub use targets::Targets;
pub use webhook::{Answer, Webhooks};
