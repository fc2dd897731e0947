//! The gateway of a test, the model behind it, and the bridge before it.
//!
//! All tests of a process share one gateway, since it takes seconds to start; each test has a bridge and contexts of
//! its own. A test that harms the gateway, or needs another configuration, starts its own.

use std::ops::Deref;
use std::path::Path;

use talaria_fakes::Provider;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::bridge::{Bridge, Start};
use crate::gateway::{Gateway, KEY, Options, SECRET};

/// A gateway and its model.
pub(crate) struct Partner {
    pub(crate) gateway: Gateway,
    pub(crate) model: Provider,
    /// The model's runtime, since a test's own runtime ends with the test.
    runtime: Option<Runtime>,
}

/// The shared partner, which prints its logs when a test fails.
pub(crate) struct Shared(&'static Partner);

// === impl Partner ===

impl Partner {
    /// The shared partner. Tests must leave it unchanged.
    pub(crate) async fn shared() -> Shared {
        static SHARED: OnceCell<Partner> = OnceCell::const_new();
        Shared(SHARED.get_or_init(|| Self::own(Options::default())).await)
    }

    /// A partner for one test.
    pub(crate) async fn own(options: Options) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let model = runtime.spawn(Provider::start()).await.unwrap();
        let gateway = Gateway::start(&model.base_url(), options).await;
        Self { gateway, model, runtime: Some(runtime) }
    }

    /// Configures a bridge whose default is this executor, with its settings and secrets.
    pub(crate) fn bridge<'a>(&self, folder: &'a Path, executor: &str) -> Start<'a> {
        let settings = match executor {
            "plugin-callback" => {
                format!("inbound_url = \"{}\"\nchat_id = [\"context\"]", self.gateway.inbound())
            }
            _ => format!("base_url = \"{}\"", self.gateway.api()),
        };
        // Every listener has port 0, so that tests can run concurrently.
        let config = format!(
            "[executors]\ndefault = \"{executor}\"\n[callback]\nlisten = \"127.0.0.1:0\"\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n[executor.{executor}.settings]\n{settings}\n"
        );
        Start::new(folder)
            .config(&config)
            .env("API_SERVER_KEY", KEY)
            .env("MOLECULE_A2A_PLATFORM_SHARED_SECRET", SECRET)
    }

    /// Starts that bridge and asserts that it is ready.
    pub(crate) fn up(&self, folder: &Path, executor: &str) -> Bridge {
        let bridge = self.bridge(folder, executor).up();
        assert_eq!(readiness(&bridge, executor), "ready", "{}", bridge.banner);
        bridge
    }
}

/// The readiness of an executor at the start of the bridge: `ready` or `not-ready`.
pub(crate) fn readiness(bridge: &Bridge, executor: &str) -> String {
    let all = bridge.banner["executors"].as_array().cloned().unwrap_or_default();
    let one = all.iter().find(|one| one["name"] == executor).unwrap_or_else(|| panic!("{}", bridge.banner));
    one["readiness"]["state"].as_str().unwrap_or_default().to_owned()
}

impl Drop for Partner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.gateway.log());
        }
        // A runtime must not block inside another.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

// === impl Shared ===

impl Deref for Shared {
    type Target = Partner;

    fn deref(&self) -> &Partner {
        self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0.gateway.log());
        }
    }
}
