//! The agent card, which serves both versions from one address.
//!
//! A caller who requests 1.x gets the fields of 1.0 only. Every other caller gets a union: the same fields, plus those that
//! only 0.3 knows (`url`, `preferredTransport`, `security`, …). A client that fetches the card for the first time states no
//! version, and each version ignores the fields of the other. The card promises only what the server serves.
//!
//! The card is encoded, and signed if there is a key, once per change: a GET copies a pointer, and the ETag changes exactly
//! when a byte does. Both documents carry the same signatures, which cover the card of 1.0. The card is public, since it says
//! how to authenticate. A card for another address than the configured one is encoded for each request.

mod addresses;
mod config;
mod document;
mod served;

pub(crate) use addresses::Addresses;
pub use addresses::GrpcAddress;
pub use config::{CardConfig, Extension, Provider, Skill};
pub(crate) use served::Card;
