//! `[tools]`: the server that gives the agent of a workspace its tools.
//!
//! It listens on loopback only: the agent is on this machine, and the tools act in the workspace's name.

use std::net::{Ipv4Addr, SocketAddr};

use secrecy::SecretString;
use talaria_config::ConfigError;
use talaria_workspace::ToolsConfig;

use super::load::Loader;
use super::value::ToolsListen;
use super::{Workspace, file};

/// The default port, that of the platform's own server.
const DEFAULT_PORT: u16 = 9100;

/// The server of the tools.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    /// The address to listen on.
    pub(crate) listen: SocketAddr,
    /// Whether the address was configured.
    pub(crate) chosen: bool,
    /// What the operator decides about the tools.
    pub(crate) settings: ToolsConfig,
}

// === impl Loader ===

impl Loader<'_> {
    /// The tools, if this is a workspace and they are not off.
    pub(super) fn tools(
        &mut self,
        file: Option<file::Tools>,
        workspace: Option<&Workspace>,
    ) -> Result<Option<Tools>, ConfigError> {
        let Some(workspace) = workspace else {
            if file.is_some_and(|file| file.listen != Some(ToolsListen::Off)) {
                self.warnings.push("`[tools]` has no effect: WORKSPACE_ID is not set".into());
            }
            return Ok(None);
        };
        let file = file.unwrap_or_default();
        let listen = match file.listen {
            Some(ToolsListen::Off) => return Ok(None),
            Some(ToolsListen::At(listen)) => listen,
            None => (Ipv4Addr::LOCALHOST, DEFAULT_PORT).into(),
        };
        if workspace.smoke {
            return Ok(None);
        }
        if !listen.ip().is_loopback() {
            let what = format!(
                "{listen} is beyond loopback, and the tools act in the workspace's name; use 127.0.0.1"
            );
            return Err(self.at("tools.listen", what));
        }
        let files = file.files.iter().map(|folder| self.folder.join(folder)).collect();
        // The key is that of the server, which is read once the store's folder is known to be ours.
        let ticket_key = SecretString::default();
        let settings =
            ToolsConfig { files, broadcast: file.broadcast, deadline: file.deadline.get(), ticket_key };
        Ok(Some(Tools { listen, chosen: file.listen.is_some(), settings }))
    }
}
