//! A2A on the wire: JSON-RPC, HTTP+JSON and gRPC, versions 1.0 and 0.3 on one port, streams, and the agent card.
//!
//! A request passes five stages, each with one job:
//! 1. `server`, on top of `talaria-listen`: sockets, connections, their limits, and draining;
//! 2. `endpoint` and `route`: HTTP, which means paths, methods, the caller's token, and the size and deadline of the body;
//!    `origin` finds the address that the client used, `cors` answers browsers;
//! 3. `jsonrpc`, `rest` and `grpc`: the three bindings, and the protocol version of the request;
//! 4. `live_card` and `capabilities`: whether the current card offers the operation at all;
//! 5. `params` and the codecs `v1` and `v03`: they decode every request into one `Operation` and encode one `Answer` or one
//!    stream of updates, so `operation` and the domain crate `talaria-turns` know nothing of versions.
//!
//! `push` holds push notification configurations and the notifications themselves. A stream is an `update_stream`, which
//! reads the log as fast as the client takes the updates; `stream_form` renders each event in the form that the caller
//! wants, and `sse` or `grpc` frames it.
//!
//! This crate knows nothing of WebAssembly or executors. The stage that detects bad input rejects it with an error that names
//! the field; only `operation` can create a task.
#![forbid(unsafe_code)]
#![cfg_attr(fuzzing, allow(missing_docs, reason = "the fuzz targets see types that are otherwise private"))]

mod access;
mod auth;
mod body;
mod capabilities;
mod card;
mod cors;
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzz targets use its types"))]
mod dialect;
mod door;
mod endpoint;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod grpc;
mod json_fields;
mod json_out;
mod jsonrpc;
mod live_card;
mod memory;
mod open_stream;
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzz targets use its types"))]
mod operation;
mod origin;
mod page_token;
mod params;
mod push;
mod rejection;
mod respond;
mod rest;
mod rfc3339;
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzz targets use its types"))]
mod route;
#[cfg(test)]
mod samples;
mod server;
mod service_params;
mod sign;
mod sse;
mod stream_form;
mod trace;
mod update_stream;
mod v03;
mod v1;
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzz targets use its types"))]
mod version;

pub use access::{Request, RequestObserver};
pub use auth::{Auth, InvalidToken, NotRenewed, Token};
pub use card::{CardConfig, Extension, GrpcAddress, Provider, Skill};
pub use live_card::LiveCard;
pub use operation::ReplyAs;
pub use origin::{InvalidNetwork, InvalidOrigin, Network, Origin};
pub use push::Notification;
pub use server::{Config, Counts, ExtraRoutes, Inside, Limits, Server};
pub use sign::{CardSigner, InvalidSigningKey};
