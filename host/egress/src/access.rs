//! The access of one executor: which calls it may make, with which secrets, within which bounds.

use std::sync::Arc;
use std::time::Duration;

use crate::address::{Addresses, Special};
use crate::connect::literal;
use crate::denial::{DenialKind, Denials};
use crate::error::Error;
use crate::pattern::{HostPattern, Pattern};
use crate::secrets::Secrets;
use crate::target::Target;
use crate::targets::Targets;

/// The grant of one executor. Immutable; shared behind an `Arc` and replaced as a whole.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The executor's name, for messages and the log.
    pub executor: String,
    /// The calls that it may make; without a pattern it may make none.
    pub patterns: Vec<Pattern>,
    /// The names that may lead to loopback or into a private network. Other granted names may not, because the owner of a
    /// name decides where it leads.
    pub private: Vec<HostPattern>,
    /// The needs that its component declares, if they are known: the executor gets only what is both declared and granted.
    pub needs: Option<Needs>,
    /// The secrets that it may name in headers, each bound to its destinations.
    pub secrets: Secrets,
    /// The bounds of each of its calls.
    pub bounds: Bounds,
    /// Recent denials, so that the log repeats none.
    pub denials: Denials,
    /// Its first targets, parsed once.
    pub targets: Targets,
}

/// The needs that a component declares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// The calls that it makes.
    pub patterns: Vec<Pattern>,
    /// The names of the secrets that it uses.
    pub secrets: Vec<String>,
}

/// Bounds of one call. A request may ask for less, never for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Deadline of a whole call: the default, and the most that a request may ask for. 600 s: the default deadline of a
    /// turn.
    pub timeout: Duration,
    /// Bytes of a request's body. 16 MiB: as large as an incoming message may be.
    pub request_body: usize,
    /// Bytes of a buffered response body (`fetch`). 16 MiB: a quarter of the default memory of a guest.
    pub response_body: usize,
    /// Bytes of a streamed response body (`open`), in total. 64 MiB: what common proxies pass on as a reply.
    pub stream_bytes: usize,
    /// Bytes of all header names and values, each way. 64 KiB: above what common servers send or accept.
    pub header_bytes: usize,
    /// The number of headers, each way. 100, which is also the limit of the HTTP/1.1 client.
    pub headers: usize,
    /// Bytes of one server-sent event. 8 MiB: models send an image in one event.
    pub sse_event: usize,
}

// === impl Access ===

impl Access {
    /// Returns the call's target if the policy allows it.
    pub(crate) fn admit(&self, method: &str, url: &str) -> Result<Arc<Target>, Error> {
        let target = self.targets.parse(method, url)?;
        let matches = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(&target));
        if self.needs.as_ref().is_some_and(|needs| !matches(&needs.patterns)) {
            let what = format_args!("call {} {target}", target.method);
            return Err(Error::denied(
                self.deny_undeclared(what, &format!("egress: {}", Pattern::of(&target))),
            ));
        }
        if matches(&self.patterns) {
            return Ok(target);
        }
        let add = format!("egress = [\"{}\"]", Pattern::of(&target));
        Err(Error::denied(self.deny(
            DenialKind::Egress,
            format_args!("call {} {target}", target.method),
            &add,
        )))
    }

    /// The addresses that an admitted call may connect to. A literal address may be any: only a pattern that contains it
    /// admits it, so the operator chose it.
    pub(crate) fn reach(&self, target: &Target) -> Addresses {
        let host = target.host.as_str();
        if literal(host).is_some() {
            Addresses::Any
        } else if host == "localhost" || self.private.iter().any(|pattern| pattern.matches(host)) {
            Addresses::Private
        } else {
            Addresses::Public
        }
    }

    /// The error for a granted name that leads to an address which it may not lead to.
    pub(crate) fn misled(&self, special: Special, target: &Target) -> Error {
        let add = match special {
            Special::Loopback | Special::Private => format!("private = [\"{}\"]", target.host),
            _ => format!(
                "the address itself, like egress = [\"{} {}://ADDRESS/*\"]",
                target.method, target.scheme
            ),
        };
        Error::denied(self.deny(
            DenialKind::Address,
            format_args!("connect to {special} ({})", target.host),
            &add,
        ))
    }
}

// === impl Bounds ===

impl Default for Bounds {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(600),
            request_body: 16 << 20,
            response_body: 16 << 20,
            stream_bytes: 64 << 20,
            header_bytes: 64 << 10,
            headers: 100,
            sse_event: 8 << 20,
        }
    }
}
