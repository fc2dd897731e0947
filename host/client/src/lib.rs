//! An A2A client, used by `talaria send`, the end-to-end tests and the benchmarks.
//!
//! [`Agent`] finds an agent's card. [`Card::interface`] picks the newest protocol version that both sides speak over
//! JSON-RPC. [`Client`] then sends messages, follows turns and reads or cancels tasks in that version. A [`TurnStream`]
//! that is cut resumes by itself.
//!
//! Bounds: every response is limited in time and size, and a turn's stream shares one deadline across all its
//! connections. Failure: a [`ClientError`] says whether the caller's input, the agent or the agent's refusal is to blame.
//!
//! A card may name any address as the agent's. Messages go there, since that is what a card is for, but a token goes
//! only to the origin that the caller named.
//!
//! Results are kept as the JSON that arrived; [`Answer`], [`TurnStatus`] and [`Update`] are views of it. Typed messages
//! would be the obvious alternative, but they drop members that they do not know, and `--output json` promises to print
//! what the agent sent.
//!
//! The HTTP client is `egress`, with access to one origin per request: no other crate may depend on an HTTP client.
//!
//! The [`send`] module holds the terminal session of `talaria send`. It lives here and not in the binary so that its
//! tests, which need only a socket, compile without WebAssembly or a command line parser.
#![forbid(unsafe_code)]

mod agent;
mod answer;
mod card;
mod error;
mod parts;
mod printable;
mod request;
pub mod send;
mod stream;
mod update;

pub use agent::{Agent, AgentOptions, Client};
pub use answer::{Answer, TurnStatus};
pub use card::{Card, Interface, Protocol};
pub use error::ClientError;
pub use printable::Printable;
pub use request::{Delivery, Message, TaskMethod};
pub use stream::{StreamItem, TurnStream};
pub use update::Update;

/// Access to the crate's parsers for the fuzz targets in `tests/fuzz`.
#[cfg(fuzzing)]
pub mod fuzz {
    pub use crate::card::same_origin;
    pub use crate::parts::flowing_text;
    pub use crate::send::fuzz::{Piece, Transcript, next_step};
    pub use crate::update::{one_line, tool_progress};
}
