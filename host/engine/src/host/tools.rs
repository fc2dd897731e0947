//! The import `tools`: tools of the host that the executor's grant names, called for the turn that runs.
//!
//! A call is checked here, before its toolbox hears of it: the grant, the size and shape of the arguments, and the turn's
//! limits. It counts as one of the turn's calls, whichever import makes them (see `outbound`), and its arguments are charged
//! to the turn's budget, because tools store what they are given. It ends when the turn is cancelled, after [`LONGEST`], and
//! always before the turn's own deadline, so that the guest can still answer.
//!
//! The values of this host's secrets are removed both ways. A toolbox logs and counts its calls; here they get a span with
//! the executor's name, and a denial is logged like every other.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use talaria_egress::{DenialKind, ErrorKind};
use talaria_turns::{CallingTurn, StepKind, ToolError, ToolSpec, Toolbox as _};
use tokio::time::{Instant, timeout};
use tracing::{Instrument as _, debug, info_span, warn};
use wasmtime::Result;

use super::outbound::OpenCall;
use super::{Ctx, Purpose, cut, unless_cancelled};
use crate::contract::bindings::talaria::executor::tools as wit;
use crate::convert;
use crate::executor::Shared;
use crate::size::{ENTRY, Size};

/// The size of the largest arguments, and of the largest result: as much as an event may have.
const MAX_BYTES: usize = 1 << 20;
/// The size of all definitions that a guest gets. A tool has some hundred bytes.
const MAX_LIST: usize = 1 << 20;
/// The length at which the name of an unknown tool is cut.
const MAX_NAME: usize = 128;
/// The longest call: as long as common clients wait for a tool.
const LONGEST: Duration = Duration::from_secs(300);
/// The longest wait for the list of tools, some of which are asked for at other servers.
const LISTING: Duration = Duration::from_secs(15);

/// A call that may be made.
struct Admitted {
    shared: Arc<Shared>,
    turn: CallingTurn,
    arguments: Value,
    within: Duration,
    open_call: OpenCall,
}

fn failed(kind: wit::ErrorKind, message: impl Into<String>) -> wit::Error {
    wit::Error { kind, message: message.into() }
}

/// The error of a limit on the calls of the turn.
fn limited(error: &talaria_egress::Error) -> wit::Error {
    let kind = match error.kind() {
        ErrorKind::TooLarge => wit::ErrorKind::TooLarge,
        _ => wit::ErrorKind::Denied,
    };
    failed(kind, error.message())
}

fn unknown(name: &str) -> wit::Error {
    failed(wit::ErrorKind::Unknown, format!("there is no tool {:?}", cut(name, MAX_NAME)))
}

impl Ctx {
    fn calling(&self) -> Option<(Arc<Shared>, CallingTurn, Instant)> {
        match &self.purpose {
            Purpose::Execute { shared, of, deadline, .. } => {
                Some((Arc::clone(shared), of.calling.clone(), *deadline))
            }
            Purpose::Describe | Purpose::Probe(_) | Purpose::Cancel { .. } => None,
        }
    }

    fn admit_tool(&mut self, name: &str, arguments: &String) -> Result<Admitted, wit::Error> {
        let Some((shared, mut turn, deadline)) = self.calling() else {
            return Err(failed(wit::ErrorKind::Unsupported, "only a turn can call tools"));
        };
        if !ToolSpec::is_name(name) {
            return Err(unknown(name));
        }
        if !shared.tools.names.iter().any(|granted| granted == name) {
            let add = format!("tools = [\"{name}\"]");
            let why = shared.access.deny(DenialKind::Tool, format_args!("call the tool {name}"), &add);
            return Err(failed(wit::ErrorKind::Denied, why));
        }
        if arguments.len() > MAX_BYTES {
            let why = format!("the arguments have {} bytes; {MAX_BYTES} are the most", arguments.len());
            return Err(failed(wit::ErrorKind::TooLarge, why));
        }
        let size = Size::of(ENTRY).text(name).json(Some(arguments));
        let read = convert::json("the text of the arguments", arguments, &shared.replies);
        let read = read.map_err(|why| failed(wit::ErrorKind::Invalid, why))?;
        if !read.is_object() {
            return Err(failed(wit::ErrorKind::Invalid, "the arguments are not a JSON object"));
        }
        let open_call =
            self.outbound.admit(&shared, StepKind::Tool, name).map_err(|error| limited(&error))?;
        turn.traceparent = open_call.traceparent();
        open_call.send(arguments.len()).map_err(|error| limited(&error))?;
        self.charge(0, size).map_err(|why| failed(wit::ErrorKind::TooLarge, why))?;
        let left = deadline.saturating_duration_since(Instant::now());
        Ok(Admitted { shared, turn, arguments: read, within: LONGEST.min(left - left / 10), open_call })
    }

