//! Tools of a host, for executors that call them.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use talaria_turns::{CallingTurn, ToolError, ToolSpec, Toolbox};
use tokio::sync::Notify;

/// Tools that do what their names say. Every call that reaches one is recorded.
///
/// | tool | does |
/// |---|---|
/// | `echo` | returns its arguments |
/// | `say` | returns its argument `text` |
/// | `long` | returns as many bytes as its argument `bytes` says |
/// | `hang` | never returns |
/// | `down` | fails, with what its argument `text` says |
#[derive(Default)]
pub struct FakeTools {
    calls: Mutex<Vec<(CallingTurn, String, Value)>>,
    called: Notify,
}

const NAMES: [&str; 5] = ["echo", "say", "long", "hang", "down"];

// === impl FakeTools ===

impl FakeTools {
    /// Makes the tools.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The calls so far: the turn, the tool, the arguments.
    #[must_use]
    pub fn calls(&self) -> Vec<(CallingTurn, String, Value)> {
        self.calls.lock().unwrap().clone()
    }

    /// Waits for a call.
    pub async fn called(&self) {
        talaria_fakes::soon("a call of a tool", self.called.notified()).await;
    }
}

#[async_trait]
impl Toolbox for FakeTools {
    async fn tools(&self) -> Vec<ToolSpec> {
        let tool = |name: &str| ToolSpec {
            name: name.into(),
            description: format!("Does {name}."),
            input_schema: json!({ "type": "object" }),
        };
        NAMES.map(tool).to_vec()
    }

    async fn call(&self, turn: &CallingTurn, name: &str, arguments: Value) -> Result<String, ToolError> {
        if !NAMES.contains(&name) {
            return Err(ToolError::Unknown(name.into()));
        }
        let text = arguments.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
        let bytes = arguments.get("bytes").and_then(Value::as_u64).unwrap_or_default();
        let said = arguments.to_string();
        self.calls.lock().unwrap().push((turn.clone(), name.into(), arguments));
        self.called.notify_one();
        match name {
            "say" => Ok(text),
            "long" => Ok("x".repeat(usize::try_from(bytes).unwrap())),
            "hang" => std::future::pending().await,
            "down" => Err(ToolError::Unavailable(text)),
            _ => Ok(said),
        }
    }
}
