//! A workspace's tools against the fake platform, as an agent calls them.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use talaria_fakes::{FakePlatform, soon};
use talaria_mcp::Tools as _;
use talaria_store::Memory;
use talaria_workspace::{Assembly, Keys, Manifest, Places, TeamTools, ToolsConfig};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// An agent with its tools. Dropping it ends the process, as it were: only the store is left.
pub(crate) struct Agent {
    pub(crate) tools: Arc<TeamTools>,
    pub(crate) folder: TempDir,
    pub(crate) refused: Arc<AtomicUsize>,
    shutdown: CancellationToken,
}

/// A platform with two peers, Ann, whom the workspace coordinates, and Ben.
pub(crate) async fn platform() -> FakePlatform {
    let platform = FakePlatform::start().await;
    let peer = |id: &str, name: &str, parent: Value| json!({ "id": id, "name": name, "role": format!("{name}'s role"), "status": "online", "parent_id": parent, "agent_card": { "name": name, "skills": [{ "name": "papers" }] } });
    platform.set_surroundings(
        json!([peer("peer-1", "Ann", json!("ws-1")), peer("peer-2", "Ben", json!(null))]),
        "",
    );
    platform
}

impl Agent {
    pub(crate) async fn new(platform: &FakePlatform) -> Self {
        Self::start(platform, Arc::new(Memory::new(100)), "", Duration::from_secs(600)).await
    }

    pub(crate) async fn start(
        platform: &FakePlatform,
        store: Arc<Memory>,
        manifest: &str,
        deadline: Duration,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.yaml"), manifest).unwrap();
        fs::create_dir(folder.path().join("files")).unwrap();
        let places = Places {
            id: "ws-1".into(),
            folder: folder.path().to_owned(),
            shared_plugins: folder.path().join("none"),
            model: None,
        };
        let assembly = Arc::new(Assembly::new(places, Manifest::default()));
        let keys = Keys::open(folder.path(), None);
        let config = ToolsConfig {
            files: vec![folder.path().join("files")],
            broadcast: true,
            deadline,
            ticket_key: "key".into(),
        };
        let refused = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&refused);
        let observer = move |_: &'static str, end| {
            if end != talaria_mcp::CallEnd::Done {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        };
        let stores = (Arc::clone(&store) as _, store as _);
        let url = platform.url();
        let tools = TeamTools::open(
            &url,
            talaria_egress::Config::default(),
            &keys,
            assembly,
            stores,
            config,
            Arc::new(observer),
        );
        let tools = Arc::new(tools.await.unwrap());
        let (tracker, shutdown) = (TaskTracker::new(), CancellationToken::new());
        tracker.spawn(Arc::clone(&tools).run(tracker.clone(), shutdown.clone()));
        Self { tools, folder, refused, shutdown }
    }

    /// Calls a tool and returns its text.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> String {
        let output =
            soon("the tool answers", self.tools.call(name, arguments)).await.expect("a tool of this name");
        assert!(!output.is_fault, "a refusal is an ordinary result: {}", output.text);
        output.text
    }

    /// Calls a tool and returns the JSON at the beginning of its text.
    pub(crate) async fn ask(&self, name: &str, arguments: Value) -> Value {
        let text = self.call(name, arguments).await;
        let first = text.lines().next().unwrap_or_default();
        serde_json::from_str(first).unwrap_or_else(|_| panic!("not JSON: {text}"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
