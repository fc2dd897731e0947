//! The numbers that the parts count themselves, read when somebody asks for metrics.

use std::sync::Arc;

use talaria_a2a::Counts;
use talaria_executors::route::Routes;
use talaria_mailbox::Mailbox;
use talaria_observe::metrics::mailbox::{self, Mail};
use talaria_observe::metrics::requests::{self, Refusal};
use talaria_observe::metrics::{Metrics, executors, memory, push, store, turns};
use talaria_turns::{PushQueue, Store, Turns};

use crate::admin::Health;
use crate::tool_servers::ToolServers;

/// The parts that count themselves.
pub(crate) struct Watched {
    pub(crate) turns: Turns,
    pub(crate) turns_limit: usize,
    pub(crate) server: Counts,
    pub(crate) health: Arc<Health>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) mailbox: Option<Mailbox>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) store_limit: u64,
    pub(crate) tool_servers: ToolServers,
}

// === impl Watched ===

impl Watched {
    /// Lets the metrics read the parts.
    pub(crate) fn by(self, metrics: &Metrics) {
        let Self { turns, turns_limit, server, health, routes, mailbox, store, store_limit, tool_servers } =
            self;
        let watched = turns.clone();
        metrics.turns.watch(move || turns::Now { under_way: watched.under_way(), limit: turns_limit });
        let watched = turns.clone();
        metrics.requests.watch(move || requests::Now {
            streams_open: server.streams_open(),
            refused: refused(&watched, &server),
        });
        let watched = turns.clone();
        metrics.push.watch(move || {
            let PushQueue { following, delivering, given_up } = watched.push_queue();
            push::Now { following, delivering, given_up }
        });
        metrics.memory.watch(move || {
            let budget = turns.budget();
            memory::Now { used: budget.used(), limit: budget.limit(), refused: budget.refused() }
        });
        metrics
            .executors
            .watch(move || executors::Now { executors: health.executors(), routed: routes.counted() });
        metrics.mailbox.watch(move || of_mailbox(mailbox.as_ref()));
        metrics.store.watch(move || store::Now { size: store.size(), limit: store_limit });
        let is_up = |server: &Arc<talaria_mcp::RemoteServer>| (server.name().to_owned(), server.is_up());
        metrics.tools.watch(move || tool_servers.iter().map(is_up).collect());
    }
}

fn refused(turns: &Turns, server: &Counts) -> Vec<(Refusal, u64)> {
    let refused = turns.refused();
    vec![
        (Refusal::Connections, server.connections_rejected()),
        (Refusal::Turns, refused.busy),
        (Refusal::Conversation, refused.lane_full),
        (Refusal::Memory, refused.no_memory + server.memory_refused()),
        (Refusal::Draining, refused.draining),
        (Refusal::CallerTurns, refused.caller_turns),
        (Refusal::CallerRate, refused.caller_rate),
        (Refusal::CallerTasks, refused.caller_tasks),
        (Refusal::CallerBytes, refused.caller_bytes),
        (Refusal::CallerWebhooks, refused.caller_webhooks),
        (Refusal::CallerMemory, turns.callers_memory_refused()),
        (Refusal::StoreFull, refused.store_full),
        (Refusal::Foreign, server.requests_refused()),
    ]
}

fn of_mailbox(mailbox: Option<&Mailbox>) -> mailbox::Now {
    let mail = mailbox.map(Mailbox::counts).unwrap_or_default();
    mailbox::Now {
        turns: vec![
            (Mail::Waiting, mail.waiting),
            (Mail::InLine, mail.in_line),
            (Mail::Unanswered, mail.unanswered),
            (Mail::Late, mail.late),
        ],
        bytes: mail.bytes,
    }
}
