//! `/log`: the log filter, and its change while the host runs.

use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use talaria_executors::What;
use talaria_observe::logs;
use tracing::info;

use super::Host;
use super::executors::Upload;
use super::guard::Who;
use super::reply::{Reply, failure, invalid, ok, read_json};

/// The longest filter.
const LONGEST: usize = 1_024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    filter: String,
}

pub(super) fn show() -> Reply {
    ok(&json!({ "filter": logs::filter() }))
}

pub(super) async fn set(host: &Host, who: &Who, head: &http::request::Parts, body: impl Upload) -> Reply {
    let Filter { filter } = match read_json(head, body, host.turns.budget()).await {
        Ok(filter) => filter,
        Err(reply) => return reply,
    };
    if filter.trim().is_empty() || filter.len() > LONGEST {
        return invalid(&format!("`filter` has 1 to {LONGEST} bytes, such as info,access=debug"));
    }
    let before = logs::filter();
    match logs::set_filter(&filter) {
        Ok(()) => {}
        Err(error @ logs::InitError::Filter { .. }) => return invalid(&error.to_string()),
        Err(error) => return failure(StatusCode::CONFLICT, "CONFLICT", &error.to_string()),
    }
    info!(before, filter, by = who.name(), "log filter changed");
    host.executors.note(who.name(), What::LogChanged, None, Some(&filter)).await;
    show()
}
