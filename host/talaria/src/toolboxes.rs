//! The tools of this host that executors may be granted: each source is one line here.

use std::sync::Arc;

use talaria_turns::{Toolbox, Toolboxes};
use talaria_workspace::OfferedTools;

use crate::config::Config;
use crate::tool_servers::ToolServers;
use crate::workspace::tools::ToolService;

/// The tools of a host that serves.
pub(crate) fn serving(workspace: Option<&ToolService>, servers: &ToolServers) -> Toolboxes {
    let workspace = workspace.map(|service| Arc::clone(&service.tools) as Arc<dyn Toolbox>);
    Toolboxes::new(workspace.into_iter().chain(servers.sources()).collect())
}

/// The tools that a host would have, for commands that do not serve: only their names count.
pub(crate) fn offered(config: &Config, servers: &ToolServers) -> Toolboxes {
    let workspace = config
        .tools
        .as_ref()
        .map(|tools| Arc::new(OfferedTools { broadcast: tools.settings.broadcast }) as Arc<dyn Toolbox>);
    Toolboxes::new(workspace.into_iter().chain(servers.sources()).collect())
}
