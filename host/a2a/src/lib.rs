//! A2A on the wire: JSON-RPC and HTTP+JSON, versions 1.0 and 0.3 on one port, streams, and the agent card.
//!
//! A request passes five gates, and each knows only its own business:
//! 1. `server`, on `talaria-listen`: sockets, connections, their bounds and the drain;
//! 2. `endpoint` and `route`: HTTP, that is paths, methods, the caller's token, the body's size and time; `origin` and `cors`
//!    for where a request was sent to and which page it is from;
//! 3. `jsonrpc` and `rest`: the bindings, and which version speaks;
//! 4. `offer` and `capabilities`: whether the card of the moment offers it at all;
//! 5. `params` and the codecs `v1`, `v03` and `v03_rest`. All read into one `Operation` and write from one `Answer` or one
//!    `Update`, so what lies behind them, `operation` and the domain crate `talaria-turns`, has no idea of versions.
//!
//! Push configurations, and what is pushed, are `hook`. A stream is `updates` (what is said, read from the log when it can be
//! sent), in the form that the caller wants (`tell`), in the frames of `sse`.
//!
//! Nothing here knows of WebAssembly or of executors. Bad input ends at the gate that sees it, with an error that
//! names the field; only `operation` can make a task.
#![forbid(unsafe_code)]

mod auth;
mod body;
mod capabilities;
mod card;
mod cors;
mod dialect;
mod endpoint;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod hook;
mod jsonrpc;
mod moment;
mod offer;
mod operation;
mod origin;
mod page;
mod params;
mod read;
mod refusal;
mod respond;
mod rest;
mod route;
#[cfg(test)]
mod samples;
mod server;
mod sign;
mod sse;
mod tell;
mod updates;
mod v03;
mod v03_rest;
mod v1;
mod version;
mod write;

pub use auth::{Auth, InvalidToken, NotRenewed, Token};
pub use card::{CardConfig, Extension, Provider, Skill};
pub use hook::Notification;
pub use offer::LiveCard;
pub use operation::{ReplyAs, TENANT};
pub use origin::{InvalidNetwork, InvalidOrigin, Network, Origin};
pub use server::{Config, Counts, Limits, Pages, Server};
pub use sign::{CardSigner, InvalidSigningKey};
