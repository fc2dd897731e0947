//! `talaria route explain`: which executor would take a message, and which rules match it.
//!
//! Nothing is loaded or called, so whether an executor is ready is not known; its fallback is shown instead. Without a
//! context id, rules with a weight are shown by their percentage.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use talaria_turns::keys::{EXECUTOR, TENANT};
use talaria_turns::{ContextId, Message, Metadata, Part, Principal, Role, RouteQuery};

use super::{Routes, Rule, Tested, Why, point};
use crate::config::{Config, Executor, ExecutorName};

/// A message to explain. Fields take precedence over the JSON in `text`.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// A text, or the JSON of a message or a request with its metadata, tenant and context.
    pub text: Option<String>,
    /// The tenant of the request.
    pub tenant: Option<String>,
    /// The caller: the name of its token.
    pub principal: Option<String>,
    /// The skill that the message names.
    pub skill: Option<String>,
    /// The model that the message asks for.
    pub model: Option<String>,
    /// Other metadata of the message.
    pub metadata: Vec<(String, Value)>,
    /// The context that the message belongs to.
    pub context: Option<ContextId>,
}

/// Which executor would take a message, and why.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// The context, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    rules: Vec<Considered>,
    /// The executors that would take it; several if the context decides.
    takes: Vec<Takes>,
    /// Why no executor would.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

/// A rule, and whether it matches.
#[derive(Debug, Serialize)]
struct Considered {
    route: String,
    executor: String,
    /// Whether it matches; `None` if the context decides.
    fits: Option<bool>,
    conditions: Vec<Tested>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<Drawn>,
}

/// The weight of a rule.
#[derive(Debug, Serialize)]
struct Drawn {
    /// The percentage of contexts that the rule takes.
    weight: f64,
    /// The position of this context; the rule takes it if this is below the weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<f64>,
}

/// An executor that would take the message.
#[derive(Debug, Serialize)]
struct Takes {
    executor: String,
    /// For this percentage of contexts.
    share: f64,
    /// The label of the rule, or of the other reason.
    route: String,
    /// The executor that takes its turns while it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback: Option<String>,
    #[serde(skip)]
    why: Why,
}

/// The message that a query describes.
struct Described {
    message: Message,
    metadata: Metadata,
    principal: Principal,
    context: Option<ContextId>,
}

// === impl Explanation ===

impl Explanation {
    /// Explains a query.
    pub fn new(config: &Config, query: &Query) -> Self {
        let routes = Routes::new(config);
        let Described { message, metadata, principal, context } = Described::read(query);
        // Never looked at: without a context, weights are shown by their percentage.
        let no_context = ContextId::fresh();
        let asked = RouteQuery {
            principal: &principal,
            message: &message,
            context: context.as_ref().unwrap_or(&no_context),
            metadata: Some(&metadata),
            continues: None,
        };
        let rules: Vec<Considered> =
            routes.rules.iter().map(|rule| Considered::new(rule, &asked, context.as_ref())).collect();
        let (takes, refused) = match routes.choice(&asked) {
            Err(refused) => (Vec::new(), Some(refused.to_string())),
            Ok(Some(name)) if executor(config, &name).is_none() => (
                Vec::new(),
                Some(format!("metadata[\"{EXECUTOR}\"] names no executor of this configuration")),
            ),
            Ok(Some(name)) => (vec![Takes::new(config, &name, 100.0, Why::Chosen)], None),
            Ok(None) => (shares(config, &routes, &rules), None),
        };
        Self { context: context.map(|context| context.as_str().to_owned()), rules, takes, refused }
    }

    /// Whether an executor would take it.
    pub fn is_taken(&self) -> bool {
        self.refused.is_none()
    }
}

/// The current configuration of an executor, from the main file or the folder.
fn executor<'a>(config: &'a Config, name: &ExecutorName) -> Option<Cow<'a, Executor>> {
    let in_folder = || {
        let files = config.folder.list().ok()?.executors.remove(name)?;
        files.component?;
        let policy = files.policy.and_then(|path| std::fs::read_to_string(path).ok());
        // Its secrets do not matter here.
        config.folder.executor(name, policy.as_deref(), &|_| None, &mut Vec::new()).ok()
    };
    in_folder().map(Cow::Owned).or_else(|| config.fixed.get(name).map(Cow::Borrowed))
}

/// The percentage of each executor, rule by rule.
fn shares(config: &Config, routes: &Routes, considered: &[Considered]) -> Vec<Takes> {
    let mut left = 100.0;
    let mut takes = Vec::new();
    for (rule, considered) in routes.rules.iter().zip(considered) {
        let share = match (considered.fits, rule.route.weight) {
            (Some(false), _) => continue,
            // Weights are independent: a rule takes its percentage of what the rules before it left.
            (None, Some(weight)) => left * weight.get() / 100.0,
            (Some(true) | None, _) => left,
        };
        takes.push(Takes::new(config, &rule.route.executor, share, Why::Rule(rule.label.clone())));
        left -= share;
        if left <= 0.0 {
            return takes;
        }
    }
    takes.push(Takes::new(config, &routes.default, left, Why::Default));
    takes
}

