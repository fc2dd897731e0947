//! `[tools]`: the server that gives the agent of a workspace its tools.
//!
//! It listens on loopback only: the agent is on this machine, and the tools act in the workspace's name.
//!
//! `[tools.servers]`, the servers whose tools executors may be granted, needs no workspace.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use secrecy::SecretString;
use talaria_config::{ConfigError, SecretRef};
use talaria_egress::Egress;
use talaria_mcp::{RemoteConfig, RemoteServer};
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
            if file.is_some_and(|file| file.listen != Some(ToolsListen::Off) && file.servers.is_empty()) {
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
    /// The servers whose tools executors may be granted, each checked as far as that goes without contacting it.
    pub(super) fn tool_servers(
        &self,
        servers: &BTreeMap<String, file::ToolServer>,
    ) -> Result<Vec<RemoteConfig>, ConfigError> {
        // Nothing is sent, so its settings do not matter.
        let egress = Egress::new(talaria_egress::Config::default());
        let read = |(name, server): (&String, &file::ToolServer)| {
            let at = |leaf: &str, what: String| self.at(format!("tools.servers.{name}{leaf}"), what);
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            if !(1..=24).contains(&name.len()) || !name.bytes().all(is_plain) {
                let what = "tools are called by this name and their own; use 1 to 24 letters, digits and `-`";
                return Err(at("", what.into()));
            }
            let secret = |leaf: &str, secret: &SecretRef| {
                secret.resolve(&self.folder, &self.env).map_err(|what| at(leaf, what))
            };
            let is_authorization = |header: &String| header.eq_ignore_ascii_case("authorization");
            if server.token.is_some() && server.headers.keys().any(is_authorization) {
                return Err(at(".headers", "`token` is sent as `Authorization`; keep one of them".into()));
            }
            let headers = server.headers.iter().map(|(header, value)| {
                secret(&format!(".headers.{header}"), value).map(|value| (header.clone(), value))
            });
            let config = RemoteConfig {
                name: name.clone(),
                url: server.url.0.clone(),
                token: server.token.as_ref().map(|token| secret(".token", token)).transpose()?,
                headers: headers.collect::<Result<_, _>>()?,
                timeout: server.timeout.get(),
                include: server.include.clone(),
                private: server.private,
            };
            let made = RemoteServer::new(config.clone(), &egress, Arc::new(|_, _| ()));
            made.map(|_| config).map_err(|error| at("", error.to_string()))
        };
        servers.iter().map(read).collect()
    }
}
