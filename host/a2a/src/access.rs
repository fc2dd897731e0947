//! The access log: one line for each request, and the same facts for those who count requests.
//!
//! A line has the target `access`, at `debug` if the request was performed and at `info` if it was rejected, in every binding
//! alike: an error of JSON-RPC has the status 200 in HTTP, and is rejected all the same. It holds no content, and an unknown
//! path is not logged either: it is text of the caller's. The reason of a rejection is what the caller reads.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use http::{Method, StatusCode};
use talaria_turns::{Principal, TaskId};
use tracing::{debug, info};

use crate::rejection::Rejection;

/// An answered request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The HTTP method; `other` for one that is not of HTTP.
    pub method: &'a str,
    /// The name of the route, or the method of JSON-RPC or gRPC.
    pub operation: &'static str,
    /// The version of A2A; empty where it is not known.
    pub version: &'static str,
    /// The status that HTTP has or, in gRPC, would have.
    pub status: StatusCode,
    /// The code of the error, in JSON-RPC's numbers.
    pub code: Option<i32>,
    /// How long it took. For a stream, until it began.
    pub took: Duration,
}

/// Sees every answered request.
pub trait RequestObserver: Send + Sync + 'static {
    /// A request was answered. Must not block.
    fn answered(&self, request: &Request<'_>);
}

/// What is noted about a request while it is answered.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) caller: OnceLock<Principal>,
    /// The task that it names or makes.
    pub(crate) task: OnceLock<TaskId>,
    pub(crate) why: OnceLock<String>,
}

// === impl Noted ===

impl Noted {
    pub(crate) fn caller(&self, caller: &Principal) {
        let _ = self.caller.set(caller.clone());
    }

    pub(crate) fn task(&self, task: &TaskId) {
        let _ = self.task.set(task.clone());
    }

    pub(crate) fn rejected(&self, rejection: &Rejection) {
        self.refused(&rejection.message);
    }

    pub(crate) fn refused(&self, why: &str) {
        let _ = self.why.set(why.to_owned());
    }

    /// Writes the line.
    pub(crate) fn log(&self, route: &'static str, request: &Request<'_>) {
        let Request { method, operation, version, status, code, took } = *request;
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let caller = self.caller.get().and_then(Principal::name);
        let task = self.task.get().map(TaskId::as_str);
        let peer = self.peer.map(tracing::field::display);
        let rpc = (operation != route).then_some(operation);
        let version = (!version.is_empty()).then_some(version);
        let status = status.as_u16();
        let is_performed = code.is_none() && (status < 300 || status == 304);
        if is_performed {
            debug!(target: "access", method, route, rpc, version, status, millis, caller, peer, task, "request");
        } else {
            let why = self.why.get();
            info!(
                target: "access",
                method, route, rpc, version, status, code, millis, caller, peer, task, why, "request rejected"
            );
        }
    }
}

/// The name of an HTTP method for logs: an extension method is text that the caller chose.
pub(crate) fn method_name(method: &Method) -> &str {
    if method.as_str().len() <= 8 { method.as_str() } else { "other" }
}
