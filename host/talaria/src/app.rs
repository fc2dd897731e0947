//! The running product, from bound ports to a drained stop.
//!
//! Each phase has one job, and nothing is spawned outside of [`Bound::run`]:
//!
//! | | phase | then `run` starts |
//! |---|---|---|
//! | 1 | `bind`: every port, so that a taken one ends the start at once | the admin server, which answers from here on; the demo gateway |
//! | 2 | `load` opens the store, the workspace and the mailbox | the agent's tools; then the supervised gateway, and waits until it is up |
//! | 3 | `load` loads and probes the executors | |
//! | 4 | `wire` builds turns and server, and connects them | interrupted turns, background tasks, contact with the platform |
//! | 5 | | the public server: the first request is read |
//!
//! On the way out no new turn is accepted, running turns get a grace period, and their callers get an answer before the
//! sockets close. A stop that is requested before phase 5 ends the process at once: no turn has been accepted. However it
//! ends, the store's file has everything at the end, and its write-ahead log nothing.

mod banner;
mod bind;
mod load;
mod token;
mod upkeep;
mod wire;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use talaria_a2a::Server;
use talaria_executors::Executors;
use talaria_hermes::demo;
use talaria_hermes::gateway::{CurrentWorkspace, Supervisor, ToolServer};
use talaria_mailbox::Mailbox;
use talaria_mcp::PATH;
use talaria_store::Sqlite;
use talaria_telemetry::Telemetry;
use talaria_turns::{Store, Turns};
use talaria_workspace::{TOOLS_SERVER, TeamTools};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub(crate) use banner::Banner;
pub(crate) use bind::Bound;
pub(crate) use token::random;

use load::{CallbackServer, Opened};

use crate::admin::{self, About, Admin, Health, Host};
use crate::card::Renewal;
use crate::config::Config;
use crate::journal::Journal;
use crate::tokens::Watch;
use crate::tool_servers::ToolServers;
use crate::workspace::late::LateReplies;
use crate::workspace::tools::ToolService;
use crate::{output, toolboxes, workspace};

/// How long the process waits for its own tasks if it is told to stop a second time.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How long before the end of the grace period the mailbox closes, so that turns that wait for callbacks can still answer.
const LAST_CALL: Duration = Duration::from_secs(2);

/// How long the last write of the store may take.
const FLUSH: Duration = Duration::from_secs(5);

/// The tasks of this process, and the tokens that end them.
#[derive(Clone, Default)]
struct Tasks {
    tracker: TaskTracker,
    /// No new turns are accepted.
    draining: CancellationToken,
    shutdown: CancellationToken,
    /// The store's file, once it is open. It is flushed at the end and not dropped: metrics, turns and the admin server
    /// hold each other, and all of them the store.
    sqlite: Arc<OnceLock<Arc<Sqlite>>>,
    /// The traces, if they are on. The last spans are sent at the end.
    telemetry: Arc<OnceLock<Telemetry>>,
}

/// Everything, connected and ready to start.
struct App {
    config: Config,
    listener: TcpListener,
    server: Server,
    admin: Arc<Admin>,
    store: Arc<dyn Store>,
    turns: Turns,
    executors: Arc<Executors>,
    mailbox: Option<Mailbox>,
    callbacks: Option<CallbackServer>,
    workspace: Option<workspace::WorkspaceService>,
    tools: Option<ToolService>,
    health: Arc<Health>,
    journal: Arc<Journal>,
    card: Renewal,
    tokens: Option<Watch>,
    banner: Banner,
    tasks: Tasks,
}

/// Everything runs but the public server.
struct Started {
    listener: TcpListener,
    server: Server,
    banner: Banner,
    running: Running,
}

/// What a stop needs.
struct Running {
    turns: Turns,
    mailbox: Option<Mailbox>,
    workspace: Option<workspace::WorkspaceService>,
    tools: Option<Arc<TeamTools>>,
    tasks: Tasks,
    /// How long turns may take to end.
    grace: Duration,
}

// === impl Bound ===

impl Bound {
    /// Starts everything and serves until `stop` returns, then drains, unless `stop` returns again. `on_up` gets the banner
    /// just before the first request is read. Returns whether every turn could end.
    pub(crate) async fn run(
        self,
        env: fn(&str) -> Option<String>,
        demo: bool,
        stop: impl AsyncFnMut(),
        on_up: impl FnOnce(&Banner) -> std::io::Result<()>,
    ) -> anyhow::Result<bool> {
        let tasks = Tasks::default();
        let ended = Box::pin(self.serve(env, demo, stop, on_up, tasks.clone())).await;
        if let Some(telemetry) = tasks.telemetry.get() {
            telemetry.shutdown().await;
        }
        if let Some(store) = tasks.sqlite.get()
            && tokio::time::timeout(FLUSH, store.flush()).await.is_err()
        {
            warn!("the store's write-ahead log is not merged; the next start does it");
        }
        ended
    }

