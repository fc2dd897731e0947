//! The tools that a workspace gives to its agent: the team, people, memory. The agent reaches them over MCP, on a listener
//! of its own; it never sees the workspace's token.
//!
//! **Policy.** Every call is checked in this order: the rate ([`CALLS`] a minute), the roles of `config.yaml`, the types and
//! sizes of the arguments, and whether a peer is one. What is not allowed is an ordinary result with the reason and the next
//! step, see [`refusal`]. The values of this host's secrets are removed from everything that leaves through a tool; memory is
//! redacted by shapes too.
//!
//! **Trust.** What peers wrote is marked as such ([`untrusted`]); the platform's answers are bounded and never passed on as a
//! whole.
//!
//! **Audit.** Every call is a log line with the tool, how it ended and how long it took, a span `tool.call`, and a count for
//! the observer. Arguments and results are not logged.

mod arguments;
mod catalogue;
mod delegate;
mod files;
mod memory;
mod peers;
mod people;
mod refusal;
mod roles;
mod toolbox;
pub(crate) mod untrusted;

pub use toolbox::OfferedTools;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use serde_json::Value;
use talaria_mcp::{CallEnd, Output, Tool, Tools};
use talaria_redact::Redactor;
use talaria_turns::{
    CallingTurn, ContextId, DelegationStore, Hold, Principal, Store, StoreError, TurnObserver, Turns,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, info, info_span};

use crate::activity::Activity;
use crate::delegations::{Delegations, IdleTimeout, Limits, Link};
use crate::platform::Platform;
use crate::platform_session::Keys;
use crate::prompt::Assembly;
use crate::tickets::Tickets;

use arguments::Arguments;
use catalogue::{Name, Offer};
use refusal::Refusal;

/// The name of the tools' server, by which the agent names the tools: `mcp__molecule__delegate_task`.
pub const SERVER: &str = "molecule";

/// Calls in a minute. An agent that makes more is in a loop.
const CALLS: u32 = 120;

/// The time that a call to the platform may take.
const WITHIN: Duration = Duration::from_secs(10);

/// Delegations that are open at once.
const OPEN: usize = 16;

/// Bytes of a text that leaves through a tool.
const TEXT: usize = 64 << 10;

/// Bytes of a stored result of a delegation.
const RESULT: usize = 1 << 20;

/// What the operator decides about the tools.
#[derive(Debug, Clone)]
pub struct ToolsConfig {
    /// The folders whose files may be sent to people.
    pub files: Vec<PathBuf>,
    /// Whether broadcasts are offered.
    pub broadcast: bool,
    /// How long the answer to a delegation is awaited.
    pub deadline: Duration,
    /// The key of the tickets that name conversations. It should survive a restart.
    pub ticket_key: SecretString,
}

/// Counts calls; the name is one of the offered tools.
pub type CallObserver = Arc<dyn Fn(&'static str, CallEnd) + Send + Sync>;

/// The tools of a workspace.
pub struct TeamTools {
    platform: Arc<Platform>,
    assembly: Arc<Assembly>,
    delegations: Arc<Delegations>,
    config: ToolsConfig,
    observer: CallObserver,
    /// When the present minute began, and the calls in it.
    rate: Mutex<(Instant, u32)>,
}

/// A call in progress. Its end is logged and counted when it is dropped.
struct Call<'a> {
    name: &'static str,
    began: Instant,
    end: CallEnd,
    observer: &'a CallObserver,
}

// === impl TeamTools ===

