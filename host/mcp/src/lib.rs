//! Tools over the Model Context Protocol (streamable HTTP): served to an agent on the same machine, and taken from servers
//! that the operator names.
//!
//! **Served**: //! [`Server`] speaks the protocol and guards the door; [`Tools`] says which tools there are and runs them. Nothing here knows
//! what a tool does.
//!
//! The server keeps no sessions: each request is answered with one JSON document, so nothing is lost when the host restarts
//! between two requests. That is all the protocol asks of a server whose list of tools does not change and whose tools
//! answer within a minute. See `docs/decisions/050-mcp-by-hand.md`.
//!
//! **Taken**: [`RemoteServer`] is a source of tools for executors (`talaria_turns::Toolbox`). See `client`.
#![forbid(unsafe_code)]

mod client;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod rpc;
mod server;

use async_trait::async_trait;
use serde_json::Value;

pub use client::{CallEnd, Fault, Pace, RemoteConfig, RemoteServer, ServerObserver};
pub use server::{PATH, Server};

/// A tool, as an agent reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What it does, for the model that decides whether to call it.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Value,
}

/// What a tool returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The text for the model.
    pub text: String,
    /// Whether the host itself is at fault. A refusal is no fault: clients stop calling a server whose calls fail repeatedly.
    pub is_fault: bool,
}

/// The tools of a server.
#[async_trait]
pub trait Tools: Send + Sync + 'static {
    /// The tools that are offered now.
    async fn list(&self) -> Vec<Tool>;

    /// Runs a tool. The arguments are whatever the client sent, or null. `None` if there is no such tool. The call is dropped
    /// when the client disconnects.
    async fn call(&self, name: &str, arguments: Value) -> Option<Output>;
}

// === impl Output ===

impl Output {
    /// An ordinary result.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_fault: false }
    }
}
