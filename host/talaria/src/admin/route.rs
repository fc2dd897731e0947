//! Paths of the operator's server.

use http::Method;

use super::executors::Change;

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route<'a> {
    Health,
    Ready,
    Metrics,
    /// Pushes that were given up.
    Undelivered,
    /// One of them, to be tried again.
    Retry {
        task: &'a str,
        id: &'a str,
    },
    /// All executors.
    Executors,
    /// One of them.
    Executor {
        name: &'a str,
    },
    /// One of them, to be read again or rolled back.
    Change {
        name: &'a str,
        change: Change,
    },
    /// What was changed about them.
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

    /// What a request of this method would change about an executor.
    pub(super) fn change(&self, method: &Method) -> Option<(Change, &'a str)> {
        match self {
            Self::Change { name, change } => Some((*change, name)),
            Self::Executor { name } if method == Method::PUT => Some((Change::Put, name)),
            Self::Executor { name } if method == Method::DELETE => Some((Change::Delete, name)),
            _ => None,
        }
    }

    /// The methods that it takes; none where there is nothing to take.
    pub(super) fn methods(&self) -> &'static [Method] {
        match self {
            Self::Health
            | Self::Ready
            | Self::Metrics
            | Self::Undelivered
            | Self::Executors
            | Self::Audit => &[Method::GET, Method::HEAD],
            Self::Executor { .. } => &[Method::GET, Method::HEAD, Method::PUT, Method::DELETE],
            Self::Retry { .. } | Self::Change { .. } => &[Method::POST],
            Self::Unknown => &[],
        }
    }

    /// As the log says it: never the path, which is the caller's text.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Health => "healthz",
            Self::Ready => "readyz",
            Self::Metrics => "metrics",
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
