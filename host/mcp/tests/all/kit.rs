//! A client of a server, as an executor's turn uses it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use talaria_egress::{Config, Egress};
use talaria_fakes::soon;
use talaria_mcp::{CallEnd, Pace, RemoteConfig, RemoteServer};
use talaria_turns::{CallingTurn, ContextId, Principal, TaskId, ToolError, Toolbox as _};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A client whose list is kept, until it is dropped.
pub(crate) struct Client {
    pub(crate) server: Arc<RemoteServer>,
    pub(crate) ends: Arc<Mutex<Vec<CallEnd>>>,
    shutdown: CancellationToken,
    running: JoinHandle<()>,
}

/// The server at this address, named `docs`.
pub(crate) fn config(url: &str) -> RemoteConfig {
    RemoteConfig {
        name: "docs".into(),
        url: url.into(),
        token: None,
        headers: Vec::new(),
        timeout: Duration::from_secs(300),
        include: None,
        private: false,
    }
}

impl Client {
    pub(crate) fn new(url: &str) -> Self {
        Self::of(config(url))
    }

    pub(crate) fn of(config: RemoteConfig) -> Self {
        Self::with_egress(config, Config::default())
    }

    pub(crate) fn with_egress(config: RemoteConfig, egress: Config) -> Self {
        let (ends, shutdown) = (Arc::<Mutex<Vec<CallEnd>>>::default(), CancellationToken::new());
        let seen = Arc::clone(&ends);
        let observer = Arc::new(move |server: &str, end| {
            assert_eq!(server, "docs");
            seen.lock().unwrap().push(end);
        });
        let tick = Duration::from_millis(1);
        // Lists are read again only when something asks for it.
        let pace = Pace { refresh: Duration::from_secs(3600), retry: tick, rest: Duration::ZERO };
        let server = RemoteServer::new(config, &Egress::new(egress), observer).unwrap().with_pace(pace);
        let server = Arc::new(server);
        let running = tokio::spawn(Arc::clone(&server).run(shutdown.clone()));
        Self { server, ends, shutdown, running }
    }

    /// Calls a tool by its offered name.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Result<String, ToolError> {
        soon("the call's end", self.server.call(&turn(), name, arguments)).await
    }

    /// Calls `docs__echo`, and returns why it cannot be used.
    pub(crate) async fn unavailable(&self) -> String {
        match self.call("docs__echo", Value::Null).await {
            Err(ToolError::Unavailable(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the names of the tools are these.
    pub(crate) async fn offers(&self, names: &[&str]) {
        soon(&format!("{names:?} are offered"), async {
            while self.names().await != names {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    pub(crate) async fn names(&self) -> Vec<String> {
        self.server.tools().await.into_iter().map(|tool| tool.name).collect()
    }

    /// Ends as the host does.
    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        soon("the end of the client", &mut self.running).await.unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

pub(crate) fn turn() -> CallingTurn {
    CallingTurn {
        owner: Principal::anyone(),
        task: TaskId::fresh(),
        context: ContextId::fresh(),
        traceparent: None,
    }
}
