//! Phase 1: binds every port, before anything slow, so that a taken port ends the start at once.

use std::sync::Arc;

use anyhow::Context as _;
use talaria_listen::Spread;
use talaria_observe::metrics::Metrics;
use tokio::net::TcpListener;

use crate::admin::{self, Admin};
use crate::config::Config;

/// The configuration, and the sockets that it asks for.
pub(crate) struct Bound {
    pub(super) config: Config,
    pub(super) listener: TcpListener,
    /// The port for gRPC alone.
    pub(super) grpc_listener: Option<TcpListener>,
    pub(super) admin: Arc<Admin>,
    /// `None` if the default port is taken; a warning says so.
    pub(super) admin_listener: Option<TcpListener>,
    pub(super) admin_url: Option<String>,
    pub(super) callback_listener: Option<TcpListener>,
    /// `None` if there are no tools, or if the default port is taken; a warning says so.
    pub(super) tools_listener: Option<TcpListener>,
    pub(super) metrics: Metrics,
    /// The workers that callers' connections are spread to.
    pub(super) spread: Spread,
}

impl Bound {
    /// Binds the public server, the admin server, the callback listener and the tools.
    pub(crate) async fn bind(mut config: Config, spread: Spread) -> anyhow::Result<Self> {
        config.executors.egress.runtimes = spread.runtimes();
        let listener = TcpListener::bind(config.a2a.listen).await.with_context(|| {
            format!("cannot listen on {}; choose another with --listen", config.a2a.listen)
        })?;
        let grpc_listener = match config.a2a.grpc_listen {
            None => None,
            Some(listen) => {
                let what = || {
                    format!(
                        "cannot listen for gRPC on {listen}; choose another address with `a2a.grpc.listen`"
                    )
                };
                let listener = TcpListener::bind(listen).await.with_context(what)?;
                config.a2a.grpc.port = Some(listener.local_addr()?.port());
                Some(listener)
            }
        };
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
        let admin = Arc::new(Admin::new(&config.admin, metrics.clone())?);
        let admin_listener = match admin::bind(&config.admin).await? {
            Ok(listener) => Some(listener),
            Err(warning) => {
                config.warnings.push(warning);
                None
            }
        };
        let admin_url = match &admin_listener {
            Some(listener) => Some(format!("http://{}", listener.local_addr()?)),
            None => None,
        };
        let callback_listener = match &config.callback {
            Some(callback) => Some(TcpListener::bind(callback.listen).await.with_context(|| {
                format!(
                    "cannot listen for callbacks on {}; choose another address with `callback.listen`",
                    callback.listen
                )
            })?),
            None => None,
        };
        let tools_listener = bind_tools(&mut config).await?;
        Ok(Self {
            config,
            listener,
            grpc_listener,
            admin,
            admin_listener,
            admin_url,
            callback_listener,
            tools_listener,
            metrics,
            spread,
        })
    }
}

/// Binds the server of the tools. If its default port is taken there are no tools, and neither the prompt nor the gateway is
/// told of any: another process listens there.
async fn bind_tools(config: &mut Config) -> anyhow::Result<Option<TcpListener>> {
    let Some(tools) = &config.tools else { return Ok(None) };
    let error = match TcpListener::bind(tools.listen).await {
        Ok(listener) => return Ok(Some(listener)),
        Err(error) => error,
    };
    let what = format!("cannot listen on {}; choose another address with `tools.listen`", tools.listen);
    if tools.chosen {
        return Err(error).context(what);
    }
    config.warnings.push(format!("the agent has no tools: {what} ({error})"));
    config.tools = None;
    if let Some(workspace) = &config.workspace {
        workspace.assembly.set_tools(false);
    }
    Ok(None)
}
