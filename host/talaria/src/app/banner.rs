//! What `talaria serve` prints when it is up: addresses, executors and warnings.

use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;
use talaria_executors::{Readiness, Table};
use tracing::{info, warn};

use crate::config::Config;

/// Addresses, executors and warnings.
#[derive(Debug, Serialize)]
pub(crate) struct Banner {
    url: String,
    card: String,
    /// The port for gRPC alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) grpc: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    admin: Option<String>,
    /// Bytes.
    memory: Memory,
    executors: Vec<Line>,
    refused: Vec<Refused>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) callback: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    demo_gateway: Option<String>,
    warnings: Vec<String>,
}

/// The memory of the process, and the part of it that callers can take.
#[derive(Debug, Serialize)]
struct Memory {
    whole: u64,
    callers: usize,
    #[serde(skip)]
    chosen: bool,
}

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    default: bool,
    readiness: Readiness,
    /// The executor that takes its turns while it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    stand_in: Option<String>,
}

#[derive(Debug, Serialize)]
struct Refused {
    name: String,
    reason: String,
}

// === impl Banner ===

impl Banner {
    pub(super) fn new(
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
            grpc: None,
            admin,
            memory: Memory {
                whole: config.memory.whole,
                callers: config.memory.budget.limit(),
                chosen: config.memory.chosen,
            },
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
            tools: None,
            demo_gateway,
            warnings: config.warnings.clone(),
        }
    }
}

impl Banner {
    /// Logs what it says as an event, for logs that are read line by line.
    pub(crate) fn log(&self) {
        let Self { url, card, admin, .. } = self;
        let (version, admin) = (env!("CARGO_PKG_VERSION"), admin.as_deref());
        let (callback, tools) = (self.callback.as_deref(), self.tools.as_deref());
        let grpc = self.grpc.map(tracing::field::display);
        info!(version, url, card, grpc, admin, callback, tools, "serving A2A");
        for Line { name, default, readiness, stand_in } in &self.executors {
            info!(executor = name, default, %readiness, stand_in, "executor");
        }
        for Refused { name, reason } in &self.refused {
            warn!(executor = name, reason, "executor refused");
        }
    }

    /// Logs the warnings, which not everybody sees who reads the log.
    pub(crate) fn log_warnings(&self) {
        for warning in &self.warnings {
            warn!("{warning}");
        }
    }
}

impl fmt::Display for Banner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            url,
            card,
            grpc,
            admin,
            memory,
            executors,
            refused,
            callback,
            tools,
            demo_gateway,
            warnings,
        } = self;
        writeln!(f, "Talaria {} serves A2A at {url}", env!("CARGO_PKG_VERSION"))?;
        writeln!(f, "  card      {card}")?;
        if let Some(grpc) = grpc {
            writeln!(f, "  gRPC      {grpc}")?;
        }
        if let Some(admin) = admin {
            writeln!(f, "  admin     {admin} (/healthz, /readyz, /metrics)")?;
        }
        let Memory { whole, callers, chosen } = memory;
        let source = if *chosen { "limits.memory" } else { "as found" };
        writeln!(
            f,
            "  memory    {} MiB ({source}), {} MiB for requests and turns",
            whole >> 20,
            callers >> 20
        )?;
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
        if let Some(url) = tools {
            writeln!(f, "  tools     {url} (MCP, for the agent)")?;
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
