//! Which executor takes a message.
//!
//! In this order: the executor that the message names in its metadata, if callers may choose; the executor of the last turn
//! of the task that the message continues, because the upstream of a task belongs to one executor; the first `[[route]]`
//! that matches; the default. Routes know names only: whether an executor is loaded is checked by
//! [`Executors`](crate::Executors).
//!
//! The same message in the same context always goes to the same executor: a rule with a weight decides by the context id
//! and not at random, so that a choice can be explained and a context stays with its executor. `explain` uses the same
//! functions as [`Routes::pick`].

mod explain;

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use talaria_turns::keys::{EXECUTOR, TENANT};
use talaria_turns::{ContextId, Metadata, NoExecutor, RouteQuery};

pub use self::explain::{Explanation, Query};
use crate::config::{Config, ExecutorName, Patterns, RouteRule};

/// The metadata keys for a skill; A2A has no field for it, and callers use one of these.
const SKILL: [&str; 3] = ["skill", "skillId", "skill_id"];
/// The metadata key for a model.
const MODEL: [&str; 1] = ["model"];

/// The rules, and how many messages each picked.
#[derive(Debug)]
pub struct Routes {
    rules: Vec<Rule>,
    default: ExecutorName,
    caller_may_choose: bool,
    chosen: AtomicU64,
    continued: AtomicU64,
    by_default: AtomicU64,
}

/// The labels for messages that no rule picked; reserved names for rules.
pub const NOT_RULES: [&str; 3] = ["chosen", "continued", "default"];

#[derive(Debug)]
struct Rule {
    label: String,
    route: RouteRule,
    taken: AtomicU64,
}

/// The executor for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picked {
    /// Its name.
    pub executor: ExecutorName,
    /// Why it was picked.
    pub why: Why,
}

/// Why an executor was picked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The message names it.
    Chosen,
    /// It took the last turn of the same task.
    Continued,
    /// This rule matches.
    Rule(String),
    /// No rule matches.
    Default,
}

/// One condition of a rule, tested against a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tested {
    /// `skill`, `metadata.tier`, …
    condition: String,
    wanted: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
    matched: bool,
}

// === impl Routes ===

impl Routes {
    /// The rules of a configuration.
    pub fn new(config: &Config) -> Self {
        Self::from_parts(&config.routes, config.default.clone(), config.caller_may_choose)
    }

    fn from_parts(routes: &[RouteRule], default: ExecutorName, caller_may_choose: bool) -> Self {
        let rule = |(index, route): (usize, &RouteRule)| Rule {
            label: label(index, route),
            route: route.clone(),
            taken: AtomicU64::new(0),
        };
        Self {
            rules: routes.iter().enumerate().map(rule).collect(),
            default,
            caller_may_choose,
            chosen: AtomicU64::new(0),
            continued: AtomicU64::new(0),
            by_default: AtomicU64::new(0),
        }
    }

    /// Picks the executor for a message. A task whose executor is not `is_known` any more is routed anew.
    pub fn pick(
        &self,
        asked: &RouteQuery<'_>,
        is_known: impl Fn(&ExecutorName) -> bool,
    ) -> Result<Picked, NoExecutor> {
        if let Some(executor) = self.choice(asked)? {
            return Ok(Picked { executor, why: Why::Chosen });
        }
        if let Some(executor) = asked.continues.and_then(|name| name.parse().ok()).filter(is_known) {
            return Ok(Picked { executor, why: Why::Continued });
        }
        let fits = |rule: &&Rule| {
            rule.tests(asked).all(|tested| tested.matched)
                && rule.route.weight.is_none_or(|weight| point(&rule.route, asked.context) < weight.get())
        };
        Ok(match self.rules.iter().find(fits) {
            Some(rule) => {
                Picked { executor: rule.route.executor.clone(), why: Why::Rule(rule.label.clone()) }
            }
            None => Picked { executor: self.default.clone(), why: Why::Default },
        })
    }

    /// The executor that the message names, if callers may choose.
    fn choice(&self, asked: &RouteQuery<'_>) -> Result<Option<ExecutorName>, NoExecutor> {
        let refused = |what: &str| NoExecutor::Refused(format!("metadata[\"{EXECUTOR}\"] {what}"));
        match asked.message.metadata.as_ref().and_then(|metadata| metadata.get(EXECUTOR)) {
            None => Ok(None),
            Some(_) if !self.caller_may_choose => {
                Err(refused("is not allowed: callers may not choose the executor here"))
            }
            Some(choice) => {
                let name = choice.as_str().ok_or_else(|| refused("must be a text"))?;
                // The name is not repeated: it comes from the caller and may be anything.
                name.parse().map(Some).map_err(|_| refused("is no name of an executor"))
            }
        }
    }