    async fn serve(
        self,
        env: fn(&str) -> Option<String>,
        demo: bool,
        mut stop: impl AsyncFnMut(),
        on_up: impl FnOnce(&Banner) -> std::io::Result<()>,
        tasks: Tasks,
    ) -> anyhow::Result<bool> {
        let start = Box::pin(async {
            let app = Box::pin(self.build(env, demo, tasks)).await?;
            Box::pin(app.start()).await
        });
        let started = tokio::select! {
            started = start => started?,
            // A gateway may take minutes to come up; a stop does not wait for it.
            () = stop() => return Ok(true),
        };
        let Started { listener, server, banner, running } = started;
        on_up(&banner)?;
        running.tasks.tracker.spawn(server.serve(listener, running.tasks.shutdown.clone()));
        stop().await;
        let tasks = running.tasks.clone();
        tokio::select! {
            () = running.drain() => return Ok(true),
            () = stop() => {}
        }
        warn!("told to stop again; turns under way are interrupted");
        tasks.shutdown.cancel();
        tasks.tracker.close();
        let _ = tokio::time::timeout(AT_ONCE, tasks.tracker.wait()).await;
        Ok(false)
    }

    /// Phases 2 to 4, and what must run between them.
    async fn build(
        mut self,
        env: fn(&str) -> Option<String>,
        demo: bool,
        tasks: Tasks,
    ) -> anyhow::Result<App> {
        let Tasks { tracker, shutdown, .. } = &tasks;
        if let Some(listener) = self.admin_listener.take() {
            tracker.spawn(Arc::clone(&self.admin).serve(listener, shutdown.clone()));
        }
        let mut demo_gateway = None;
        if demo {
            let gateway = demo::start(tracker, shutdown.clone()).await?;
            self.config.use_gateway(&gateway.base_url, gateway.api_key.clone())?;
            demo_gateway = Some(gateway.base_url);
        }
        let address = self.listener.local_addr()?;
        let callbacks = self.callback_listener.take();
        let (spread, metrics) = (&self.spread, &self.metrics);
        let opened = Opened::open(&self.config, address, callbacks, &tasks.sqlite, spread, metrics).await?;
        let tools = self.serve_tools(&opened, &tasks).await?;
        let servers = ToolServers::new(&self.config, &self.metrics)?;
        servers.run(tracker, shutdown);
        start_gateway(&self.config, &tasks).await;
        let offered = toolboxes::serving(tools.as_ref(), &servers);
        let executors = opened.load(&self.config, env, offered, &self.metrics).await?;
        App::wire(self, opened, (tools, servers), executors, demo_gateway, tasks)
    }

    /// Serves the agent's tools, and tells the gateway where. A gateway looks for them when it starts.
    async fn serve_tools(&mut self, opened: &Opened, tasks: &Tasks) -> anyhow::Result<Option<ToolService>> {
        let (Some(listener), Some(config)) = (self.tools_listener.take(), &self.config.tools) else {
            return Ok(None);
        };
        let Some(workspace) = &opened.workspace else { return Ok(None) };
        let token = token::read_or_create(&self.config.store, token::Purpose::Tools)?;
        let server = ToolServer {
            name: TOOLS_SERVER.into(),
            url: format!("http://{}{PATH}", listener.local_addr()?),
            token,
        };
        let stores = (Arc::clone(&opened.delegations), Arc::clone(&opened.store));
        let tools = workspace.tools(config, stores, self.metrics.clone(), server).await?;
        if let Some(gateway) = &mut self.config.gateway {
            gateway.settings.tools = Some(tools.server.clone());
        }
        let server = tools.mcp().with_budget(self.config.memory.budget.clone());
        tasks.tracker.spawn(server.serve(listener, tasks.shutdown.clone()));
        Ok(Some(tools))
    }
}

/// Starts the gateway that this process supervises, if any, and waits until it is up or its time is over.
async fn start_gateway(config: &Config, Tasks { tracker, shutdown, .. }: &Tasks) {
    let Some(gateway) = config.gateway.clone().filter(|_| !config.is_smoke()) else { return };
    let assembly = config.workspace.as_ref().map(|workspace| Arc::clone(&workspace.assembly));
    let workspace = assembly
        .map(|assembly| -> CurrentWorkspace { Arc::new(move || Arc::clone(&assembly.current().workspace)) });
    let mut supervisor = Supervisor::new(gateway, workspace, output::note);
    supervisor.up().await;
    tracker.spawn(supervisor.run(shutdown.clone()));
}

