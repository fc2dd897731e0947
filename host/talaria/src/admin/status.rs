//! `GET /status`: what runs, whether it is ready, and how loaded it is.

use serde_json::{Value, json};
use talaria_turns::Timestamp;

use super::guard::Who;
use super::{Admin, Host};
use crate::config::Config;
use talaria_observe::logs;

/// What does not change while the host runs.
#[derive(Debug, Clone)]
pub(crate) struct About {
    /// The address of the A2A server, as on the card.
    pub(crate) url: String,
    /// The store, without secrets.
    pub(crate) store: String,
    /// The turns that may wait or run at once.
    pub(crate) turns: usize,
    /// The gateway that this process supervises: its address.
    pub(crate) gateway: Option<String>,
    /// The workspace that is served: its id.
    pub(crate) workspace: Option<String>,
    /// The configuration in effect, without secrets.
    pub(crate) config: Value,
}

impl About {
    pub(crate) fn new(config: &Config, url: String) -> Self {
        Self {
            store: config.store.to_string(),
            turns: usize::try_from(config.limits.turns.get()).unwrap_or(usize::MAX),
            gateway: config
                .gateway
                .as_ref()
                .map(|gateway| format!("http://127.0.0.1:{}", gateway.settings.port)),
            workspace: config.workspace.as_ref().map(|workspace| workspace.id().to_owned()),
            config: config.shown(&url),
            url,
        }
    }
}

pub(super) async fn show(admin: &Admin, host: &Host, who: Who) -> Value {
    let report = host.health.report().await;
    let under_way = host.journal.under_way();
    let budget = host.turns.budget();
    let uptime = admin.started.elapsed().as_secs();
    let About { url, store, turns, gateway, workspace, .. } = &host.about;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": option_env!("TALARIA_COMMIT"),
        "started": Timestamp::now().before(admin.started.elapsed()).to_string(),
        "uptime_s": uptime,
        "url": url,
        "pid": std::process::id(),
        "ready": report.ready,
        "readiness": report,
        "turns": { "queued": under_way.queued, "running": under_way.running, "limit": turns },
        "streams": host.server.streams_open(),
        "memory": { "used": budget.used(), "limit": budget.limit() },
        "store": { "url": store, "bytes": host.store.size() },
        "gateway": gateway.as_ref().map(|url| json!({ "url": url })),
        "workspace": workspace.as_ref().map(|id| json!({ "id": id })),
        "can_change": who == Who::Operator,
        "log": logs::filter(),
    })
}
