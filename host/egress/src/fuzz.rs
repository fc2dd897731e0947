//! Entry points for the fuzz targets in `tests/fuzz`, which alone are built with `--cfg fuzzing`.
//!
//! The parsers as the client calls them, with public types. The targets assert what must hold; nothing is checked here.

use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use http::{HeaderMap, Uri};

use crate::access::{Access, Bounds};
use crate::error::Error;
use crate::headers;
use crate::pattern::Pattern;
use crate::sse::{SseEvent, SseEvents};
use crate::target::Target;

/// The target of a call.
#[derive(Debug, Clone)]
pub struct Call(Target);

impl Call {
    /// Parses a method and a URL.
    ///
    /// # Errors
    /// As the guest sees it.
    pub fn parse(method: &str, url: &str) -> Result<Self, Error> {
        Target::parse(method, url).map(Self)
    }

    /// The method.
    pub fn method(&self) -> &str {
        self.0.method.as_str()
    }

    /// The host that the policy checks.
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// The port that the policy checks.
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// The path that the policy checks.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// The URL to send.
    ///
    /// # Errors
    /// As the guest sees it.
    pub fn uri(&self) -> Result<Uri, Error> {
        self.0.uri()
    }

    /// Whether a pattern allows it.
    pub fn fits(&self, pattern: &Pattern) -> bool {
        pattern.matches(&self.0)
    }

    /// The pattern that a denial suggests.
    pub fn pattern(&self) -> Pattern {
        Pattern::of(&self.0)
    }
}

/// The headers to send.
///
/// # Errors
/// As the guest sees it.
pub fn outgoing(access: &Access, call: &Call, given: Vec<(String, String)>) -> Result<HeaderMap, Error> {
    headers::outgoing(access, &call.0, given)
}

/// The headers that a guest may read.
///
/// # Errors
/// As the guest sees it.
pub fn incoming(given: &HeaderMap, bounds: &Bounds) -> Result<Vec<(String, String)>, Error> {
    headers::incoming(given, bounds, &talaria_redact::Values::default())
}

/// The events in a body that arrives in these pieces, none longer than `most`, and what ended them.
pub fn events(pieces: Vec<Bytes>, most: usize) -> (Vec<SseEvent>, Result<(), Error>) {
    let mut events = SseEvents::new(stream::iter(pieces.into_iter().map(Ok)), most);
    let mut seen = Vec::new();
    loop {
        // All pieces are at hand, so this never waits.
        match events.next().now_or_never() {
            Some(Ok(Some(event))) => seen.push(event),
            Some(Err(error)) => return (seen, Err(error)),
            Some(Ok(None)) | None => return (seen, Ok(())),
        }
    }
}
