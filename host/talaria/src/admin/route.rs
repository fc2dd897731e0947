//! Paths of the operator's server.

use http::Method;

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route<'a> {
    Health,
    Ready,
    Metrics,
    /// Turns that wait for callbacks, and replies that came late.
    Mailbox,
    /// Pushes that were given up.
    Undelivered,
    /// One of them, to be tried again.
    Retry {
        task: &'a str,
        id: &'a str,
    },
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
            _ => Self::Unknown,
        }
    }

    /// The methods that it takes; none where there is nothing to take.
    pub(super) fn methods(&self) -> &'static [Method] {
        match self {
            Self::Health | Self::Ready | Self::Metrics | Self::Mailbox | Self::Undelivered => {
                &[Method::GET, Method::HEAD]
            }
            Self::Retry { .. } => &[Method::POST],
            Self::Unknown => &[],
        }
    }

    /// As the log says it: never the path, which is the caller's text.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Health => "healthz",
            Self::Ready => "readyz",
            Self::Metrics => "metrics",
            Self::Mailbox => "mailbox",
            Self::Undelivered => "undelivered",
            Self::Retry { .. } => "retry",
            Self::Unknown => "unknown",
        }
    }
}
