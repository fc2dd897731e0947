//! Push notification configurations on the wire, and the notifications themselves.
//!
//! One [`PushConfig`](talaria_turns::PushConfig) of the domain has three forms: flat in 1.0, nested in 0.3 over JSON-RPC, and nested with
//! a resource name in 0.3 over HTTP+JSON. Secrets are decoded but never encoded: a token and credentials are for the
//! receiver, not for those who can read the configuration.
//!
//! A configuration set in 1.0 gets every event as a `StreamResponse`. One set in 0.3 gets the whole task whenever its status
//! changes, since a push notification of 0.3 has no other form. Streamed answers have the form that applied to the request
//! that set the configuration. The token is sent in both headers that receivers look at.

mod decode;
mod encode;
mod notification;
#[cfg(test)]
mod tests;

pub(crate) use self::decode::{flat, operation, v03};
pub(crate) use self::encode::{PushConfigOut, PushConfigsOut};
pub use self::notification::Notification;
