//! Sends all calls to a stub on this machine, for authors who test an executor.
//!
//! With a [`StubUpstream`] in the [`Config`](crate::Config), a call passes the same policy, headers, secrets and bounds as any
//! other. Only its connection is made to the stub, without TLS, whatever the URL names: no name is looked up and no
//! certificate is checked. Each call is reported when it is over, denied ones too, as the guest wrote it: with
//! `{secret:NAME}`, never with the value. A host that serves turns has no stub.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::client::Request;
use crate::error::Error;
use crate::pattern::Pattern;
use crate::target::Target;

/// The address that all calls go to, and the observer of the calls.
#[derive(Clone)]
pub struct StubUpstream {
    /// The address that every connection is made to.
    pub address: SocketAddr,
    /// Called for every call once it is answered, has failed, or was dropped. Must not block.
    pub on_call: Arc<dyn Fn(Call) + Send + Sync>,
}

/// A call of a guest.
#[derive(Debug, Clone)]
pub struct Call {
    /// Whether the guest asked for the whole response (`fetch`) rather than a stream (`open`).
    pub whole: bool,
    /// The method as the guest wrote it.
    pub method: String,
    /// The URL as the guest wrote it.
    pub url: String,
    /// Bytes of the request body.
    pub sent: usize,
    /// The names of the secrets in its headers.
    pub secrets: Vec<String>,
    /// The narrowest pattern that grants it; `None` if the URL cannot be parsed.
    pub pattern: Option<Pattern>,
    /// When it began.
    pub began: Instant,
    /// The status, and the bytes of a whole response; `None` if the guest was stopped before the response.
    pub result: Option<Result<(u16, Option<usize>), Error>>,
}

/// A call in progress; it is reported when this value is dropped.
pub(crate) struct ObservedCall {
    call: Option<Call>,
    on_call: Arc<dyn Fn(Call) + Send + Sync>,
}

// === impl StubUpstream ===

impl StubUpstream {
    pub(crate) fn begin(&self, whole: bool, request: &Request) -> ObservedCall {
        let target = Target::parse(&request.method, &request.url);
        let secrets = request.headers.iter().flat_map(|(_, value)| secret_names(value));
        let call = Call {
            whole,
            method: request.method.clone(),
            url: request.url.clone(),
            sent: request.body.len(),
            secrets: secrets.map(str::to_owned).collect(),
            pattern: target.ok().map(|target| Pattern::of(&target)),
            began: Instant::now(),
            result: None,
        };
        ObservedCall { call: Some(call), on_call: Arc::clone(&self.on_call) }
    }
}

impl fmt::Debug for StubUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StubUpstream").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The names of the secrets that the host would fill in.
fn secret_names(template: &str) -> impl Iterator<Item = &str> {
    template.split("{secret:").skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
}

// === impl ObservedCall ===

impl ObservedCall {
    pub(crate) fn ended(mut self, result: Result<(u16, Option<usize>), Error>) {
        if let Some(call) = &mut self.call {
            call.result = Some(result);
        }
    }
}

impl Drop for ObservedCall {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            (self.on_call)(call);
        }
    }
}
