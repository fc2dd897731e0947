//! The import `config`: settings by name, and whether a secret is set. It never returns the value of a secret.

use wasmtime::Result;

use super::{Ctx, cut};
use crate::contract::bindings::talaria::executor::config as wit;

/// The length at which a name is cut in the trace.
const MAX_NAME: usize = 256;

impl wit::Host for Ctx {
    fn get(&mut self, name: String) -> Result<Option<String>> {
        tracing::trace!(target: "import", name = cut(&name, MAX_NAME), "config.get");
        Ok(self.shared().and_then(|shared| shared.settings.get(&name)).map(ToString::to_string))
    }

    fn has_secret(&mut self, name: String) -> Result<bool> {
        let is_set = self.shared().is_some_and(|shared| shared.access.secrets.is_set(&name));
        tracing::trace!(target: "import", name = cut(&name, MAX_NAME), is_set, "config.has-secret");
        Ok(is_set)
    }
}
