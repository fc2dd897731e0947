//! The requests that are made of an agent, each with its bounds.

use core::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use talaria_guest::{Failure, Request, control, http};
use talaria_upstream::{PROBE_TIMEOUT_MS, bearer};

use crate::address::segment;
use crate::answer::{Id, document, envelope};
use crate::fault::Fault;
use crate::stream::Stream;

/// The largest answer to a request: a task with its artifacts.
pub(crate) const ANSWER_BYTES: u32 = 16 << 20;
/// For a request that the agent answers from memory.
const CALL_TIMEOUT_MS: u32 = 30_000;
/// For a cancel: its caller waits for it, and the host allows it five seconds.
const CANCEL_TIMEOUT_MS: u32 = 4_000;
/// What is left of a turn's time for its failure to become its answer.
pub(crate) const MARGIN_MS: u32 = 3_000;
/// The id of a task that no agent has, for the probe.
const NO_TASK: &str = "talaria-probe";

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Version {
    #[serde(rename = "1.0")]
    V1,
    #[serde(rename = "0.3")]
    V03,
}

/// A form of the protocol on HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Binding {
    JsonRpc,
    Rest,
}

/// An interface of an agent. Part of the checkpoint, so that a task is followed and cancelled where it was begun.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Peer {
    pub(crate) url: String,
    pub(crate) binding: Binding,
    pub(crate) version: Version,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    pub(crate) streams: bool,
    /// The name of the secret with the token.
    pub(crate) token: String,
    /// The extension to ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) extension: Option<String>,
}

/// What is asked of an agent about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Get,
    Subscribe,
    Cancel,
}

/// Reads a JSON document.
pub(crate) fn get(url: &str, token: &str, bytes: u32, timeout_ms: u32) -> Result<Value, Fault> {
    let request = Request::new("GET", url).header("accept", "application/json").timeout_ms(timeout_ms);
    document(&bearer(request, token).max_bytes(bytes).fetch()?)
}

/// What is left of the turn's time for a request.
fn rest_of_turn() -> u32 {
    let left = control::remaining_ms();
    (left - MARGIN_MS.min(left / 10)).max(1)
}

/// The number of the next request of this turn, by which its answer is recognised.
fn next_id() -> u32 {
    static ID: AtomicU32 = AtomicU32::new(1);
    ID.fetch_add(1, Ordering::Relaxed)
}

impl Peer {
    /// Proves that the agent knows our token: it is asked for a task that it does not have.
    pub(crate) fn prove(&self) -> Result<(), Failure> {
        match self.about(Ask::Get, NO_TASK, PROBE_TIMEOUT_MS) {
            Err(fault @ (Fault::Http(_) | Fault::Status { .. })) => Err(fault.into()),
            _ => Ok(()),
        }
    }

    /// Sends a message. The answer is the agent's message, or the task that it went into, at once.
    pub(crate) fn send(&self, params: Value) -> Result<Value, Fault> {
        let (request, id) = self.message("SendMessage", "message/send", "/message:send", params);
        self.fetch(request.timeout_ms(rest_of_turn()), &id)
    }

    /// Sends a message and follows what becomes of it.
    pub(crate) fn stream(&self, params: Value) -> Result<Stream, Fault> {
        let (request, id) = self.message("SendStreamingMessage", "message/stream", "/message:stream", params);
        Stream::open(request.header("accept", "text/event-stream").timeout_ms(rest_of_turn()), id)
    }

    /// Follows a task from now on.
    pub(crate) fn subscribe(&self, task: &str) -> Result<Stream, Fault> {
        let (request, id) = self.asked(Ask::Subscribe, task);
        Stream::open(request.header("accept", "text/event-stream").timeout_ms(rest_of_turn()), id)
    }

    /// Asks for a task.
    pub(crate) fn task(&self, task: &str) -> Result<Value, Fault> {
        self.about(Ask::Get, task, CALL_TIMEOUT_MS.min(rest_of_turn()))
    }

