//! Components that ship with the host, and what each gets without configuration.
//!
//! Everything here is a value that the host provides, so this crate knows no upstream. The calls that a component may make
//! are not part of it: they follow from the component's own needs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use talaria_config::Problem;

use super::name::ExecutorName;

/// A component that ships with the host.
#[derive(Debug, Clone)]
pub struct Builtin {
    /// The name after `builtin:`, and that of the executor that has this component without configuration.
    pub name: &'static str,
    /// The component.
    pub wasm: &'static [u8],
    /// Whether its executor is loaded even if the configuration does not name it.
    pub is_always_loaded: bool,
    /// What it gets without configuration.
    pub preset: Preset,
}

/// What an executor with a built-in component gets where its section is silent.
#[derive(Clone, Default)]
pub struct Preset {
    /// Settings that take precedence over the section, for the executor of the component's name only, whichever component
    /// it has.
    pub overrides: Map<String, Value>,
    /// Completes and checks the settings.
    pub settle: Option<Settle>,
    /// The names of the secrets that it is granted; as in a component's needs, they may refer to settings.
    pub secrets: Vec<String>,
    /// Whether it receives callbacks; must be known before a component is loaded, because the listener is bound first.
    pub callbacks: bool,
    /// The deadline of a turn.
    pub deadline: Option<Duration>,
    /// The fallback of the executor of the component's name.
    pub fallback: Option<ExecutorName>,
}

/// Completes and checks the settings of an executor. Keys in problems start with `settings`.
pub type Settle = Arc<dyn Fn(&ExecutorName, &mut Map<String, Value>) -> Result<(), Problem> + Send + Sync>;

/// The components that ship with the host.
#[derive(Debug, Clone, Default)]
pub struct Builtins(Arc<[Builtin]>);

// === impl Builtins ===

impl Builtins {
    /// Makes the list.
    pub fn new(builtins: Vec<Builtin>) -> Self {
        Self(builtins.into())
    }

    /// The one of that name.
    pub fn get(&self, name: &str) -> Option<&Builtin> {
        self.0.iter().find(|builtin| builtin.name == name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Builtin> {
        self.0.iter()
    }
}

impl fmt::Debug for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preset")
            .field("overrides", &self.overrides)
            .field("secrets", &self.secrets)
            .finish_non_exhaustive()
    }
}