    /// Counts a message that was given to the picked executor.
    pub fn count(&self, why: &Why) {
        let counter = match why {
            Why::Chosen => Some(&self.chosen),
            Why::Continued => Some(&self.continued),
            Why::Default => Some(&self.by_default),
            Why::Rule(label) => self.rules.iter().find(|rule| rule.label == *label).map(|rule| &rule.taken),
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of messages by the reason for their executor.
    pub fn counted(&self) -> Vec<(String, u64)> {
        let others = [&self.chosen, &self.continued, &self.by_default];
        let rules = self.rules.iter().map(|rule| (rule.label.clone(), &rule.taken));
        let all = rules.chain(NOT_RULES.into_iter().map(str::to_owned).zip(others));
        all.map(|(label, count)| (label, count.load(Ordering::Relaxed))).collect()
    }
}

/// The label of a rule.
pub fn label(index: usize, route: &RouteRule) -> String {
    route.name.clone().unwrap_or_else(|| format!("route[{index}]"))
}

// === impl Rule ===

impl Rule {
    /// Tests all conditions but the weight.
    fn tests<'a>(&'a self, asked: &'a RouteQuery<'a>) -> impl Iterator<Item = Tested> + 'a {
        let RouteRule { skill, tenant, principal, model, metadata, .. } = &self.route;
        let found = [
            skill.as_ref().map(|wanted| tested("skill", wanted, named(asked, &SKILL))),
            tenant.as_ref().map(|wanted| {
                let tenant = asked.metadata.and_then(|metadata| metadata.get(TENANT));
                tested("tenant", wanted, tenant.map(texts).unwrap_or_default())
            }),
            principal.as_ref().map(|wanted| {
                let name = asked.principal.name().map(Cow::Borrowed);
                tested("principal", wanted, Vec::from_iter(name))
            }),
            model.as_ref().map(|wanted| tested("model", wanted, named(asked, &MODEL))),
        ];
        let metadata = metadata.iter().map(|(key, wanted)| {
            tested(&format!("metadata.{key}"), wanted, named(asked, std::slice::from_ref(key)))
        });
        found.into_iter().flatten().chain(metadata)
    }
}

fn tested(condition: &str, wanted: &Patterns, found: Vec<Cow<'_, str>>) -> Tested {
    let matched = found.iter().any(|text| wanted.match_text(text));
    let found = (!found.is_empty()).then(|| found.join(", "));
    Tested { condition: condition.to_owned(), wanted: wanted.to_string(), found, matched }
}

/// The value of the first of these keys in the metadata of the message, else of the request.
fn named<'a>(asked: &RouteQuery<'a>, keys: &[impl AsRef<str>]) -> Vec<Cow<'a, str>> {
    let places: [Option<&'a Metadata>; 2] = [asked.message.metadata.as_ref(), asked.metadata];
    let value = places
        .into_iter()
        .flatten()
        .find_map(|metadata| keys.iter().find_map(|key| metadata.get(key.as_ref())));
    value.map(texts).unwrap_or_default()
}

/// The texts that patterns are matched against: a text, a number, a boolean, or the elements of a list.
fn texts(value: &Value) -> Vec<Cow<'_, str>> {
    match value {
        Value::String(text) => vec![Cow::Borrowed(text)],
        Value::Number(_) | Value::Bool(_) => vec![Cow::Owned(value.to_string())],
        Value::Array(values) => values.iter().filter(|value| !value.is_array()).flat_map(texts).collect(),
        Value::Null | Value::Object(_) => Vec::new(),
    }
}

/// The position of a context on the scale of a weight: at least 0, below 100.
///
/// The name of the executor is part of the hash, so that two rules with a weight do not take the same contexts.
fn point(route: &RouteRule, context: &ContextId) -> f64 {
    let mut hash = Sha256::new();
    hash.update(route.executor.as_str());
    hash.update([0]);
    hash.update(context.as_str());
    let digest = hash.finalize();
    let first = digest.iter().take(6).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    // 48 bits are exact in an `f64`.
    let share = first as f64 / (1_u64 << 48) as f64;
    share * 100.0
}

// === impl Why ===

impl Why {
    /// The rule's label, or one of [`NOT_RULES`].
    fn label(&self) -> &str {
        match self {
            Self::Chosen => "chosen",
            Self::Continued => "continued",
            Self::Rule(label) => label,
            Self::Default => "default",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen => f.write_str("the message names it"),
            Self::Continued => f.write_str("it took the last turn of the task"),
            Self::Rule(label) => write!(f, "{label} fits"),
            Self::Default => f.write_str("no rule fits, and it is the default"),
        }
    }
}

#[cfg(test)]
mod tests;
