//! `[tools]`

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use talaria_config::Period;

use crate::config::value::ToolsListen;

/// `[tools]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "tools")]
pub(crate) struct Tools {
    /// The address to listen on, on loopback, for `/mcp`; or `"off"`.
    ///
    /// Default: `127.0.0.1:9100`, if that is free
    ///
    /// Example: `listen = "127.0.0.1:9200"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<ToolsListen>,
    /// The folders whose files the agent may send to people with `send_message_to_user`.
    ///
    /// Example: `files = ["/workspace", "/home/agent/reports"]`
    pub(crate) files: Vec<PathBuf>,
    /// Offers `broadcast_message`. The platform must have enabled broadcasts for the workspace too.
    ///
    /// Example: `broadcast = true`
    pub(crate) broadcast: bool,
    /// How long the answer to a delegation is awaited. The platform itself waits 30 minutes.
    ///
    /// Example: `deadline = "2h"`
    pub(crate) deadline: Period,
}

impl Default for Tools {
    fn default() -> Self {
        let (files, deadline) = (vec!["/workspace".into()], Period::secs(1800));
        Self { listen: None, files, broadcast: false, deadline }
    }
}
