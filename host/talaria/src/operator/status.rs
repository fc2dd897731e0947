//! `talaria status`: what a running host does, on one screen.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::{RunningHost, columns, line, number, size, text, time};

/// The answer of `/status`, with the executors.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    #[serde(flatten)]
    status: Value,
    executors: Value,
    admin: String,
}

impl Status {
    pub(crate) async fn ask(host: &RunningHost) -> anyhow::Result<Self> {
        let status = host.get("/status").await?;
        let mut executors = host.get("/executors").await?;
        let executors = executors.get_mut("executors").map(Value::take).unwrap_or_default();
        Ok(Self { status, executors, admin: host.url().to_owned() })
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.status.get("ready") == Some(&Value::Bool(true))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = &self.status;
        let uptime = time(number(status, "/uptime_s") * 1e3);
        let (version, url) = (text(status, "/version"), text(status, "/url"));
        writeln!(f, "talaria {version} at {url}, up {uptime}, pid {}", number(status, "/pid"))?;
        let ready = if self.is_ready() { "ready".to_owned() } else { format!("not ready: {}", why(status)) };
        let mut rows = vec![vec!["readiness".to_owned(), ready]];
        let turns = format!(
            "{} running, {} queued, of {}",
            number(status, "/turns/running"),
            number(status, "/turns/queued"),
            number(status, "/turns/limit")
        );
        rows.push(vec!["turns".into(), turns]);
        rows.push(vec!["streams".into(), number(status, "/streams").to_string()]);
        let (used, limit) = (number(status, "/memory/used"), number(status, "/memory/limit"));
        rows.push(vec!["memory".into(), format!("{} of {}", size(used), size(limit))]);
        let store = format!("{}, {}", text(status, "/store/url"), size(number(status, "/store/bytes")));
        rows.push(vec!["store".into(), store]);
        for (name, pointer) in [("gateway", "/gateway/url"), ("workspace", "/workspace/id"), ("log", "/log")]
        {
            let value = text(status, pointer);
            if !value.is_empty() {
                rows.push(vec![name.into(), line(value, 100)]);
            }
        }
        writeln!(f, "{}\n", columns(&rows))?;
        f.write_str(&table(&self.executors))
    }
}

/// Why a host is not ready.
fn why(status: &Value) -> String {
    let report = status.get("readiness");
    if report.and_then(|report| report.get("draining")) == Some(&Value::Bool(true)) {
        return "it is shutting down".to_owned();
    }
    let Some(report) = report else { return "unknown".to_owned() };
    let store = text(report, "/store/reason");
    if !store.is_empty() {
        return format!("store: {}", line(store, 200));
    }
    let default = text(report, "/default");
    let reason = text(report, &format!("/executors/{default}/reason")).to_owned();
    format!("{default}: {}", line(&reason, 200))
}

/// The executors in lines.
pub(super) fn table(executors: &Value) -> String {
    let mut rows = vec![
        ["EXECUTOR", "COMPONENT", "DIGEST", "STATE", "TURNS", "FAILED", "DENIED"].map(str::to_owned).to_vec(),
    ];
    for executor in executors.as_array().into_iter().flatten() {
        let default = executor.get("default") == Some(&Value::Bool(true));
        let name = format!("{}{}", text(executor, "/name"), if default { " *" } else { "" });
        let component =
            format!("{} {}", text(executor, "/current/component"), text(executor, "/current/version"));
        let state = match text(executor, "/current/readiness/state") {
            "" => format!("refused: {}", line(text(executor, "/refused"), 120)),
            state => {
                let reason = text(executor, "/current/readiness/reason");
                if reason.is_empty() { state.to_owned() } else { format!("{state}: {}", line(reason, 120)) }
            }
        };
        let digest = text(executor, "/current/digest");
        let count = |what: &str| number(executor, &format!("/counts/{what}")).to_string();
        let digest = digest.get(..12).unwrap_or(digest).to_owned();
        let cells =
            [name, line(&component, 40), digest, state, count("turns"), count("failed"), count("denied")];
        rows.push(cells.to_vec());
    }
    columns(&rows)
}
