//! The running product: bound, loaded, served, drained.
//!
//! The order is the promise: the ports are bound before anything slow, so that a taken one fails at once, and the
//! operator's server answers from then on; executors are loaded and probed before the first request is read; on the way
//! out no new turn is taken, those under way get a grace, and their callers get an answer before the sockets close.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use talaria_a2a::{CardConfig, Counts, ReplyAs, Server, Token};
use talaria_egress::Webhooks;
use talaria_hermes::demo;
use talaria_hermes::gateway::{CurrentWorkspace, Supervisor};
use talaria_mailbox::{Listener, Mailbox};
use talaria_observe::Redactor;
use talaria_observe::metrics::{Mail, Metrics, Readings, Refusal};
use talaria_store::{Memory, Sqlite, SqliteConfig};
use talaria_turns::{
    CallbackStore, Callbacks, Courier, HookLimits, Limits, Route, Store, StreamAs, Timestamp, Turns,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::admin::{self, Admin, Health};
use crate::card::{self, Renewal};
use crate::config::{self, Callback, Config, PLATFORM, Push, Reply, StoreUrl, Stream};
use crate::metered::{Metered, TurnMetrics};
use crate::output;
use crate::push::Post;
use crate::tokens::Watch;
use crate::workspace::{self, late::LateReplies};
use talaria_executors::route::Routes;
use talaria_executors::{Executors, Readiness, Services, Table};

/// How long turns under way may go on after a signal. Below the 30 s that container platforms wait before they kill.
const GRACE: Duration = Duration::from_secs(20);

/// How long before the end of the grace those are told that wait for replies: time for them to say so.
const LAST_CALL: Duration = Duration::from_secs(2);

/// How often old tasks are looked for.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// Everything, ready to run.
pub(crate) struct App {
    listener: TcpListener,
    server: Server,
    turns: Turns,
    mailbox: Option<Mailbox>,
    workspace: Option<workspace::WorkspaceService>,
    tracker: TaskTracker,
    /// No more turns are taken.
    draining: CancellationToken,
    shutdown: CancellationToken,
    banner: Banner,
}

/// What is where, for whoever started it.
#[derive(Debug, Serialize)]
pub(crate) struct Banner {
    url: String,
    card: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    admin: Option<String>,
    executors: Vec<Line>,
    refused: Vec<Refused>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    demo_gateway: Option<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    default: bool,
    readiness: Readiness,
    /// Who takes its turns while it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    stand_in: Option<String>,
}

#[derive(Debug, Serialize)]
struct Refused {
    name: String,
    reason: String,
}

// === impl App ===

impl App {
    /// Binds, loads and probes.
    pub(crate) async fn build(
        mut config: Config,
        env: fn(&str) -> Option<String>,
        demo: bool,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(config.a2a.listen).await.with_context(|| {
            format!("cannot listen on {}; choose another with --listen", config.a2a.listen)
        })?;
        let bound = listener.local_addr()?;
        let (tracker, shutdown, draining) =
            (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
        let admin = Arc::new(Admin::new(&config.admin, metrics.clone())?);
        let admin_url = match admin::bind(&config.admin).await? {
            Ok(listener) => {
                let url = format!("http://{}", listener.local_addr()?);
                tracker.spawn(Arc::clone(&admin).serve(listener, shutdown.clone()));
                Some(url)
            }
            Err(warning) => {
                config.warnings.push(warning);
                None
            }
        };
        let gateway = if demo {
            let gateway = demo::start(&tracker, shutdown.clone()).await?;
            config.use_gateway(&gateway.base_url, gateway.api_key.clone())?;
            Some(gateway.base_url)
        } else {
            None
        };
        let callback = match &config.callback {
            Some(callback) => Some(TcpListener::bind(callback.listen).await.with_context(|| {
                format!(
                    "cannot listen for callbacks on {}; choose another address with `callback.listen`",
                    callback.listen
                )
            })?),
            None => None,
        };
        let keep = usize::try_from(config.limits.tasks.get())?;
        let (store, letters): (Arc<dyn Store>, Arc<dyn CallbackStore>) = match &config.store {
            StoreUrl::Memory => both(Arc::new(Memory::new(keep))),
            StoreUrl::Sqlite(path) => both(Arc::new(
                Sqlite::open(path, &SqliteConfig::default())
                    .with_context(|| format!("cannot open the store {}", path.display()))?,
            )),
        };
        let forgets = matches!(config.store, StoreUrl::Memory);
        let open = |workspace| workspace::WorkspaceService::open(workspace, Arc::clone(&store), forgets);
        let workspace = config.workspace.as_ref().map(open).transpose()?;
        let (mailbox, listener_of_callbacks) = match (&config.callback, callback) {
            (Some(callback), Some(listener)) => {
                let (mailbox, serving) = open_mailbox(callback, listener, letters, &shutdown).await?;
                (Some(mailbox), Some(serving))
            }
            _ => (None, None),
        };
        if let Some(gateway) = config.gateway.clone().filter(|_| !config.is_smoke()) {
            let assembly = config.workspace.as_ref().map(|workspace| Arc::clone(&workspace.assembly));
            let workspace = assembly.map(|assembly| -> CurrentWorkspace {
                Arc::new(move || Arc::clone(&assembly.current().workspace))
            });
            let mut supervisor = Supervisor::new(gateway, workspace, output::note);
            // Before the executors are probed, so that they find it.
            supervisor.up().await;
            tracker.spawn(supervisor.run(shutdown.clone()));
        }
        let callbacks = mailbox.clone().map(|mailbox| Arc::new(mailbox) as Arc<dyn Callbacks>);
        let services =
            Services { variables: config.variables(env), callbacks, workspaces: config.workspaces() };
        let executors = Executors::load(&config.executors, services, &output::note).await?.with_default()?;
        let executors = Arc::new(executors);
        let mut banner = Banner::new(&config, bound, &executors.table(), admin_url, gateway);
        let limits = Limits {
            turns: usize::try_from(config.limits.turns.get())?,
            // Beyond loopback strangers may call; in a workspace only its platform does.
            trusts_chosen_contexts: bound.ip().is_loopback() || config.workspace.is_some(),
            ..Limits::default()
        };
        if let Some((url, serving)) = listener_of_callbacks {
            banner.callback = Some(url);
            tracker.spawn(serving);
        }
        let (courier, delivery) = pushing(&config, metrics.clone());
        let route = Arc::clone(&executors) as Arc<dyn Route>;
        let mut turns = Turns::builder(Arc::clone(&store), route, limits)
            .courier(courier, delivery)
            .observer(Arc::new(TurnMetrics(metrics.clone())));
        if let Some(workspace) = &workspace {
            turns = turns.observer(Arc::clone(&workspace.pulse) as _);
        }
        let turns = turns.build();
        let (resumed, failed) = turns.recover().await.context("cannot take up the turns of before")?;
        if resumed + failed > 0 {
            info!(resumed, failed, "took up the turns that the last stop interrupted");
        }
        let routes = Arc::clone(executors.routes());
        if let Some(mailbox) = &mailbox {
            let heirs = LateReplies {
                turns: turns.clone(),
                store: Arc::clone(&store),
                initiative: workspace.as_ref().and_then(|workspace| workspace.initiative.clone()),
                tracker: tracker.clone(),
                shutdown: shutdown.clone(),
            };
            tracker.spawn(mailbox.clone().tend(heirs, shutdown.clone()));
        }
        tracker.spawn(Arc::clone(&executors).tend(config.executors.probe_every, shutdown.clone()));
        let health = Arc::new(Health::new(Arc::clone(&executors), Arc::clone(&store), draining.clone()));
        admin.show(Arc::clone(&health), turns.clone(), Arc::clone(&executors), mailbox.clone());
        tracker.spawn(forget(store, config.keep_for, keep, shutdown.clone()));
        tracker.spawn(fail_stuck(turns.clone(), config.limits.stuck_after.get(), shutdown.clone()));
        let (first, url) = (config.a2a.card.current(), config.a2a.public_url(bound));
        let card = card::with_modes(first.clone(), &executors.table());
        let mut server = Server::new(server_config(&config, bound, card)?, turns.clone());
        let source = config.a2a.card.clone();
        let card = Renewal::new(source, first, url.clone(), Arc::clone(&executors), server.card());
        let registry = card.registry();
        tracker.spawn(card.run(shutdown.clone()));
        if let Some(watch) = Watch::new(&config.a2a.tokens, server.auth()) {
            tracker.spawn(watch.run(shutdown.clone()));
        }
        if let Some(workspace) = &workspace {
            let pages = workspace.pages(&executors, server.auth());
            server = server.with_extra_routes(pages);
            let of = (&executors, server.auth());
            workspace.start(registry, &url, of, (&tracker, &shutdown)).await?;
        }
        let (counts, counted, letters) = (server.counts(), turns.clone(), mailbox.clone());
        metrics.watch(move || readings(&counted, &counts, &health, &routes, letters.as_ref()));
        Ok(Self { listener, server, turns, mailbox, workspace, tracker, draining, shutdown, banner })
    }

    /// What is where.
    pub(crate) fn banner(&self) -> &Banner {
        &self.banner
    }

    /// Serves until `stop`, then drains.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) {
        self.tracker.spawn(self.server.serve(self.listener, self.shutdown.clone()));
        stop.await;
        self.draining.cancel();
        info!(under_way = self.turns.under_way(), grace = ?GRACE, "shutting down");
        let snapshot = self.workspace.as_ref().map(|workspace| (workspace, workspace.pulse.read()));
        // Now, in case the grace is not granted, and with everything that was said at the end.
        if let Some((workspace, reading)) = &snapshot {
            workspace.snapshot(reading).await;
        }
        // Whoever waits for a reply hears in time that none will come, and says so in its own words.
        let last_call = async {
            tokio::time::sleep(GRACE.saturating_sub(LAST_CALL)).await;
            if let Some(mailbox) = &self.mailbox {
                mailbox.close();
            }
            std::future::pending().await
        };
        let failed = tokio::select! {
            failed = self.turns.drain(GRACE) => failed,
            never = last_call => never,
        };
        if failed > 0 {
            warn!(failed, "turns did not end within the grace");
        }
        if let Some((workspace, reading)) = &snapshot {
            workspace.snapshot(reading).await;
        }
        self.shutdown.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// A store is two things.
fn both<S: Store + CallbackStore>(store: Arc<S>) -> (Arc<dyn Store>, Arc<dyn CallbackStore>) {
    (Arc::clone(&store) as _, store)
}

/// The mailbox, where it is to be posted to, and what serves it.
async fn open_mailbox(
    config: &Callback,
    listener: TcpListener,
    letters: Arc<dyn CallbackStore>,
    shutdown: &CancellationToken,
) -> anyhow::Result<(Mailbox, (String, impl Future<Output = ()> + use<>))> {
    let limits = talaria_mailbox::Limits::default();
    let reply_url = config.reply_url(listener.local_addr()?);
    let secrets = config.secret.iter().map(|secret| secret.expose_secret());
    let redactor = Redactor::new(secrets);
    let setup =
        talaria_mailbox::Config { reply_url: reply_url.clone(), wire: config.wire(), limits, redactor };
    let mailbox = Mailbox::open(letters, setup).await.context("cannot read the replies of before")?;
    let serving = Listener::new(mailbox.clone());
    Ok((mailbox, (reply_url, serving.serve(listener, shutdown.clone()))))
}

/// What the parts have counted by themselves.
fn readings(
    turns: &Turns,
    server: &Counts,
    health: &Health,
    routes: &Routes,
    mailbox: Option<&Mailbox>,
) -> Readings {
    let refused = turns.refused();
    let mail = mailbox.map(Mailbox::counts).unwrap_or_default();
    Readings {
        turns_under_way: turns.under_way(),
        streams_open: server.streams_open(),
        refused: vec![
            (Refusal::Connections, server.connections_rejected()),
            (Refusal::Turns, refused.busy),
            (Refusal::Conversation, refused.lane_full),
            (Refusal::Draining, refused.draining),
        ],
        executors: health.executors(),
        routed: routes.counted(),
        mailbox: vec![
            (Mail::Waiting, mail.waiting),
            (Mail::InLine, mail.in_line),
            (Mail::Unanswered, mail.unanswered),
            (Mail::Late, mail.late),
        ],
        mailbox_bytes: mail.bytes,
    }
}

/// Forgets old tasks, now and then, until `shutdown`.
async fn forget(store: Arc<dyn Store>, keep_for: Duration, keep: usize, shutdown: CancellationToken) {
    let mut now_and_then = tokio::time::interval(FORGET_EVERY);
    while shutdown.run_until_cancelled(now_and_then.tick()).await.is_some() {
        let before = Timestamp::now().before(keep_for);
        match store.forget(before, keep).await {
            Ok(0) => {}
            Ok(tasks) => info!(tasks, "old tasks were forgotten"),
            Err(error) => warn!(%error, "old tasks were not forgotten"),
        }
    }
}

/// Fails tasks that nothing happens to any more, now and then, until `shutdown`.
async fn fail_stuck(turns: Turns, after: Duration, shutdown: CancellationToken) {
    let mut now_and_then = tokio::time::interval(FORGET_EVERY.min(after));
    while shutdown.run_until_cancelled(now_and_then.tick()).await.is_some() {
        match turns.fail_stuck(after).await {
            Ok(0) => {}
            Ok(tasks) => warn!(tasks, ?after, "tasks that nothing happened to ended as failed"),
            Err(error) => warn!(%error, "tasks that hang were not looked for"),
        }
    }
}

/// Who takes pushes to their webhooks, and how hard it tries.
fn pushing(config: &Config, metrics: Metrics) -> (Arc<dyn Courier>, HookLimits) {
    let Push { allow_private, timeout, tries, pause } = &config.push;
    let webhooks = Webhooks::new(talaria_egress::Config::default(), *allow_private);
    let courier = Arc::new(Metered::new(Arc::new(Post(webhooks.with_timeout(timeout.get()))), metrics));
    (courier, HookLimits { tries: tries.get(), pause: pause.get(), ..HookLimits::default() })
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
    server.reply = match config.a2a.reply {
        Reply::Auto => ReplyAs::Auto,
        Reply::Message => ReplyAs::Message,
        Reply::Task => ReplyAs::Task,
    };
    let stream_as = |stream| match stream {
        Stream::Status => StreamAs::Status,
        Stream::Artifact => StreamAs::Artifact,
        Stream::Whole => StreamAs::Whole,
    };
    server.stream = stream_as(config.a2a.stream);
    let chosen = |token: &config::Token| Some((token.name.clone(), stream_as(token.stream?)));
    server.caller_streams = config.a2a.tokens.iter().filter_map(chosen).collect();
    server.url_follows = config.a2a.url.is_none();
    server.trusted_proxies.clone_from(&config.a2a.trusted_proxies);
    server.cors.clone_from(&config.a2a.cors);
    server.limits.body = usize::try_from(config.a2a.max_body.bytes())?;
    Ok(server)
}

// === impl Banner ===

impl Banner {
    fn new(
        config: &Config,
        bound: SocketAddr,
        executors: &Table,
        admin: Option<String>,
        demo_gateway: Option<String>,
    ) -> Self {
        let url = config.a2a.public_url(bound);
        Self {
            card: format!("{}/.well-known/agent-card.json", url.trim_end_matches('/')),
            url,
            admin,
            executors: executors
                .loaded()
                .map(|(name, loaded)| Line {
                    name: name.as_str().to_owned(),
                    default: name == executors.default_name(),
                    readiness: loaded.readiness(),
                    stand_in: executors
                        .stand_in(name)
                        .filter(|(other, _)| *other != name)
                        .map(|(other, _)| other.as_str().to_owned()),
                })
                .collect(),
            refused: executors
                .refused()
                .map(|(name, reason)| Refused { name: name.as_str().to_owned(), reason: reason.to_owned() })
                .collect(),
            callback: None,
            demo_gateway,
            warnings: config.warnings.clone(),
        }
    }
}

impl fmt::Display for Banner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, card, admin, executors, refused, callback, demo_gateway, warnings } = self;
        writeln!(f, "Talaria {} serves A2A at {url}", env!("CARGO_PKG_VERSION"))?;
        writeln!(f, "  card      {card}")?;
        if let Some(admin) = admin {
            writeln!(f, "  admin     {admin} (/healthz, /readyz, /metrics)")?;
        }
        for Line { name, default, readiness, stand_in } in executors {
            let default = if *default { " (default)" } else { "" };
            let stand_in = stand_in.as_ref().map(|other| format!("; {other} takes its turns"));
            writeln!(f, "  executor  {name}{default}: {readiness}{}", stand_in.unwrap_or_default())?;
        }
        for Refused { name, reason } in refused {
            writeln!(f, "  refused   {name}: {reason}")?;
        }
        if let Some(url) = callback {
            writeln!(f, "  callbacks {url}")?;
        }
        if let Some(gateway) = demo_gateway {
            writeln!(f, "  gateway   {gateway} (built in, for the demo)")?;
        }
        for warning in warnings {
            writeln!(f, "  warning   {warning}")?;
        }
        let url = url.trim_end_matches('/');
        let program = std::env::args().next().unwrap_or_else(|| "talaria".into());
        write!(
            f,
            r#"
Try it in another terminal:
  {program} send {url} "hello"
or
  curl -s {url}/ -H 'content-type: application/json' -H 'a2a-version: 1.0' -d '{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{{"messageId":"m1","role":"ROLE_USER","parts":[{{"text":"hello"}}]}}}}}}'
"#
        )
    }
}
