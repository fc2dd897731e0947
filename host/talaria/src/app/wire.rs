//! Phase 4: builds turns, server and everything beside them, and connects them. Nothing runs yet.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use talaria_a2a::{CardConfig, Server, Token};
use talaria_egress::{Egress, Webhooks};
use talaria_executors::Executors;
use talaria_observe::metrics::Metrics;
use talaria_telemetry::Telemetry;
use talaria_turns::{Limits, PushLimits, PushSender, Route, Turns};

use talaria_workspace::{IdleTimeout, ToolActivity};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tracing::info;

use super::banner::Banner;
use super::bind::Bound;
use super::load::Opened;
use super::{App, Tasks};
use crate::admin::Health;
use crate::card::{self, Renewal};
use crate::config::{self, Config, PLATFORM, Push};
use crate::journal::Journal;
use crate::metered::{Metered, RequestMetrics, TurnMetrics, Watched};
use crate::push::Post;
use crate::tokens::Watch;
use crate::tool_servers::ToolServers;
use crate::traced::RequestSpans;
use crate::turn_log::TurnLog;
use crate::workspace::tools::ToolService;

impl App {
    /// Connects what was bound, opened and loaded. `demo_gateway` is the address of the demo gateway.
    pub(super) fn wire(
        bound: Bound,
        opened: Opened,
        (tools, servers): (Option<ToolService>, ToolServers),
        executors: Arc<Executors>,
        demo_gateway: Option<String>,
        tasks: Tasks,
    ) -> anyhow::Result<Self> {
        let Bound { config, listener, grpc_listener, admin, admin_url, metrics, spread, .. } = bound;
        let Opened { store, workspace, callbacks, .. } = opened;
        let address = listener.local_addr()?;
        let limits = Limits {
            turns: usize::try_from(config.limits.turns.get())?,
            // Beyond loopback strangers may call; in a workspace only its platform does.
            trusts_chosen_contexts: address.ip().is_loopback() || config.workspace.is_some(),
            strangers_call: !address.ip().is_loopback(),
            // The platform's calls carry no token, and a workspace without approvals would be stuck.
            anyone_may_approve: address.ip().is_loopback() || config.workspace.is_some(),
            hops: config.limits.hops,
            ..Limits::default()
        };
        let telemetry = tracing_of(&config, &tasks)?;
        let (sender, delivery) = pushing(&config, metrics.clone(), telemetry.clone());
        let mut turns = Turns::builder(Arc::clone(&store), Arc::clone(&executors) as Arc<dyn Route>, limits)
            .budget(config.memory.budget.clone())
            .push_sender(sender, delivery)
            .shares(config.shares())
            .shared_runtime(Handle::current())
            .observer(Arc::new(TurnMetrics(metrics.clone())))
            .observer(Arc::new(TurnLog));
        if let Some(telemetry) = &telemetry {
            turns = turns.traced(Arc::new(telemetry.clone())).observer(Arc::new(telemetry.clone()));
        }
        let journal = Arc::new(Journal::new(config.memory.whole));
        turns = turns.observer(Arc::clone(&journal) as _);
        if let Some(workspace) = &workspace {
            turns = turns.observer(Arc::clone(&workspace.activity) as _);
        }
        if let Some(path) = config.workspace.as_ref().and_then(|workspace| workspace.tool_activity.clone()) {
            turns = turns.observer(Arc::new(ToolActivity::new(path)));
        }
        if let Some(tools) = &tools {
            turns = turns.observer(tools.tools.turn_observer()).hold(tools.tools.hold());
        }
        let turns = turns.build();
        if let (Some(tools), Some(workspace)) = (&tools, &workspace) {
            let idle = idle_timeout(Arc::clone(&executors));
            tools.tools.link(turns.clone(), Arc::clone(&workspace.activity), idle);
        }
        let health = Health::new(Arc::clone(&executors), Arc::clone(&store), tasks.draining.clone());
        let health = Arc::new(health);
        let (first, url) = (config.a2a.card.current(), config.a2a.public_url(address));
        let card = card::with_modes(first.clone(), &executors.table());
        let server = Server::new(server_config(&config, address, card)?, turns.clone());
        let mut server = server.with_workers(spread);
        if let Some(telemetry) = &telemetry {
            server = server
                .traced(Arc::new(telemetry.clone()))
                .with_observer(Arc::new(RequestSpans(telemetry.clone())));
        }
        let grpc = grpc_listener.as_ref().map(TcpListener::local_addr).transpose()?;
        if let Some(listener) = grpc_listener {
            server = server.with_grpc_listener(listener);
        }
        let source = config.a2a.card.clone();
        let card = Renewal::new(source, first, url, Arc::clone(&executors), server.card());
        let tokens = Watch::new(&config.a2a.tokens, server.auth());
        if let Some(workspace) = &workspace {
            let pages = workspace.pages(&executors, server.auth());
            server = server.with_extra_routes(pages);
        }
        let mailbox = callbacks.as_ref().map(|callbacks| callbacks.mailbox.clone());
        let server = server.with_observer(Arc::new(RequestMetrics(metrics.clone())));
        let watched = Watched {
            turns: turns.clone(),
            turns_limit: limits.turns,
            server: server.counts(),
            health: Arc::clone(&health),
            routes: Arc::clone(executors.routes()),
            mailbox: mailbox.clone(),
            store: Arc::clone(&store),
            store_limit: config.max_size.bytes(),
            tool_servers: servers,
        };
        watched.by(&metrics);
        let mut banner = Banner::new(&config, address, &executors.table(), admin_url, demo_gateway);
        banner.callback = callbacks.as_ref().map(|callbacks| callbacks.url.clone());
        banner.grpc = grpc;
        banner.tools = tools.as_ref().map(|tools| tools.server.url.clone());
        Ok(Self {
            config,
            listener,
            server,
            admin,
            store,
            turns,
            executors,
            mailbox,
            callbacks,
            workspace,
            tools,
            health,
            journal,
            card,
            tokens,
            banner,
            tasks,
        })
    }
}

