//! Checks whether the servers of tools that the operator names can be used.

use std::sync::Arc;
use std::time::Duration;

use talaria_egress::Egress;
use talaria_mcp::{RemoteConfig, RemoteServer};

use super::machine::Examination;

const NAME: &str = "tool server";

/// The longest wait for a list of tools; a server that needs longer is no use to a turn either.
const LIMIT: Duration = Duration::from_secs(10);

impl Examination<'_> {
    /// Asks each server for its tools. A server that does not answer is a warning: the host serves without it.
    pub(super) async fn tool_servers(&mut self) {
        let egress = Egress::new(self.config.egress.clone());
        for remote in &self.config.tool_servers {
            let (name, timeout) = (&remote.name, remote.timeout.min(LIMIT));
            let remote = RemoteConfig { timeout, ..remote.clone() };
            // The configuration was checked when it was loaded.
            let Ok(server) = RemoteServer::new(remote, &egress, Arc::new(|_, _| ())) else { continue };
            match server.check().await {
                Err(fault) => {
                    self.findings.warn(NAME, format!("{name:?} cannot be used: {fault}"), fault.fix.clone());
                }
                Ok((tools, left_out)) if left_out.is_empty() && tools > 0 => {
                    let plural = if tools == 1 { "" } else { "s" };
                    self.findings.ok(NAME, format!("{name:?} offers {tools} tool{plural}"));
                }
                Ok((tools, left_out)) => self.findings.warn(
                    NAME,
                    format!("{name:?} offers {tools} tools; left out: {}", left_out.join("; ")),
                    format!("choose tools with `tools.servers.{name}.include`, or change them on the server"),
                ),
            }
        }
    }
}
