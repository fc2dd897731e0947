//! The paths of the admin server.

use http::Method;

use super::executors::Change;
use crate::config::OpenPath;

/// A path of the admin server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route<'a> {
    Health,
    Ready,
    Metrics,
    /// What runs, and how loaded it is.
    Status,
    /// The numbers of the last hour.
    Stats,
    /// The turns of all callers.
    Turns,
    /// One of them.
    Turn {
        task: &'a str,
    },
    Cancel {
        task: &'a str,
    },
    Answer {
        task: &'a str,
    },
    /// What changes, as a stream.
    Events,
    /// The configuration in effect.
    Config,
    /// The log filter.
    Log,
    /// Turns that wait for callbacks, and late replies.
    Mailbox,
    /// Push notifications that were given up.
    Undelivered,
    /// Retries one of them.
    Retry {
        task: &'a str,
        id: &'a str,
    },
    /// All executors.
    Executors,
    /// One executor.
    Executor {
        name: &'a str,
    },
    /// Reloads or rolls back an executor.
    Change {
        name: &'a str,
        change: Change,
    },
    /// The settings of an executor.
    Settings {
        name: &'a str,
    },
    /// The audit log.
    Audit,
    /// Signs in and out.
    Session,
    /// What there is here, for programs.
    OpenApi,
    /// A2A, with the path that the A2A server knows.
    A2a,
    /// A file of the console.
    Console {
        path: &'a str,
    },
    Unknown,
}

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// Nothing: it shows nothing of the host.
    Nothing,
    /// To read.
    Read,
    /// To read what turns are about.
    Look,
    /// To act on a turn, or on the log.
    Act,
    /// To send messages to the agent.
    Call,
    /// To change an executor.
    Change,
}

/// Every path, as the API's description has it, with its methods. The tests hold both to it.
#[cfg(test)]
pub(super) const PATHS: &[(&str, &[&str])] = &[
    ("/healthz", &["get"]),
    ("/readyz", &["get"]),
    ("/metrics", &["get"]),
    ("/status", &["get"]),
    ("/stats", &["get"]),
    ("/turns", &["get"]),
    ("/turns/{task}", &["get"]),
    ("/turns/{task}/cancel", &["post"]),
    ("/turns/{task}/answer", &["post"]),
    ("/events", &["get"]),
    ("/config", &["get"]),
    ("/log", &["get", "put"]),
    ("/mailbox", &["get"]),
    ("/push/undelivered", &["get"]),
    ("/push/undelivered/{task}/{id}/retry", &["post"]),
    ("/executors", &["get"]),
    ("/executors/{name}", &["get", "put", "delete"]),
    ("/executors/{name}/reload", &["post"]),
    ("/executors/{name}/rollback", &["post"]),
    ("/executors/{name}/settings", &["put"]),
    ("/audit", &["get"]),
    ("/session", &["get", "post", "delete"]),
    ("/openapi.json", &["get"]),
    ("/a2a", &["post"]),
    ("/", &["get"]),
    ("/assets/{file}", &["get"]),
];

// === impl Route ===

impl<'a> Route<'a> {
    pub(super) fn of(path: &'a str) -> Self {
        let segments: Vec<&str> = path.split('/').skip(1).take(6).collect();
        match segments.as_slice() {
            ["healthz"] => Self::Health,
            ["readyz"] => Self::Ready,
            ["metrics"] => Self::Metrics,
            ["status"] => Self::Status,
            ["stats"] => Self::Stats,
            ["turns"] => Self::Turns,
            ["turns", task] if !task.is_empty() => Self::Turn { task },
            ["turns", task, "cancel"] if !task.is_empty() => Self::Cancel { task },
            ["turns", task, "answer"] if !task.is_empty() => Self::Answer { task },
            ["events"] => Self::Events,
            ["config"] => Self::Config,
            ["log"] => Self::Log,
            ["mailbox"] => Self::Mailbox,
            ["push", "undelivered"] => Self::Undelivered,
            ["push", "undelivered", task, id, "retry"] if !task.is_empty() && !id.is_empty() => {
                Self::Retry { task, id }
            }
            ["executors"] => Self::Executors,
            ["executors", name] if !name.is_empty() => Self::Executor { name },
            ["executors", name, "reload"] => Self::Change { name, change: Change::Reload },
            ["executors", name, "rollback"] => Self::Change { name, change: Change::Rollback },
            ["executors", name, "settings"] => Self::Settings { name },
            ["audit"] => Self::Audit,
            ["session"] => Self::Session,
            ["openapi.json"] => Self::OpenApi,
            ["a2a", ..] => Self::A2a,
            [""] | ["assets", _] => Self::Console { path },
            _ => Self::Unknown,
        }
    }