/// Starts the traces, unless they are off. They are sent on the runtime of the start.
fn tracing_of(config: &Config, tasks: &Tasks) -> anyhow::Result<Option<Telemetry>> {
    let Some(traces) = config.telemetry.clone() else { return Ok(None) };
    let endpoint = traces.endpoint().to_owned();
    let egress = Egress::new(config.egress.clone());
    let started = Telemetry::start(traces, &egress, Handle::current(), env!("CARGO_PKG_VERSION"));
    let telemetry = started.with_context(|| format!("cannot send traces to {endpoint}"))?;
    info!(endpoint, "traces are sent");
    Ok(Some(tasks.telemetry.get_or_init(|| telemetry).clone()))
}

/// How long an executor may be silent, as its component says.
fn idle_timeout(executors: Arc<Executors>) -> IdleTimeout {
    Box::new(move |name| {
        let table = executors.table();
        let (_, loaded) = table.loaded().find(|(known, _)| known.as_str() == name)?;
        let seconds =
            loaded.executor.component().description().idle_timeout_seconds.filter(|seconds| *seconds > 0);
        Some(Duration::from_secs(seconds?.into()))
    })
}

/// Sends push notifications, and the limits of its retries.
fn pushing(
    config: &Config,
    metrics: Metrics,
    telemetry: Option<Telemetry>,
) -> (Arc<dyn PushSender>, PushLimits) {
    let Push { allow_private, timeout, tries, pause } = &config.push;
    let webhooks = Webhooks::new(config.egress.clone(), *allow_private);
    let post = Post { webhooks: webhooks.with_timeout(timeout.get()), telemetry };
    let sender = Arc::new(Metered::new(Arc::new(post), metrics));
    (sender, PushLimits { tries: tries.get(), pause: pause.get(), ..PushLimits::default() })
}

fn server_config(
    config: &Config,
    bound: SocketAddr,
    card: CardConfig,
) -> anyhow::Result<talaria_a2a::Config> {
    let tokens = config.a2a.tokens.iter().map(|token| Token::new(token.name.clone(), token.token.clone()));
    let mut server = talaria_a2a::Config::new(config.a2a.public_url(bound));
    server.card = card;
    server.card_signer = config.a2a.card_signer.clone();
    server.tokens = tokens.collect::<Result<_, _>>()?;
    server.awaited = config.a2a.platform_calls.then(|| PLATFORM.to_owned());
    server.grpc = config.a2a.grpc.clone();
    server.anyone_may_list = bound.ip().is_loopback();
    server.reply = config.a2a.reply;
    server.stream = config.a2a.stream;
    let chosen = |token: &config::Token| Some((token.name.clone(), token.stream?));
    server.caller_streams = config.a2a.tokens.iter().filter_map(chosen).collect();
    server.url_follows = config.a2a.url.is_none();
    server.trusted_proxies.clone_from(&config.a2a.trusted_proxies);
    server.cors.clone_from(&config.a2a.cors);
    server.limits.body = usize::try_from(config.a2a.max_body.bytes())?;
    server.limits.connections = server.limits.connections.min(config.memory.connections());
    Ok(server)
}
