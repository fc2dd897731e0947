//! The workspace that a host serves, as turns see it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::toolbox::CallingTurn;

/// The workspace, as a turn is given it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Workspace {
    /// The id.
    pub id: String,
    /// The model that the workspace is configured with.
    pub model: Option<String>,
    /// The system prompt.
    pub system_prompt: Option<String>,
    /// A JSON list of tool definitions, as chat completions take them.
    pub tools: String,
}

/// Provides the current workspace.
#[async_trait]
pub trait Workspaces: Send + Sync + 'static {
    /// Returns the workspace, as this turn is to see it; `None` for a probe. Called when a turn begins. Takes seconds at
    /// most.
    async fn workspace(self: Arc<Self>, turn: Option<CallingTurn>) -> Option<Arc<Workspace>>;
}
