//! The shares of callers: what `[limits.caller]` and the limits of tokens say, with defaults.
//!
//! The defaults are for hosts on which several callers have names: each may take half of what the host has. A caller that is
//! alone, the callers without a name and the workspace's platform have none, so that the host's own limits apply to them.

use std::collections::HashMap;
use std::num::NonZeroU32;

use talaria_turns::{CallerLimits, Principal, Shares};

use super::{Config, PLATFORM, Size, file};

/// A hundred turns a second: agents are slower, and a host takes several times as many.
const TURNS_PER_MINUTE: u32 = 6_000;
/// Ten look-ups a second.
const WEBHOOKS_PER_MINUTE: u32 = 600;

// === impl Config ===

impl Config {
    /// The shares of all callers.
    pub(crate) fn shares(&self) -> Shares {
        let chosen = &self.limits.caller;
        let are_several = self.a2a.tokens.len() + usize::from(self.a2a.platform_calls) > 1;
        let default = if are_several { self.half() } else { CallerLimits::default() };
        let tokens = self.a2a.tokens.iter();
        let mut callers: HashMap<_, _> = tokens
            .map(|token| (Principal::named(&token.name), limits(&token.limits.or(chosen), default)))
            .collect();
        if self.a2a.platform_calls {
            callers.insert(Principal::named(PLATFORM), CallerLimits::default());
        }
        Shares { callers, others: limits(chosen, CallerLimits::default()) }
    }

    /// Half of what the host has.
    fn half(&self) -> CallerLimits {
        let half = |count: u32| usize::try_from(count.div_ceil(2)).ok();
        CallerLimits {
            turns: half(self.limits.turns.get()),
            turns_per_minute: Some(TURNS_PER_MINUTE),
            tasks: half(self.limits.tasks.get()),
            bytes: Some(self.max_size.bytes().div_ceil(2)),
            webhooks_per_minute: Some(WEBHOOKS_PER_MINUTE),
            memory: Some(self.memory.budget.limit().div_ceil(2)),
        }
    }
}

fn limits(chosen: &file::CallerLimits, default: CallerLimits) -> CallerLimits {
    let count = |count: NonZeroU32| usize::try_from(count.get()).unwrap_or(usize::MAX);
    let size = |size: Size| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
    CallerLimits {
        turns: chosen.turns.map(count).or(default.turns),
        turns_per_minute: chosen.turns_per_minute.map(u32::from).or(default.turns_per_minute),
        tasks: chosen.tasks.map(count).or(default.tasks),
        bytes: chosen.bytes.map(|size| size.bytes()).or(default.bytes),
        webhooks_per_minute: chosen.webhooks_per_minute.map(u32::from).or(default.webhooks_per_minute),
        memory: chosen.memory.map(size).or(default.memory),
    }
}