impl Considered {
    fn new(rule: &Rule, asked: &RouteQuery<'_>, context: Option<&ContextId>) -> Self {
        let conditions: Vec<Tested> = rule.tests(asked).collect();
        let weight = rule.route.weight.map(|weight| Drawn {
            weight: weight.get(),
            at: context.map(|context| point(&rule.route, context)),
        });
        let drawn = match &weight {
            None => Some(true),
            Some(Drawn { weight, at: Some(at) }) => Some(at < weight),
            Some(Drawn { weight, at: None }) if *weight <= 0.0 => Some(false),
            Some(Drawn { weight, at: None }) if *weight >= 100.0 => Some(true),
            Some(Drawn { .. }) => None,
        };
        let fits = if conditions.iter().all(|tested| tested.matched) { drawn } else { Some(false) };
        Self {
            route: rule.label.clone(),
            executor: rule.route.executor.as_str().to_owned(),
            fits,
            conditions,
            weight,
        }
    }
}

impl Takes {
    fn new(config: &Config, name: &ExecutorName, share: f64, why: Why) -> Self {
        let fallback = executor(config, name).and_then(|executor| executor.fallback.clone());
        Self {
            executor: name.as_str().to_owned(),
            share,
            route: why.label().to_owned(),
            fallback: fallback.map(|name| name.as_str().to_owned()),
            why,
        }
    }
}

// === impl Described ===

impl Described {
    /// Reads a query; its fields take precedence over the JSON in its text.
    fn read(query: &Query) -> Self {
        let text = query.text.as_deref().unwrap_or_default();
        let whole: Value = serde_json::from_str(text).ok().filter(Value::is_object).unwrap_or_default();
        let params = whole.get("params").unwrap_or(&whole);
        let message = params.get("message").unwrap_or(params);
        let object = |value: &Value| value.get("metadata").and_then(Value::as_object).cloned();
        let mut own: Metadata = object(message).unwrap_or_default();
        let mut metadata: Metadata = match params.get("message") {
            Some(_) => object(params).unwrap_or_default(),
            None => Map::new(),
        };
        metadata.shift_remove(TENANT);
        let said = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        if let Some(tenant) = query.tenant.clone().or_else(|| said(params, "tenant")) {
            metadata.insert(TENANT.into(), tenant.into());
        }
        own.extend(query.metadata.iter().cloned());
        let flags = [("skill", &query.skill), ("model", &query.model)];
        own.extend(flags.into_iter().filter_map(|(key, value)| Some((key.into(), value.clone()?.into()))));
        Self {
            message: Message {
                role: Role::User,
                metadata: Some(own),
                ..Message::agent(vec![Part::text(text)])
            },
            metadata,
            principal: query.principal.as_deref().map_or_else(Principal::anyone, Principal::named),
            context: query.context.clone().or_else(|| said(message, "contextId")?.parse().ok()),
        }
    }
}

// === as text ===

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rules after the first that matches are not reached.
        let first = self.rules.iter().position(|rule| rule.fits == Some(true));
        for (index, rule) in self.rules.iter().enumerate() {
            let verdict = match rule.fits {
                Some(false) => "does not fit",
                _ if first.is_some_and(|first| first < index) => "not reached",
                Some(true) => "fits",
                None => "fits some conversations",
            };
            writeln!(f, "{} -> {}: {verdict}", rule.route, rule.executor)?;
            for Tested { condition, wanted, found, matched } in &rule.conditions {
                let mark = if *matched { "yes" } else { "no " };
                let found = found.as_deref().unwrap_or("none");
                writeln!(f, "  {mark}  {condition} {wanted}: the message has {found}")?;
            }
            match &rule.weight {
                None => {}
                Some(Drawn { weight, at: Some(at) }) => {
                    let mark = if at < weight { "yes" } else { "no " };
                    writeln!(f, "  {mark}  weight {weight} of 100: this conversation is at {at:.2}")?;
                }
                Some(Drawn { weight, at: None }) => {
                    writeln!(
                        f,
                        "       weight {weight} of 100: give --context to see whether it is among them"
                    )?;
                }
            }
        }
        if !self.rules.is_empty() {
            writeln!(f)?;
        }
        if let Some(refused) = &self.refused {
            return write!(f, "refused: {refused}");
        }
        for (index, Takes { executor, share, fallback, why, .. }) in self.takes.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            match self.takes.len() {
                1 => write!(f, "{executor} takes it: {why}")?,
                _ => write!(f, "{executor} takes {share:.2} of 100 conversations: {why}")?,
            }
            if let Some(fallback) = fallback {
                write!(f, "; {fallback} stands in while it is not ready")?;
            }
        }
        Ok(())
    }
}