    async fn call_tool(&mut self, name: &str, arguments: &String) -> Result<String, wit::Error> {
        let Admitted { shared, turn, arguments, within, open_call } = self.admit_tool(name, arguments)?;
        let executor = shared.name.clone();
        let span = info_span!("guest.tool", executor, tool = name);
        let (called, tool) = (Arc::clone(&shared), name.to_owned());
        let calling = self.calls.begin(move || {
            async move { timeout(within, called.tools.toolboxes.call(&turn, &tool, arguments)).await }
                .instrument(span)
        });
        let result = match unless_cancelled(self.scope(), calling).await {
            None => return Err(failed(wit::ErrorKind::Cancelled, "the turn was cancelled")),
            Some(Err(_)) => {
                warn!(executor, tool = name, ?within, "tool took too long");
                let after = convert::seconds(within);
                return Err(failed(
                    wit::ErrorKind::TimedOut,
                    format!("the tool did not answer within {after}"),
                ));
            }
            Some(Ok(Err(ToolError::Unknown(_)))) => return Err(unknown(name)),
            Some(Ok(Err(ToolError::Unavailable(why)))) => {
                let why = shared.replies.error(why);
                return Err(failed(wit::ErrorKind::Unavailable, cut(&why, MAX_BYTES)));
            }
            Some(Ok(Ok(result))) => result,
        };
        if result.len() > MAX_BYTES {
            let why = format!("the result has {} bytes; {MAX_BYTES} are the most", result.len());
            return Err(failed(wit::ErrorKind::TooLarge, why));
        }
        open_call.receive(result.len()).map_err(|error| limited(&error))?;
        Ok(shared.replies.redactor().values(&result).into_owned())
    }

    /// The granted tools that there are now, as far as they fit.
    async fn list_tools(&mut self) -> Vec<wit::Tool> {
        let Some((shared, ..)) = self.calling() else { return Vec::new() };
        // Some toolboxes ask other servers, so a list is a call too.
        if shared.tools.names.is_empty()
            || self.outbound.admit(&shared, StepKind::Tool, "the list of tools").is_err()
        {
            return Vec::new();
        }
        let listed = Arc::clone(&shared);
        let listing =
            self.calls.begin(move || async move { timeout(LISTING, listed.tools.toolboxes.tools()).await });
        let tools = match unless_cancelled(self.scope(), listing).await {
            None => return Vec::new(),
            Some(Err(_)) => {
                warn!(executor = shared.name, after = ?LISTING, "tools not listed: a source does not answer");
                return Vec::new();
            }
            Some(Ok(tools)) => tools,
        };
        let mut room = MAX_LIST;
        let is_granted = |tool: &ToolSpec| shared.tools.names.contains(&tool.name);
        let convert = |tool: ToolSpec| {
            let input_schema = tool.input_schema.to_string();
            let bytes = tool.name.len() + tool.description.len() + input_schema.len();
            let Some(left) = room.checked_sub(bytes) else {
                warn!(
                    executor = shared.name,
                    tool = tool.name,
                    bytes,
                    "tool not listed: its definition is too large"
                );
                return None;
            };
            room = left;
            Some(wit::Tool { name: tool.name, description: tool.description, input_schema })
        };
        tools.into_iter().filter(is_granted).filter_map(convert).collect()
    }
}

impl wit::Host for Ctx {
    async fn list(&mut self) -> Result<Vec<wit::Tool>> {
        let tools = self.list_tools().await;
        tracing::trace!(target: "import", tools = tools.len(), "tools.list");
        Ok(tools)
    }

    async fn call(&mut self, name: String, arguments: String) -> Result<Result<String, wit::Error>> {
        let called = self.call_tool(&name, &arguments).await;
        match &called {
            Ok(result) => {
                tracing::trace!(target: "import", tool = name, bytes = result.len(), "tools.call");
            }
            Err(error) => {
                let tool = cut(&name, MAX_NAME);
                tracing::trace!(target: "import", tool, error = ?error.kind, "tools.call");
                debug!(tool, kind = ?error.kind, "tool call without a result");
            }
        }
        Ok(called)
    }
}
