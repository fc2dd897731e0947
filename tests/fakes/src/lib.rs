//! Scripted fakes of everything that the product talks to.
//!
//! [`FakeGateway`] is the upstream: it plays a script, records its requests, and shows whether its connections were
//! closed. [`FakeRuns`] is a gateway with runs, [`FakePlugin`] an upstream that answers by callback. [`FakeRegistry`] serves
//! components, [`FakePlatform`] registers workspaces, [`FakeToolServer`] offers tools, [`FakeProxy`] opens tunnels, and
//! [`Provider`] is the model behind a real gateway, [`FakeAgent`] an agent that speaks A2A, [`FakeCollector`] a collector of traces. There is one fake of each kind, and none of them needs the engine: the tests of a crate compile no more than the crate does.
//!
//! Everything here fails by panicking, with a sentence that says what is wrong.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a panic is a failed test"
)]

mod agent;
mod collector;
mod gateway;
mod platform;
mod plugin;
mod port;
mod provider;
mod proxy;
mod registry;
mod reply;
mod runs;
mod tool_server;

use std::path::Path;
use std::time::Duration;

pub use agent::{FakeAgent, Say, Spoken, params};
pub use collector::{Exported, FakeCollector, ForgetfulCollector};
pub use gateway::{FakeGateway, Recorded};
pub use platform::{Delegated, FakePlatform, Mood};
pub use plugin::{FakePlugin, Inbound, Step};
pub use port::free_port;
pub use provider::Provider;
pub use proxy::FakeProxy;
pub use registry::FakeRegistry;
pub use reply::{PROVIDER_KEY, Reply, Stream};
pub use runs::{FakeRuns, Script};
pub use tool_server::FakeToolServer;

/// How long a test waits for something that should happen at once. Long, because a test that fails only because the machine
/// is busy proves nothing; shorter than the runner's own limit, so that the test can say what did not happen.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Reads a built component of the product (`chat-completions`) or of the tests (`probe`).
///
/// # Panics
/// If it was not built.
#[must_use]
pub fn guest(name: &str) -> Vec<u8> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/dist");
    let places = [dist.join(format!("{name}.wasm")), dist.join(format!("test/{name}.wasm"))];
    let Some(path) = places.iter().find(|path| path.is_file()) else {
        panic!("there is no component {name:?} in {}; build it with `cargo xtask guests`", dist.display());
    };
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Waits for a future that should not take long.
///
/// # Panics
/// If it does; `what` says what did not happen.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("after {PATIENCE:?}: {what}"),
    }
}
