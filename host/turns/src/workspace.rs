//! The workspace that a host serves, seen from a turn.

use std::sync::Arc;

use async_trait::async_trait;

/// What turns are told of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Workspace {
    /// Its id.
    pub id: String,
    /// The model that it is configured with.
    pub model: Option<String>,
    /// The system prompt.
    pub system_prompt: Option<String>,
    /// A JSON list of tool definitions in OpenAI's format.
    pub tools: String,
}

/// Knows the workspace as it is now.
#[async_trait]
pub trait Workspaces: Send + Sync + 'static {
    /// Asked when a turn begins. It takes seconds at most.
    async fn workspace(self: Arc<Self>) -> Option<Arc<Workspace>>;
}