// === impl App ===

impl App {
    /// Resumes interrupted turns, and starts everything but the public server.
    async fn start(self) -> anyhow::Result<Started> {
        let Self { config, turns, executors, mailbox, workspace, store, server, card, tasks, .. } = self;
        let Tasks { tracker, shutdown, .. } = &tasks;
        if let Some(CallbackServer { listener, server, .. }) = self.callbacks {
            tracker.spawn(server.serve(listener, shutdown.clone()));
        }
        let (resumed, failed) = turns.recover().await.context("cannot resume interrupted turns")?;
        if resumed + failed > 0 {
            info!(resumed, failed, "resumed the turns that the last stop interrupted");
        }
        if let Some(mailbox) = &mailbox {
            let late_replies = LateReplies {
                turns: turns.clone(),
                store: Arc::clone(&store),
                self_prompts: workspace.as_ref().and_then(|workspace| workspace.self_prompts.clone()),
                tracker: tracker.clone(),
                shutdown: shutdown.clone(),
            };
            tracker.spawn(mailbox.clone().tend(late_replies, shutdown.clone()));
        }
        tracker.spawn(Arc::clone(&executors).tend(config.executors.probe_every, shutdown.clone()));
        let url = config.a2a.public_url(self.listener.local_addr()?);
        self.admin.show(Host {
            health: self.health,
            turns: turns.clone(),
            store: Arc::clone(&store),
            journal: Arc::clone(&self.journal),
            mailbox: mailbox.clone(),
            executors: Arc::clone(&executors),
            a2a: server.inside(),
            server: server.counts(),
            about: About::new(&config, url),
            tracker: tracker.clone(),
        });
        let budget = turns.budget().clone();
        let of = (Arc::clone(&store), Arc::clone(&executors));
        tracker.spawn(admin::publish(self.journal, of, move || budget.used(), shutdown.clone()));
        let keep = upkeep::Keep {
            keep_for: config.keep_for,
            tasks: usize::try_from(config.limits.tasks.get())?,
            shares: Arc::new(config.shares()),
        };
        tracker.spawn(upkeep::delete_old(store, turns.clone(), keep, shutdown.clone()));
        let stuck_after = config.limits.stuck_after.get();
        tracker.spawn(upkeep::fail_stuck(turns.clone(), stuck_after, shutdown.clone()));
        let (registry, url) = (card.registry(), config.a2a.public_url(self.listener.local_addr()?));
        tracker.spawn(card.run(shutdown.clone()));
        if let Some(tokens) = self.tokens {
            tracker.spawn(tokens.run(shutdown.clone()));
        }
        if let Some(workspace) = &workspace {
            let of = (&executors, server.auth());
            workspace.start(registry, &url, of, (tracker, shutdown)).await?;
        }
        let tools = self.tools.map(|tools| tools.tools);
        if let Some(tools) = &tools {
            tracker.spawn(Arc::clone(tools).run(tracker.clone(), shutdown.clone()));
        }
        let grace = config.limits.grace.get();
        let running = Running { turns, mailbox, workspace, tools, tasks, grace };
        Ok(Started { listener: self.listener, server, banner: self.banner, running })
    }
}

// === impl Running ===

impl Running {
    /// Ends within `limits.grace`, with an answer for every caller.
    async fn drain(self) {
        self.tasks.draining.cancel();
        info!(under_way = self.turns.under_way(), grace = ?self.grace, "shutting down");
        let snapshot = self.workspace.as_ref().map(|workspace| (workspace, workspace.activity.read()));
        // Written twice: now, in case the process is killed during the grace period, and at the end with the last replies.
        if let Some((workspace, reading)) = &snapshot {
            workspace.snapshot(reading).await;
        }
        // Their callers wait for work of others, which does not end with this host.
        if let Some(tools) = &self.tools {
            tools.release_held().await;
        }
        // Closing the mailbox ends the waits for callbacks, so that those turns can still answer.
        let last_call = async {
            tokio::time::sleep(self.grace.saturating_sub(LAST_CALL)).await;
            if let Some(mailbox) = &self.mailbox {
                mailbox.close();
            }
            std::future::pending().await
        };
        let failed = tokio::select! {
            failed = self.turns.drain(self.grace) => failed,
            never = last_call => never,
        };
        if failed > 0 {
            warn!(failed, "turns did not end within the grace period");
        }
        if let Some((workspace, reading)) = &snapshot {
            workspace.snapshot(reading).await;
        }
        self.tasks.shutdown.cancel();
        self.tasks.tracker.close();
        self.tasks.tracker.wait().await;
    }
}
