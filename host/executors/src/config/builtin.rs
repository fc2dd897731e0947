//! Components that ship with the host, and what each is given without being configured.
//!
//! The host that is built on this crate says which these are. Everything here is a value, so that this crate knows of no
//! upstream: settings come from the environment through [`Preset::overrides`] and [`Preset::settle`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use talaria_config::Problem;

use super::name::ExecutorName;

/// A component that ships with the host.
#[derive(Debug, Clone)]
pub struct Builtin {
    /// The name behind `builtin:`, and of the executor that has it by itself.
    pub name: &'static str,
    /// The component.
    pub wasm: &'static [u8],
    /// Whether its executor is loaded without being named anywhere.
    pub is_always_loaded: bool,
    /// What it is given.
    pub preset: Preset,
}

/// What an executor with a built-in component is given where its section says nothing.
#[derive(Clone, Default)]
pub struct Preset {
    /// Settings that go before those of the section, for the executor of the component's name only, whatever component
    /// that has.
    pub overrides: Map<String, Value>,
    /// Completes and checks the settings.
    pub settle: Option<Settle>,
    /// The secrets that it is granted, by name.
    pub secrets: Vec<String>,
    /// Whether it receives replies out of band.
    pub callbacks: bool,
    /// How long a turn may take.
    pub deadline: Option<Duration>,
    /// What takes the turns of the executor of the component's name while that is not ready.
    pub fallback: Option<ExecutorName>,
}

/// Completes the settings of an executor, and checks them. Keys in problems start at `settings`.
pub type Settle = Arc<dyn Fn(&ExecutorName, &mut Map<String, Value>) -> Result<(), Problem> + Send + Sync>;

/// The components that ship with the host.
#[derive(Debug, Clone, Default)]
pub struct Builtins(Arc<[Builtin]>);

// === impl Builtins ===

impl Builtins {
    /// These.
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
