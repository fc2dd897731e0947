//! The workspace's tools for executors of this host, without a connection of their own.
//!
//! They are the agent's tools, with the same checks, bounds and refusals. Only the caller differs: the turn that calls is
//! known, so no ticket is needed, and what it delegates belongs to its task and holds it.

use async_trait::async_trait;
use serde_json::Value;
use talaria_mcp::{Tool, Tools as _};
use talaria_turns::{CallingTurn, ToolError, ToolSpec, Toolbox};

use super::TeamTools;
use super::catalogue::{self, Offer};

/// The tools of a workspace by name only, for commands that do not serve. None can be called.
#[derive(Debug, Clone, Copy)]
pub struct OfferedTools {
    /// Whether broadcasts are enabled.
    pub broadcast: bool,
}

fn spec(tool: Tool) -> ToolSpec {
    let Tool { name, description, mut input_schema } = tool;
    if let Some(Value::Object(properties)) = input_schema.get_mut("properties") {
        properties.remove("ticket");
    }
    ToolSpec { name: name.to_owned(), description, input_schema }
}

#[async_trait]
impl Toolbox for TeamTools {
    async fn tools(&self) -> Vec<ToolSpec> {
        self.list().await.into_iter().map(spec).collect()
    }

    async fn call(&self, turn: &CallingTurn, name: &str, arguments: Value) -> Result<String, ToolError> {
        let called = self.call_as(Some(turn.clone()), name, arguments).await;
        called.map(|output| output.text).ok_or_else(|| ToolError::Unknown(name.to_owned()))
    }
}

#[async_trait]
impl Toolbox for OfferedTools {
    async fn tools(&self) -> Vec<ToolSpec> {
        let offer = Offer { team: true, broadcast: self.broadcast };
        catalogue::tools(offer).into_iter().map(spec).collect()
    }

    async fn call(&self, _: &CallingTurn, name: &str, _: Value) -> Result<String, ToolError> {
        Err(ToolError::Unavailable(format!("{name} can be called only while the host serves")))
    }
}
