//! `[limits.caller]`: the share of one caller.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use talaria_config::Size;

/// `[limits.caller]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "limits.caller")]
pub(crate) struct CallerLimits {
    /// The number of turns of one caller that wait or run at once. Further turns are rejected.
    ///
    /// Default: half of `limits.turns` if several callers have names
    ///
    /// Example: `turns = 50`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) turns: Option<NonZeroU32>,
    /// The number of messages of one caller that are accepted in a minute. All of them may come at once.
    ///
    /// Default: 6,000 if several callers have names
    ///
    /// Example: `turns_per_minute = 600`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) turns_per_minute: Option<NonZeroU32>,
    /// The number of tasks of one caller that are stored. Beyond it, its oldest finished tasks are deleted; if too few are
    /// finished, new messages are rejected.
    ///
    /// Default: half of `limits.tasks` if several callers have names
    ///
    /// Example: `tasks = 2_000`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tasks: Option<NonZeroU32>,
    /// The size of these tasks. Beyond it, the oldest finished ones are deleted; if too few are finished, or the caller is
    /// faster, new messages are rejected.
    ///
    /// Default: half of `store.max_size` if several callers have names
    ///
    /// Example: `bytes = "1GiB"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<Size>,
    /// The number of webhooks that one caller may set in a minute. Each costs a look-up of its address.
    ///
    /// Default: 600 if several callers have names
    ///
    /// Example: `webhooks_per_minute = 60`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) webhooks_per_minute: Option<NonZeroU32>,
    /// What requests, responses, tasks and turns of one caller may take of the memory that `limits.memory` leaves to callers,
    /// which is half of it. Further ones are rejected.
    ///
    /// Default: a quarter of `limits.memory` if several callers have names
    ///
    /// Example: `memory = "64MiB"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<Size>,
}

// === impl CallerLimits ===

impl CallerLimits {
    /// These limits, and those of `other` where nothing is said.
    pub(crate) fn or(&self, other: &Self) -> Self {
        Self {
            turns: self.turns.or(other.turns),
            turns_per_minute: self.turns_per_minute.or(other.turns_per_minute),
            tasks: self.tasks.or(other.tasks),
            bytes: self.bytes.or(other.bytes),
            webhooks_per_minute: self.webhooks_per_minute.or(other.webhooks_per_minute),
            memory: self.memory.or(other.memory),
        }
    }
}
