//! `[tools]`: the server that gives the agent of a workspace its tools.
//!
//! It listens on loopback only: the agent is on this machine, and the tools act in the workspace's name.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use talaria_config::ConfigError;
use talaria_workspace::ToolsConfig;

use super::load::Loader;
use super::value::{StoreUrl, ToolsListen};
use super::{Workspace, file};

/// The default port, that of the platform's own server.
const DEFAULT_PORT: u16 = 9100;

/// The extension of the token's file, beside the file of the store.
const TOKEN: &str = "tools-token";

/// The server of the tools.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    /// The address to listen on.
    pub(crate) listen: SocketAddr,
    /// Whether the address was configured.
    pub(crate) chosen: bool,
    /// The file of the token; `None` if the store is in memory.
    pub(crate) token_file: Option<PathBuf>,
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
        store: &StoreUrl,
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
        let token_file = match store {
            StoreUrl::Sqlite(path) => Some(path.with_extension(TOKEN)),
            StoreUrl::Memory => None,
        };
        let files = file.files.iter().map(|folder| self.folder.join(folder)).collect();
        let settings = ToolsConfig { files, broadcast: file.broadcast, deadline: file.deadline.get() };
        Ok(Some(Tools { listen, chosen: file.listen.is_some(), token_file, settings }))
    }
}
