//! The configuration, from the outside: files, variables and flags in, a configuration or one line of error out.

mod callback;
mod environment;
mod executors;
mod mistakes;
mod precedence;
mod reference;
mod shares;
mod tools;

use std::collections::HashMap;
use std::path::Path;

use tempfile::TempDir;

use talaria_egress::Egress;
use talaria_engine::{Component, Engine, EngineConfig};
use talaria_executors::{ComponentRef, Executor};

use super::{Config, ConfigError, Overrides};

/// A working directory, an environment and flags.
struct Given {
    folder: TempDir,
    variables: HashMap<String, String>,
    overrides: Overrides,
}

impl Given {
    /// Nothing: no file, no variable, no flag.
    fn nothing() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, variables: HashMap::new(), overrides: Overrides::default() }
    }

    /// A `talaria.toml` with this text.
    fn file(text: &str) -> Self {
        Self::nothing().with("talaria.toml", text)
    }

    /// Another file; folders are made.
    fn with(self, path: &str, text: impl AsRef<[u8]>) -> Self {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder above")).expect("the folder can be made");
        std::fs::write(path, text).expect("the file can be written");
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    fn config(mut self, path: impl AsRef<Path>) -> Self {
        self.overrides.file = Some(path.as_ref().to_owned());
        self
    }

    fn listen(mut self, address: &str) -> Self {
        self.overrides.listen = Some(address.parse().expect("an address"));
        self
    }

    fn try_load(&self) -> Result<Config, ConfigError> {
        Config::load_in(self.folder.path(), &self.overrides, &|name| self.variables.get(name).cloned())
    }

    fn load(&self) -> Config {
        self.try_load().expect("the configuration fits together")
    }

    /// The error's text, with paths as if the folder were the working directory.
    fn error(&self) -> String {
        let error = self.try_load().expect_err("the configuration has a mistake").to_string();
        error.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

/// A built-in component, loaded.
fn component(config: &Config, name: &str) -> Component {
    let wasm = config.executors.builtins.get(name).expect("a built-in component").wasm;
    let engine = EngineConfig { slots: 1, scripted_slots: 1, ..EngineConfig::default() };
    let engine = Engine::new(&engine, Egress::new(talaria_egress::Config::default())).expect("an engine");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(Component::load(&engine, wasm, |_| ())).expect("it loads")
}

/// The calls that an executor may make once its component is loaded.
fn egress(config: &Config, executor: &Executor) -> Vec<String> {
    let mut grant = executor.grant.clone();
    if let ComponentRef::Builtin(name) = &executor.component {
        let component = component(config, name);
        let settings = component.settings(&executor.settings).expect("the settings fit");
        grant.fill_in(&component.description().needs.egress, &settings);
    }
    grant.egress.iter().map(ToString::to_string).collect()
}
