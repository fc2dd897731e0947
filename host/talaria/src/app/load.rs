//! Phases 2 and 3: opens the store and what reads it, then loads and probes the executors.
//!
//! They are two phases because a gateway that this process starts must be up between them: the store is opened first, so
//! that a store that does not open ends the start before a process is started, and executors are probed last, so that they
//! find their gateway.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use secrecy::{ExposeSecret as _, SecretString};
use talaria_executors::{Executors, Services};
use talaria_listen::Spread;
use talaria_mailbox::{Listener, Mailbox};
use talaria_observe::metrics::Metrics;
use talaria_redact::{Redactor, ReplyRedactor};
use talaria_store::{Memory, Sqlite, SqliteConfig};
use talaria_turns::{CallbackStore, Callbacks, DelegationStore, Store, Toolboxes};
use tokio::net::TcpListener;

use super::token;
use crate::config::{Callback, Config, StoreUrl};
use crate::metered::{ExecutorMetrics, StoreMetrics};
use crate::{output, workspace};

/// The store, and what reads it.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    pub(super) delegations: Arc<dyn DelegationStore>,
    pub(super) workspace: Option<workspace::WorkspaceService>,
    pub(super) callbacks: Option<CallbackServer>,
}

/// The mailbox, and the listener that fills it.
pub(super) struct CallbackServer {
    pub(super) mailbox: Mailbox,
    /// Where upstreams are told to post, without the token.
    pub(super) url: String,
    pub(super) listener: TcpListener,
    pub(super) server: Listener,
}

impl Opened {
    /// Opens the store, the workspace and the mailbox. A store in a file is put into `sqlite` too.
    pub(super) async fn open(
        config: &Config,
        address: SocketAddr,
        callbacks: Option<TcpListener>,
        sqlite: &OnceLock<Arc<Sqlite>>,
        spread: &Spread,
        metrics: &Metrics,
    ) -> anyhow::Result<Self> {
        let Stores { store, callbacks: stored, delegations } = match &config.store {
            StoreUrl::Memory => {
                let store = Memory::new(usize::try_from(config.limits.tasks.get())?);
                // Beside the budget of callers, an eighth of the process's memory is left for it.
                let most = config.max_size.bytes().min(config.memory.whole / 8);
                Stores::of(Arc::new(store.with_max_bytes(most)))
            }
            StoreUrl::Sqlite(path) => {
                let chosen = SqliteConfig { address: Some(address.to_string()), ..config.sqlite() };
                let store = Sqlite::open(path, &chosen)
                    .with_context(|| format!("cannot open the store {}", path.display()))?
                    .with_observer(Arc::new(StoreMetrics(metrics.clone())));
                Stores::of(Arc::clone(sqlite.get_or_init(|| Arc::new(store))))
            }
        };
        let is_volatile = matches!(config.store, StoreUrl::Memory);
        let open = |workspace| workspace::WorkspaceService::open(workspace, Arc::clone(&store), is_volatile);
        let workspace = config.workspace.as_ref().map(open).transpose()?;
        let callbacks = match (&config.callback, callbacks) {
            (Some(callback), Some(listener)) => {
                let replies = ReplyRedactor::new(Redactor::process().clone(), config.executors.replies);
                let token = match &callback.secret {
                    Some(_) => None,
                    None => Some(token::read_or_create(&config.store, token::Purpose::Callbacks)?),
                };
                let mut server = CallbackServer::open(callback, token, listener, stored, replies).await?;
                server.server =
                    server.server.with_budget(config.memory.budget.clone()).with_workers(spread.clone());
                if config.telemetry.is_some() {
                    server.server = server.server.traced();
                }
                Some(server)
            }
            _ => None,
        };
        Ok(Self { store, delegations, workspace, callbacks })
    }

    /// Loads and probes the executors; an error if the default executor cannot take turns.
    pub(super) async fn load(
        &self,
        config: &Config,
        env: fn(&str) -> Option<String>,
        tools: Toolboxes,
        metrics: &Metrics,
    ) -> anyhow::Result<Arc<Executors>> {
        let mailbox = self.callbacks.as_ref().map(|callbacks| callbacks.mailbox.clone());
        let services = Services {
            variables: config.variables(env),
            callbacks: mailbox.map(|mailbox| Arc::new(mailbox) as Arc<dyn Callbacks>),
            workspaces: config.workspaces(),
            tools,
            observer: Arc::new(ExecutorMetrics(metrics.clone())),
        };
        let executors = Executors::load(&config.executors, services, &output::note).await?;
        Ok(Arc::new(executors.with_default()?))
    }
}

impl CallbackServer {
    async fn open(
        config: &Callback,
        path_token: Option<SecretString>,
        listener: TcpListener,
        stored: Arc<dyn CallbackStore>,
        replies: ReplyRedactor,
    ) -> anyhow::Result<Self> {
        let limits = talaria_mailbox::Limits::default();
        let url = config.reply_url(listener.local_addr()?);
        let reply_url = match &path_token {
            Some(token) => format!("{}/{}", url.trim_end_matches('/'), token.expose_secret()),
            None => url.clone(),
        };
        let setup = talaria_mailbox::Config { reply_url, path_token, wire: config.wire(), limits, replies };
        let mailbox = Mailbox::open(stored, setup).await.context("cannot read the stored callbacks")?;
        let server = Listener::new(mailbox.clone());
        Ok(Self { mailbox, url, listener, server })
    }
}

/// One store, as the traits that it implements.
struct Stores {
    store: Arc<dyn Store>,
    callbacks: Arc<dyn CallbackStore>,
    delegations: Arc<dyn DelegationStore>,
}

impl Stores {
    fn of<S: Store + CallbackStore + DelegationStore>(store: Arc<S>) -> Self {
        Self { store: Arc::clone(&store) as _, callbacks: Arc::clone(&store) as _, delegations: store }
    }
}
