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
    /// The audit log.
    Audit,
    Unknown,
}

// === impl Route ===

impl<'a> Route<'a> {
    pub(super) fn of(path: &'a str) -> Self {
        let segments: Vec<&str> = path.split('/').skip(1).take(6).collect();
        match segments.as_slice() {
            ["healthz"] => Self::Health,
            ["readyz"] => Self::Ready,
            ["metrics"] => Self::Metrics,
            ["mailbox"] => Self::Mailbox,
            ["push", "undelivered"] => Self::Undelivered,
            ["push", "undelivered", task, id, "retry"] if !task.is_empty() && !id.is_empty() => {
                Self::Retry { task, id }
            }
            ["executors"] => Self::Executors,
            ["executors", name] if !name.is_empty() => Self::Executor { name },
            ["executors", name, "reload"] => Self::Change { name, change: Change::Reload },
            ["executors", name, "rollback"] => Self::Change { name, change: Change::Rollback },
            ["audit"] => Self::Audit,
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
            _ => None,
        }
    }

    /// The methods that the path accepts; empty for an unknown path.
    pub(super) fn methods(&self) -> &'static [Method] {
        match self {
            Self::Health
            | Self::Ready
            | Self::Metrics
            | Self::Mailbox
            | Self::Undelivered
            | Self::Executors
            | Self::Audit => &[Method::GET, Method::HEAD],
            Self::Executor { .. } => &[Method::GET, Method::HEAD, Method::PUT, Method::DELETE],
            Self::Retry { .. } | Self::Change { .. } => &[Method::POST],
            Self::Unknown => &[],
        }
    }

    /// The name for the log; never the path, which comes from the caller.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Health => "healthz",
            Self::Ready => "readyz",
            Self::Metrics => "metrics",
            Self::Mailbox => "mailbox",
            Self::Undelivered => "undelivered",
            Self::Retry { .. } => "retry",
            Self::Executors => "executors",
            Self::Executor { .. } => "executor",
            Self::Change { change: Change::Rollback, .. } => "rollback",
            Self::Change { .. } => "reload",
            Self::Audit => "audit",
            Self::Unknown => "unknown",
        }
    }
}
