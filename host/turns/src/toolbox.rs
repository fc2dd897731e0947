//! Tools of the host that executors may call, as the domain sees them.
//!
//! `engine` offers a guest those that its executor is granted. Which turn calls is known here, unlike with an agent that
//! reaches tools over a connection of its own. A toolbox bounds its calls in time and its results in size, and logs and
//! counts them.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::executor::Turn;
use crate::model::{ContextId, Principal, TaskId};

/// A tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// The name by which it is called and granted, see [`ToolSpec::is_name`].
    pub name: String,
    /// What it does, for a model.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub input_schema: Value,
}

/// The turn that calls a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallingTurn {
    /// The owner of the task.
    pub owner: Principal,
    /// The task.
    pub task: TaskId,
    /// The context of the task.
    pub context: ContextId,
    /// The place of the call in a trace, as the header `traceparent` has it, if traces are on.
    pub traceparent: Option<Box<str>>,
}

/// Why a call has no result. A call that a tool refuses in words has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// There is no such tool.
    #[error("there is no tool {0:?}")]
    Unknown(String),
    /// The tool cannot be reached, or its answer cannot be used. The text is for the model.
    #[error("{0}")]
    Unavailable(String),
}

/// Tools of one source.
#[async_trait]
pub trait Toolbox: Send + Sync + 'static {
    /// The tools that there are now.
    async fn tools(&self) -> Vec<ToolSpec>;

    /// Calls a tool, and returns its result as a text.
    ///
    /// # Errors
    /// [`ToolError`].
    async fn call(&self, turn: &CallingTurn, name: &str, arguments: Value) -> Result<String, ToolError>;
}

/// The tools of several sources; of two with one name, the first counts.
#[derive(Clone, Default)]
pub struct Toolboxes(Vec<Arc<dyn Toolbox>>);

// === impl ToolSpec ===

impl ToolSpec {
    /// Whether a text can be the name of a tool: 1 to 128 letters, digits, `_` and `-`.
    #[must_use]
    pub fn is_name(text: &str) -> bool {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        (1..=128).contains(&text.len()) && text.bytes().all(fits)
    }
}

// === impl CallingTurn ===

impl CallingTurn {
    /// This turn, as the caller of tools.
    #[must_use]
    pub fn of(turn: &Turn) -> Self {
        let Turn { principal, task, context, .. } = turn;
        Self { owner: principal.clone(), task: task.clone(), context: context.clone(), traceparent: None }
    }
}

// === impl Toolboxes ===

impl Toolboxes {
    /// The tools of these sources.
    #[must_use]
    pub fn new(sources: Vec<Arc<dyn Toolbox>>) -> Self {
        Self(sources)
    }
}

#[async_trait]
impl Toolbox for Toolboxes {
    async fn tools(&self) -> Vec<ToolSpec> {
        let mut tools: Vec<ToolSpec> = Vec::new();
        for source in &self.0 {
            for tool in source.tools().await {
                if tools.iter().all(|known| known.name != tool.name) {
                    tools.push(tool);
                }
            }
        }
        tools
    }

    async fn call(&self, turn: &CallingTurn, name: &str, arguments: Value) -> Result<String, ToolError> {
        for source in &self.0 {
            match source.call(turn, name, arguments.clone()).await {
                Err(ToolError::Unknown(_)) => {}
                called => return called,
            }
        }
        Err(ToolError::Unknown(name.to_owned()))
    }
}
