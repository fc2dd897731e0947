//! `[tools]`

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use talaria_config::{Period, SecretRef};

use crate::config::value::{EndpointUrl, ToolsListen};

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
    /// MCP servers whose tools executors may be granted, in a workspace or not. Their tools are called `NAME__TOOL`. See
    /// [tools.md](tools.md).
    pub(crate) servers: BTreeMap<String, ToolServer>,
}

/// `[tools.servers.NAME]`. The name is 1 to 24 letters, digits and `-`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
#[schemars(rename = "tools.servers.NAME")]
pub(crate) struct ToolServer {
    /// The address of its endpoint, which speaks MCP over streamable HTTP. Redirects are not followed.
    ///
    /// Example: `url = "https://mcp.example.com/mcp"`
    pub(crate) url: EndpointUrl,
    /// The environment variable or the file that holds the token, which is sent as `Authorization: Bearer TOKEN`.
    ///
    /// Default: none
    ///
    /// Example: `token = { env = "DOCS_TOKEN" }`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<SecretRef>,
    /// Further headers, each with the environment variable or the file that holds its value.
    ///
    /// Example: `headers = { X-Api-Key = { file = "/run/secrets/docs" } }`
    #[serde(default)]
    #[schemars(schema_with = "headers_schema")]
    pub(crate) headers: BTreeMap<String, SecretRef>,
    /// How long a call of a tool may take.
    ///
    /// Example: `timeout = "5min"`
    #[serde(default = "call_timeout")]
    pub(crate) timeout: Period,
    /// The tools that are offered, by their names on the server.
    ///
    /// Default: all, at most 128
    ///
    /// Example: `include = ["search", "read"]`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) include: Option<Vec<String>>,
    /// Lets the name in `url` lead to this machine or into a private network, as the services of a compose file or of
    /// Kubernetes do. An address in `url` needs no such word.
    ///
    /// Example: `private = true`
    #[serde(default)]
    pub(crate) private: bool,
}

/// A table of secrets. It is one key: the headers in it are not known.
fn headers_schema(generator: &mut SchemaGenerator) -> Schema {
    let secret = generator.subschema_for::<SecretRef>();
    json_schema!({ "type": "object", "additionalProperties": { "anyOf": [secret] } })
}

/// As long as the tools of a workspace may take.
fn call_timeout() -> Period {
    Period::secs(60)
}

impl Default for Tools {
    fn default() -> Self {
        let (files, deadline) = (vec!["/workspace".into()], Period::secs(1800));
        Self { listen: None, files, broadcast: false, deadline, servers: BTreeMap::new() }
    }
}
