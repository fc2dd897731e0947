//! The servers of tools that the operator names, started with the host: their lists are kept in the background, their calls
//! are counted.

use std::sync::Arc;

use talaria_egress::Egress;
use talaria_mcp::RemoteServer;
use talaria_observe::metrics::Metrics;
use talaria_turns::Toolbox;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::workspace::tools::tool_end;

/// The servers that are named in `tools.servers`.
pub(crate) struct ToolServers(Vec<Arc<RemoteServer>>);

// === impl ToolServers ===

impl ToolServers {
    /// The servers of a configuration. None is contacted yet.
    pub(crate) fn new(config: &Config, metrics: &Metrics) -> anyhow::Result<Self> {
        let egress = Egress::new(config.egress.clone());
        let server = |remote: &talaria_mcp::RemoteConfig| {
            let metrics = metrics.clone();
            let observer = move |server: &str, end| metrics.tools.server_called(server, tool_end(end));
            Ok(Arc::new(RemoteServer::new(remote.clone(), &egress, Arc::new(observer))?))
        };
        Ok(Self(config.tool_servers.iter().map(server).collect::<anyhow::Result<_>>()?))
    }

    /// Keeps the lists of their tools until `shutdown`.
    pub(crate) fn run(&self, tracker: &TaskTracker, shutdown: &CancellationToken) {
        for server in &self.0 {
            tracker.spawn(Arc::clone(server).run(shutdown.clone()));
        }
    }

    /// Each as a source of tools.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Arc<dyn Toolbox>> {
        self.0.iter().map(|server| Arc::clone(server) as Arc<dyn Toolbox>)
    }

    /// The servers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<RemoteServer>> {
        self.0.iter()
    }
}
