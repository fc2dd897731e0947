//! A2A on the wire: JSON-RPC over HTTP, versions 1.0 and 0.3 on one port, and the agent card.
//!
//! A request passes four gates, and each knows only its own business:
//! 1. `server`: sockets, connections, their bounds and the drain;
//! 2. `endpoint`: HTTP, that is paths, methods, the caller's token, the body's size and time;
//! 3. `jsonrpc`: the envelope, and which version speaks;
//! 4. `v1` and `v03`: the codecs. Both read into one `Operation` and write from one `Answer`, so what lies behind them,
//!    `operation` and the domain crate `talaria-turns`, has no idea of versions.
//!
//! Nothing here knows of WebAssembly or of executors. Bad input ends at the gate that sees it, with an error that
//! names the field; only `operation` can make a task.
#![forbid(unsafe_code)]

mod auth;
mod body;
mod card;
mod endpoint;
mod jsonrpc;
mod operation;
mod read;
mod refusal;
mod respond;
#[cfg(test)]
mod samples;
mod server;
mod v03;
mod v1;
mod version;
mod write;

pub use auth::{InvalidToken, Token};
pub use card::{CardConfig, Provider, Skill};
pub use operation::ReplyAs;
pub use server::{Config, Limits, Server};
