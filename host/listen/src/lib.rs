//! What every HTTP server of the product shares: bounded connections, a door, bounded request bodies, plain responses.
//!
//! [`serve`] accepts connections and answers requests with a function, and [`Workers`] keep each connection on one core; a
//! [`Door`] keeps web pages out; [`read_body`] reads a request's body within a size and a time; [`json`], [`error`] and
//! [`typed`] build responses. Nothing here knows what is served.

#![forbid(unsafe_code)]

mod body;
mod door;
mod respond;
mod serve;
mod stall;
mod workers;

pub use body::{BodyError, discard_body, read_body};
pub use door::{Advice, Door, Refusal};
pub use respond::{error, json, typed};
pub use serve::{Limits, Peer, serve};
pub use workers::{Spread, Workers};
