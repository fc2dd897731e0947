//! What one executor may do: where it may call, with which secrets, within which bounds.

use std::time::Duration;

use crate::address::{Addresses, Special};
use crate::connect::literal;
use crate::denial::Denials;
use crate::error::Error;
use crate::pattern::{HostPattern, Pattern};
use crate::secrets::Secrets;
use crate::target::Target;

/// The grant of one executor. Immutable; shared behind an `Arc` and replaced as a whole.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The executor's name, for messages and the log.
    pub executor: String,
    /// The calls it may make; none means none.
    pub patterns: Vec<Pattern>,
    /// The names that may lead to loopback or into a private network. Without this a granted name may not: whoever owns
    /// a name decides where it leads.
    pub private: Vec<HostPattern>,
    /// What its component says that it needs, where that is known: what applies is what is both needed and granted.
    pub needs: Option<Needs>,
    /// The secrets it may name in headers, each bound to its destinations.
    pub secrets: Secrets,
    /// Whether the host itself calls, which may read a secret that an answer repeats. A guest reads `*` in its place.
    pub is_host: bool,
    /// The bounds of each of its calls.
    pub bounds: Bounds,
    /// What it was denied lately.
    pub denials: Denials,
}

/// What a component says that it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// The calls that it makes.
    pub patterns: Vec<Pattern>,
    /// The secrets that it names, by name.
    pub secrets: Vec<String>,
}

/// Bounds of one call. What a guest asks for is capped by them, never raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Deadline of a whole call: the default, and the cap of what a request asks for. 600 s: an agent's turn as the
    /// seeds bound it.
    pub timeout: Duration,
    /// Bytes of a request's body. 16 MiB: what the platform's proxy lets into a turn.
    pub request_body: usize,
    /// Bytes of a response's body that is buffered (`fetch`). 16 MiB: a quarter of the default guest memory.
    pub response_body: usize,
    /// Bytes of a response's body that is streamed (`open`), all together. 64 MiB: what the platform's proxy takes as
    /// a reply.
    pub stream_bytes: usize,
    /// Bytes of all header names and values, each way. 64 KiB: above what common servers send or take.
    pub header_bytes: usize,
    /// Number of headers, each way. 100, which is also where the HTTP/1.1 client stops.
    pub headers: usize,
    /// Bytes of one server-sent event. 8 MiB: an image that a model makes comes in one.
    pub sse_event: usize,
}

// === impl Access ===

impl Access {
    /// The call's target, if the policy allows it.
    pub(crate) fn admit(&self, method: &str, url: &str) -> Result<Target, Error> {
        let target = Target::parse(method, url)?;
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
        Err(Error::denied(self.deny(format_args!("call {} {target}", target.method), &add)))
    }

    /// Where an admitted call may lead. A literal address is admitted only by a pattern that spells it out, and that is
    /// the operator's word for it.
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

    /// Says that a granted name leads where it may not.
    pub(crate) fn misled(&self, special: Special, target: &Target) -> Error {
        let add = match special {
            Special::Loopback | Special::Private => format!("private = [\"{}\"]", target.host),
            _ => format!(
                "the address itself, like egress = [\"{} {}://ADDRESS/*\"]",
                target.method, target.scheme
            ),
        };
        Error::denied(self.deny(format_args!("connect to {special} ({})", target.host), &add))
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
