//! Calls that never leave the machine, for an author who tries an executor.
//!
//! With a [`Rehearsal`] in the [`Config`](crate::Config), a call takes the way of any other: policy, headers, secrets,
//! bounds. Only its connection is made to a stand-in, in the clear, whatever the URL names: no name is looked up, no
//! certificate is asked for. Each call is told when it is over, denied ones too, as the guest wrote it: with
//! `{secret:NAME}`, never with the value. What serves turns has none.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::client::Request;
use crate::error::Error;
use crate::pattern::Pattern;
use crate::target::Target;

/// Where calls go instead, and who hears of them.
#[derive(Clone)]
pub struct Rehearsal {
    /// Every connection is made to this address.
    pub stand_in: SocketAddr,
    /// Hears of every call when its answer is there, has failed, or is no longer waited for. Must not block.
    pub heard: Arc<dyn Fn(Call) + Send + Sync>,
}

/// A call of a guest.
#[derive(Debug, Clone)]
pub struct Call {
    /// Whether the whole response was asked for (`fetch`), or a stream (`open`).
    pub whole: bool,
    /// The method as the guest wrote it.
    pub method: String,
    /// The URL, as well.
    pub url: String,
    /// Bytes of the body.
    pub sent: usize,
    /// The secrets that its headers name.
    pub secrets: Vec<String>,
    /// The narrowest pattern that grants it; none where the URL is no URL.
    pub pattern: Option<Pattern>,
    /// When it began.
    pub began: Instant,
    /// The status, and the bytes of a whole response; none when the guest was ended meanwhile.
    pub result: Option<Result<(u16, Option<usize>), Error>>,
}

/// A call that is under way; it is told when this is dropped.
pub(crate) struct Begun {
    call: Option<Call>,
    heard: Arc<dyn Fn(Call) + Send + Sync>,
}

// === impl Rehearsal ===

impl Rehearsal {
    pub(crate) fn begin(&self, whole: bool, request: &Request) -> Begun {
        let target = Target::parse(&request.method, &request.url);
        let named = request.headers.iter().flat_map(|(_, value)| named(value));
        let call = Call {
            whole,
            method: request.method.clone(),
            url: request.url.clone(),
            sent: request.body.len(),
            secrets: named.map(str::to_owned).collect(),
            pattern: target.ok().map(|target| Pattern::of(&target)),
            began: Instant::now(),
            result: None,
        };
        Begun { call: Some(call), heard: Arc::clone(&self.heard) }
    }
}

impl fmt::Debug for Rehearsal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rehearsal").field("stand_in", &self.stand_in).finish_non_exhaustive()
    }
}

/// The names in the places that the host would fill in.
fn named(template: &str) -> impl Iterator<Item = &str> {
    template.split("{secret:").skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
}

// === impl Begun ===

impl Begun {
    pub(crate) fn ended(mut self, result: Result<(u16, Option<usize>), Error>) {
        if let Some(call) = &mut self.call {
            call.result = Some(result);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            (self.heard)(call);
        }
    }
}
