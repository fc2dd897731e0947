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
use serde::Serialize;
use talaria_a2a::{CardConfig, Counts, Extension, ReplyAs, Server, Skill, Token};
use talaria_egress::Webhooks;
use talaria_observe::metrics::{Metrics, Readings, Refusal};
use talaria_store::{Memory, Sqlite, SqliteConfig};
use talaria_turns::{Courier, Delivery, Limits, Store, Timestamp, Turns};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::admin::{self, Admin, Health};
use crate::config::{Config, Push, Reply, StoreUrl};
use crate::demo;
use crate::executors::{Executors, Readiness};
use crate::metered::Metered;
use crate::output;
use crate::push::Post;
use crate::tokens::Watch;

/// How long turns under way may go on after a signal. Below the 30 s that container platforms wait before they kill.
const GRACE: Duration = Duration::from_secs(20);

/// How often old tasks are looked for.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// Everything, ready to run.
pub(crate) struct App {
    listener: TcpListener,
    server: Server,
    turns: Turns,
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
    demo_gateway: Option<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    default: bool,
    readiness: Readiness,
}

#[derive(Debug, Serialize)]
struct Refused {
    name: String,
    reason: String,
}

// === impl App ===

impl App {
    /// Binds, loads and probes.
    pub(crate) async fn build(mut config: Config, demo: bool) -> anyhow::Result<Self> {
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
        let executors = Arc::new(Executors::load(&config, &output::note).await?.with_default()?);
        let banner = Banner::new(&config, bound, &executors, admin_url, gateway);
        let keep = usize::try_from(config.limits.tasks.get())?;
        let store: Arc<dyn Store> = match &config.store {
            StoreUrl::Memory => Arc::new(Memory::new(keep)),
            StoreUrl::Sqlite(path) => Arc::new(
                Sqlite::open(path, &SqliteConfig::default())
                    .with_context(|| format!("cannot open the store {}", path.display()))?,
            ),
        };
        let limits = Limits { turns: usize::try_from(config.limits.turns.get())?, ..Limits::default() };
        let route = Arc::new(Metered::new(Arc::clone(&executors), metrics.clone()));
        let (courier, delivery) = pushing(&config, metrics.clone());
        let turns = Turns::with_courier(Arc::clone(&store), route, limits, courier, delivery);
        let (resumed, failed) = turns.recover().await.context("cannot take up the turns of before")?;
        if resumed + failed > 0 {
            info!(resumed, failed, "took up the turns that the last stop interrupted");
        }
        let health = Arc::new(Health::new(executors, Arc::clone(&store), draining.clone()));
        tracker.spawn(Arc::clone(&health).watch(config.probe_every, shutdown.clone()));
        admin.show(Arc::clone(&health), turns.clone());
        tracker.spawn(forget(store, config.keep_for, keep, shutdown.clone()));
        tracker.spawn(fail_stuck(turns.clone(), config.limits.stuck_after.get(), shutdown.clone()));
        let server = Server::new(server_config(&config, bound)?, turns.clone());
        if let Some(watch) = Watch::new(&config.a2a.tokens, server.auth()) {
            tracker.spawn(watch.run(shutdown.clone()));
        }
        let (counts, counted) = (server.counts(), turns.clone());
        metrics.watch(move || readings(&counted, &counts, &health));
        Ok(Self { listener, server, turns, tracker, draining, shutdown, banner })
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
        let failed = self.turns.drain(GRACE).await;
        if failed > 0 {
            warn!(failed, "turns did not end within the grace");
        }
        self.shutdown.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// What the parts have counted by themselves.
fn readings(turns: &Turns, server: &Counts, health: &Health) -> Readings {
    let refused = turns.refused();
    Readings {
        turns_under_way: turns.under_way(),
        streams_open: server.streams_open(),
        refused: vec![
            (Refusal::Connections, server.connections_refused()),
            (Refusal::Turns, refused.busy),
            (Refusal::Conversation, refused.lane_full),
            (Refusal::Draining, refused.draining),
        ],
        executors: health.executors(),
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
fn pushing(config: &Config, metrics: Metrics) -> (Arc<dyn Courier>, Delivery) {
    let Push { allow_private, timeout, tries, pause } = &config.push;
    let webhooks = Webhooks::new(talaria_egress::Config::default(), *allow_private);
    let courier = Arc::new(Metered::new(Arc::new(Post(webhooks.with_timeout(timeout.get()))), metrics));
    (courier, Delivery { tries: tries.get(), pause: pause.get(), ..Delivery::default() })
}

fn server_config(config: &Config, bound: SocketAddr) -> anyhow::Result<talaria_a2a::Config> {
    let card = &config.a2a.card;
    let tokens = config.a2a.tokens.iter().map(|token| Token::new(token.name.clone(), token.token.clone()));
    let mut server = talaria_a2a::Config::new(config.a2a.public_url(bound));
    server.card = CardConfig {
        name: card.name.clone(),
        description: card.description.clone(),
        version: card.version.clone(),
        skills: card
            .skills
            .iter()
            .map(|skill| Skill {
                id: skill.id.clone(),
                name: skill.name.clone(),
                description: skill.description.clone(),
                tags: skill.tags.clone(),
                examples: skill.examples.clone(),
                input_modes: Vec::new(),
                output_modes: Vec::new(),
            })
            .collect(),
        streaming: card.streaming,
        push_notifications: card.push_notifications,
        extended_card: card.extended_card,
        extensions: card
            .extensions
            .iter()
            .map(|extension| Extension {
                uri: extension.uri.clone(),
                required: extension.required,
                description: None,
            })
            .collect(),
        ..CardConfig::default()
    };
    server.card_signer = config.a2a.card_signer.clone();
    server.tokens = tokens.collect::<Result<_, _>>()?;
    server.reply = match config.a2a.reply {
        Reply::Message => ReplyAs::Message,
        Reply::Task => ReplyAs::Task,
    };
    server.limits.body = usize::try_from(config.a2a.max_body.bytes())?;
    Ok(server)
}

// === impl Banner ===

impl Banner {
    fn new(
        config: &Config,
        bound: SocketAddr,
        executors: &Executors,
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
                    readiness: loaded.readiness.clone(),
                })
                .collect(),
            refused: executors
                .refused()
                .map(|(name, reason)| Refused { name: name.as_str().to_owned(), reason: reason.to_owned() })
                .collect(),
            demo_gateway,
            warnings: config.warnings.clone(),
        }
    }
}

impl fmt::Display for Banner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, card, admin, executors, refused, demo_gateway, warnings } = self;
        writeln!(f, "Talaria {} serves A2A at {url}", env!("CARGO_PKG_VERSION"))?;
        writeln!(f, "  card      {card}")?;
        if let Some(admin) = admin {
            writeln!(f, "  admin     {admin} (/healthz, /readyz, /metrics)")?;
        }
        for Line { name, default, readiness } in executors {
            let default = if *default { " (default)" } else { "" };
            writeln!(f, "  executor  {name}{default}: {readiness}")?;
        }
        for Refused { name, reason } in refused {
            writeln!(f, "  refused   {name}: {reason}")?;
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
