//! The server of the agent's tools.

use std::sync::Arc;

use anyhow::Context as _;
use talaria_hermes::gateway::ToolServer;
use talaria_mcp::{CallEnd, Server};
use talaria_observe::metrics::Metrics;
use talaria_observe::metrics::tools::ToolEnd;
use talaria_turns::{DelegationStore, Store};
use talaria_workspace::{TOOLS_SERVER, TeamTools, ToolsConfig};

use super::WorkspaceService;
use crate::config;

/// The tools, and where the agent finds them.
pub(crate) struct ToolService {
    pub(crate) tools: Arc<TeamTools>,
    pub(crate) server: ToolServer,
}

// === impl ToolService ===

impl ToolService {
    /// The server that speaks MCP.
    pub(crate) fn mcp(&self) -> Server {
        Server::new(TOOLS_SERVER, self.server.token.clone(), Arc::clone(&self.tools) as _)
    }
}

// === impl WorkspaceService ===

impl WorkspaceService {
    /// Opens the tools that `server` names.
    pub(crate) async fn tools(
        &self,
        config: &config::Tools,
        stores: (Arc<dyn DelegationStore>, Arc<dyn Store>),
        metrics: Metrics,
        server: ToolServer,
    ) -> anyhow::Result<ToolService> {
        let observer = move |tool, end| metrics.tools.called(tool, tool_end(end));
        let tools = TeamTools::open(
            self.config.platform_url.as_str(),
            self.config.egress.clone(),
            &self.keys,
            Arc::clone(&self.config.assembly),
            stores,
            ToolsConfig { ticket_key: server.token.clone(), ..config.settings.clone() },
            Arc::new(observer),
        );
        let tools = Arc::new(tools.await.context("cannot read the stored delegations")?);
        Ok(ToolService { tools, server })
    }
}

/// The end of a call as metrics have it.
pub(crate) fn tool_end(end: CallEnd) -> ToolEnd {
    match end {
        CallEnd::Done => ToolEnd::Done,
        CallEnd::Refused => ToolEnd::Refused,
        CallEnd::Failed => ToolEnd::Failed,
        CallEnd::Abandoned => ToolEnd::Abandoned,
    }
}
