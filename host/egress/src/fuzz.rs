//! Doors for the fuzz targets in `tests/fuzz`, which alone are built with `--cfg fuzzing`.
//!
//! The parsers as the client calls them, with types that may leave the crate. Nothing is checked here: what must hold is
//! said by the targets.

use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use http::{HeaderMap, Uri};

use crate::access::{Access, Bounds};
use crate::echo::Known;
use crate::error::Error;
use crate::events::{Events, SseEvent};
use crate::headers;
use crate::pattern::Pattern;
use crate::target::Target;

/// Where a call goes.
#[derive(Debug, Clone)]
pub struct Call(Target);

impl Call {
    /// Reads a method and a URL.
    ///
    /// # Errors
    /// As the guest is told.
    pub fn parse(method: &str, url: &str) -> Result<Self, Error> {
        Target::parse(method, url).map(Self)
    }

    /// The method.
    pub fn method(&self) -> &str {
        self.0.method.as_str()
    }

    /// The host that the policy looks at.
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// The port that the policy looks at.
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// The path that the policy looks at.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// The URL that goes out.
    ///
    /// # Errors
    /// As the guest is told.
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

/// The headers that go out.
///
/// # Errors
/// As the guest is told.
pub fn outgoing(access: &Access, call: &Call, given: Vec<(String, String)>) -> Result<HeaderMap, Error> {
    headers::outgoing(access, &call.0, given)
}

/// The headers that a guest sees.
///
/// # Errors
/// As the guest is told.
pub fn incoming(given: &HeaderMap, bounds: &Bounds) -> Result<Vec<(String, String)>, Error> {
    headers::incoming(given, bounds, &Known::default())
}

/// The events in a body that arrives in these pieces, none longer than `most`, and what ended them.
pub fn events(pieces: Vec<Bytes>, most: usize) -> (Vec<SseEvent>, Result<(), Error>) {
    let mut events = Events::new(stream::iter(pieces.into_iter().map(Ok)), most);
    let mut seen = Vec::new();
    loop {
        // All pieces are there, so it never waits.
        match events.next().now_or_never() {
            Some(Ok(Some(event))) => seen.push(event),
            Some(Err(error)) => return (seen, Err(error)),
            Some(Ok(None)) | None => return (seen, Ok(())),
        }
    }
}