    /// Cancels a task. One that is over, or unknown, needs no cancel.
    pub(crate) fn cancel(&self, task: &str) -> Result<(), Failure> {
        match self.about(Ask::Cancel, task, CANCEL_TIMEOUT_MS) {
            Err(fault) if !fault.is_over() => Err(fault.into()),
            _ => Ok(()),
        }
    }

    fn about(&self, ask: Ask, task: &str, timeout_ms: u32) -> Result<Value, Fault> {
        let (request, id) = self.asked(ask, task);
        self.fetch(request.header("accept", "application/json").timeout_ms(timeout_ms), &id)
    }

    fn fetch(&self, request: Request, id: &Id) -> Result<Value, Fault> {
        let response = request.max_bytes(ANSWER_BYTES).fetch()?;
        envelope(&response, id)
    }

    /// A request with a message.
    fn message(&self, v1: &str, v03: &str, path: &str, params: Value) -> (Request, Id) {
        match (self.binding, self.version) {
            (Binding::JsonRpc, Version::V1) => self.call(v1, params),
            (Binding::JsonRpc, Version::V03) => self.call(v03, params),
            (Binding::Rest, _) => {
                (self.headed(Request::new("POST", format!("{}{path}", self.base()))).json(&params), Id::None)
            }
        }
    }

    fn asked(&self, ask: Ask, task: &str) -> (Request, Id) {
        if self.binding == Binding::Rest {
            let url = format!("{}/tasks/{}", self.base(), segment(task));
            let request = match ask {
                Ask::Get => Request::new("GET", format!("{url}?historyLength=0")),
                Ask::Subscribe => Request::new("POST", format!("{url}:subscribe")),
                Ask::Cancel => Request::new("POST", format!("{url}:cancel")),
            };
            let request = self.headed(request);
            return (if ask == Ask::Get { request } else { request.json(&json!({})) }, Id::None);
        }
        let mut params = Map::from_iter([("id".to_owned(), task.into())]);
        if ask == Ask::Get {
            params.insert("historyLength".into(), 0.into());
        }
        self.tenant_into(&mut params);
        let method = match (ask, self.version) {
            (Ask::Get, Version::V1) => "GetTask",
            (Ask::Get, Version::V03) => "tasks/get",
            (Ask::Subscribe, Version::V1) => "SubscribeToTask",
            (Ask::Subscribe, Version::V03) => "tasks/resubscribe",
            (Ask::Cancel, Version::V1) => "CancelTask",
            (Ask::Cancel, Version::V03) => "tasks/cancel",
        };
        self.call(method, params.into())
    }

    /// Names the tenant in the parameters of a request. 0.3 has none.
    pub(crate) fn tenant_into(&self, params: &mut Map<String, Value>) {
        if let (Version::V1, Some(tenant)) = (self.version, &self.tenant) {
            params.insert("tenant".into(), tenant.as_str().into());
        }
    }

    fn call(&self, method: &str, params: Value) -> (Request, Id) {
        let id = next_id();
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        (self.headed(Request::new("POST", self.url.as_str())).json(&body), Id::Of(id))
    }

    /// The URL below which the operations of HTTP+JSON are.
    fn base(&self) -> String {
        let base = self.url.trim_end_matches('/');
        match &self.tenant {
            Some(tenant) => format!("{base}/{}", segment(tenant)),
            None => base.to_owned(),
        }
    }

    fn headed(&self, request: Request) -> Request {
        let request = bearer(request, &self.token);
        let (request, extensions) = match self.version {
            Version::V1 => (request.header("a2a-version", "1.0"), "a2a-extensions"),
            Version::V03 => (request, "x-a2a-extensions"),
        };
        match &self.extension {
            Some(extension) => request.header(extensions, extension.as_str()),
            None => request,
        }
    }
}

/// Where a response redirects to.
pub(crate) fn location(headers: &[http::Header]) -> Option<String> {
    headers.iter().find(|(name, _)| name == "location").map(|(_, value)| value.clone())
}