    /// The path as `admin.open` names it.
    pub(super) fn as_open(&self) -> Option<OpenPath> {
        match self {
            Self::Health => Some(OpenPath::Healthz),
            Self::Ready => Some(OpenPath::Readyz),
            Self::Metrics => Some(OpenPath::Metrics),
            _ => None,
        }
    }

    /// The change that a request with this method asks for.
    pub(super) fn change(&self, method: &Method) -> Option<(Change, &'a str)> {
        match self {
            Self::Change { name, change } => Some((*change, name)),
            Self::Executor { name } if method == Method::PUT => Some((Change::Put, name)),
            Self::Executor { name } if method == Method::DELETE => Some((Change::Delete, name)),
            Self::Settings { name } => Some((Change::Settings, name)),
            _ => None,
        }
    }

    /// What a request with this method needs.
    pub(super) fn needs(&self, method: &Method) -> Needs {
        match self {
            Self::Console { .. } | Self::Session => Needs::Nothing,
            Self::Turns | Self::Turn { .. } | Self::Events => Needs::Look,
            Self::Cancel { .. } | Self::Answer { .. } => Needs::Act,
            Self::Log if method == Method::PUT => Needs::Act,
            // The card is public.
            Self::A2a if matches!(*method, Method::GET | Method::HEAD) => Needs::Read,
            Self::A2a => Needs::Call,
            _ if self.change(method).is_some() => Needs::Change,
            _ => Needs::Read,
        }
    }

    /// The methods that the path accepts; empty for an unknown path, and for those that the A2A server knows.
    pub(super) fn methods(&self) -> &'static [Method] {
        match self {
            Self::Health
            | Self::Ready
            | Self::Metrics
            | Self::Status
            | Self::Stats
            | Self::Turns
            | Self::Turn { .. }
            | Self::Events
            | Self::Config
            | Self::Mailbox
            | Self::Undelivered
            | Self::Executors
            | Self::Audit
            | Self::OpenApi
            | Self::Console { .. } => &[Method::GET, Method::HEAD],
            Self::Executor { .. } => &[Method::GET, Method::HEAD, Method::PUT, Method::DELETE],
            Self::Log => &[Method::GET, Method::HEAD, Method::PUT],
            Self::Settings { .. } => &[Method::PUT],
            Self::Session => &[Method::GET, Method::HEAD, Method::POST, Method::DELETE],
            Self::Retry { .. } | Self::Change { .. } | Self::Cancel { .. } | Self::Answer { .. } => {
                &[Method::POST]
            }
            Self::A2a | Self::Unknown => &[],
        }
    }

    /// The name for the log; never the path, which comes from the caller.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Health => "healthz",
            Self::Ready => "readyz",
            Self::Metrics => "metrics",
            Self::Status => "status",
            Self::Stats => "stats",
            Self::Turns => "turns",
            Self::Turn { .. } => "turn",
            Self::Cancel { .. } => "cancel",
            Self::Answer { .. } => "answer",
            Self::Events => "events",
            Self::Config => "config",
            Self::Log => "log",
            Self::Mailbox => "mailbox",
            Self::Undelivered => "undelivered",
            Self::Retry { .. } => "retry",
            Self::Executors => "executors",
            Self::Executor { .. } => "executor",
            Self::Change { change: Change::Rollback, .. } => "rollback",
            Self::Change { .. } => "reload",
            Self::Settings { .. } => "settings",
            Self::Audit => "audit",
            Self::Session => "session",
            Self::OpenApi => "openapi",
            Self::A2a => "a2a",
            Self::Console { .. } => "console",
            Self::Unknown => "unknown",
        }
    }
}