impl TeamTools {
    /// Opens the tools, with the delegations of earlier processes.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn open(
        platform_url: &str,
        egress: talaria_egress::Config,
        keys: &Keys,
        assembly: Arc<Assembly>,
        stores: (Arc<dyn DelegationStore>, Arc<dyn Store>),
        config: ToolsConfig,
        observer: CallObserver,
    ) -> Result<Self, StoreError> {
        let id = assembly.places().id.clone();
        let platform = Platform::new(platform_url, &id, keys.token(), egress);
        let platform = Arc::new(platform.map_err(StoreError::Unavailable)?);
        let limits = Limits { open: OPEN, result: RESULT, deadline: config.deadline };
        let tickets = Arc::new(Tickets::new(config.ticket_key.clone()));
        assembly.set_tickets(Arc::clone(&tickets));
        let delegations = Delegations::open(Arc::clone(&platform), &id, stores, limits, tickets).await?;
        let rate = Mutex::new((Instant::now(), 0));
        Ok(Self { platform, assembly, delegations: Arc::new(delegations), config, observer, rate })
    }

    /// What must see the turns of the host, so that results reach the conversation that delegated.
    pub fn turn_observer(&self) -> Arc<dyn TurnObserver> {
        Arc::clone(&self.delegations) as _
    }

    /// What keeps tasks open whose delegations have no answer yet.
    pub fn hold(&self) -> Arc<dyn Hold> {
        Arc::clone(&self.delegations) as _
    }

    /// Gives the tools the turns of the host, which did not exist when the tools were opened. Until then no task is held.
    pub fn link(&self, turns: Turns, activity: Arc<Activity>, idle: IdleTimeout) {
        self.delegations.link(Link { turns, activity, idle });
    }

    /// The ticket of a conversation, as the prompts of its turns name it.
    pub fn ticket(&self, owner: &Principal, context: &ContextId) -> String {
        self.delegations.ticket(owner, context)
    }

    /// Completes the tasks that are held open, before the host stops. Their results are told after the next start.
    pub async fn release_held(&self) {
        self.delegations.release_all().await;
    }

    /// Looks for results of delegations and tells them to the agent, until `shutdown`.
    pub async fn run(self: Arc<Self>, tracker: TaskTracker, shutdown: CancellationToken) {
        Arc::clone(&self.delegations).run((tracker, shutdown)).await;
    }

    /// The path of a resource of this workspace on the platform.
    fn path(&self, rest: &str) -> String {
        format!("/workspaces/{}/{rest}", self.assembly.places().id)
    }

    fn check_rate(&self) -> Result<(), Refusal> {
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        if rate.0.elapsed() >= Duration::from_secs(60) {
            *rate = (Instant::now(), 0);
        }
        rate.1 = rate.1.saturating_add(1);
        match rate.1 <= CALLS {
            true => Ok(()),
            false => Err(Refusal::new(
                format!("there were more than {CALLS} calls within a minute"),
                "stop calling tools in a loop; wait a minute, or answer with what you have",
            )),
        }
    }

    /// Calls a tool for a turn; `None` if the caller does not know its turn. Returns `None` if there is no such tool.
    async fn call_as(&self, turn: Option<CallingTurn>, name: &str, arguments: Value) -> Option<Output> {
        let (name, tool) = Name::find(name)?;
        if tool == Name::Broadcast && !self.config.broadcast {
            return None;
        }
        let mut call =
            Call { name, began: Instant::now(), end: CallEnd::Abandoned, observer: &self.observer };
        let span = info_span!("tool.call", tool = name);
        let result = Box::pin(self.run_tool(turn, tool, arguments)).instrument(span).await;
        let text = match result {
            Ok(text) => {
                call.end = CallEnd::Done;
                text
            }
            Err(refusal) => {
                call.end = if refusal.is_failure { CallEnd::Failed } else { CallEnd::Refused };
                refusal.text()
            }
        };
        Some(Output::text(text))
    }

    async fn run_tool(
        &self,
        turn: Option<CallingTurn>,
        name: Name,
        arguments: Value,
    ) -> Result<String, Refusal> {
        self.check_rate()?;
        let assembly = Arc::clone(&self.assembly);
        let manifest = tokio::task::spawn_blocking(move || assembly.current().manifest.raw.clone()).await;
        let manifest =
            manifest.map_err(|_| Refusal::failure("config.yaml cannot be read", "tell the user"))?;
        name.action().check(&manifest)?;
        let arguments = Arguments::read(arguments)?;
        match name {
            Name::ListPeers => self.list_peers().await,
            Name::WorkspaceInfo => self.workspace_info().await,
            Name::Delegate => self.delegate(turn, &arguments, true).await,
            Name::DelegateAsync => self.delegate(turn, &arguments, false).await,
            Name::CheckTask => self.check_task(&arguments).await,
            Name::CancelDelegation => self.cancel_delegation(&arguments).await,
            Name::RouteToTeam => self.route_to_team(turn, &arguments).await,
            Name::SendMessage => self.send_message(&arguments).await,
            Name::CreateApproval => self.create_approval(&arguments).await,
            Name::CreateRequest => self.create_request(&arguments).await,
            Name::CheckRequests => self.check_requests(&arguments).await,
            Name::CommitMemory => self.commit_memory(&arguments).await,
            Name::RecallMemory => self.recall_memory(&arguments).await,
            Name::ChatHistory => self.chat_history(&arguments).await,
            Name::Broadcast => self.broadcast(&arguments).await,
        }
    }
}

#[async_trait]
impl Tools for TeamTools {
    async fn list(&self) -> Vec<Tool> {
        // Agents read the list once, perhaps before the first contact with the platform.
        let team = match self.known_children().is_empty() {
            true => self.fetch_peers().await.map_or(true, |(_, children)| !children.is_empty()),
            false => true,
        };
        catalogue::tools(Offer { team, broadcast: self.config.broadcast })
    }

    async fn call(&self, name: &str, arguments: Value) -> Option<Output> {
        self.call_as(None, name, arguments).await
    }
}

// === impl Call ===

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let took_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        info!(tool = self.name, end = ?self.end, took_ms, "tool called");
        (self.observer)(self.name, self.end);
    }
}

/// A text without the values of this host's secrets.
fn outgoing(text: &str) -> String {
    Redactor::process().values(text).into_owned()
}

/// A member of an object as a text; empty if it is not one.
fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
