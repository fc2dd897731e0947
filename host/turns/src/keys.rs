//! The metadata keys that this host gives a meaning to.
//!
//! A record that travels from a caller to an executor or back has a metadata object; what has no field of its own goes
//! there, under a key that begins with `talaria/`. All keys of the server are here, so that two of its crates cannot
//! disagree on one. The client and the guests see keys on the wire only, and spell them out. The keys are part of the
//! wire and of stored data: they never change.

/// In a message: the name of the executor that its caller chooses.
pub const EXECUTOR: &str = "talaria/executor";
/// In a message: the number of hosts that it passed through. See `hops`.
pub const HOPS: &str = "talaria/hops";
/// In a turn: the tenant that the request named.
pub const TENANT: &str = "talaria/tenant";
/// In a turn: the media types that the caller accepts. In an executor's description: those that it produces.
pub const OUTPUT_MODES: &str = "talaria/output-modes";
/// In an executor's description: the media types that it accepts.
pub const INPUT_MODES: &str = "talaria/input-modes";
/// In a turn that is resumed after a restart: how many milliseconds ago it began. Executors have no clock that survives
/// a restart, and some must not ask their upstream again too late.
pub const BEGUN_MS_AGO: &str = "talaria/begun-ms-ago";
/// In an outcome: whether a blocking send is answered with a task or a message. Callers do not see it.
pub const REPLY: &str = "talaria/reply";
/// In an outcome: the text of the final status. In a status update: what the executor reports about its work.
pub const STATUS: &str = "talaria/status";
/// In a message that answers a failed turn: the state of its task, which a bare message has no field for.
pub const STATE: &str = "talaria/state";
/// In a status message or an artifact update: whether it is a piece of the answer.
pub const CHUNK: &str = "talaria/chunk";
/// In the artifact of a late reply: when the reply arrived.
pub const LATE: &str = "talaria/late";
/// In a status update: the progress of a tool call.
pub const TOOL_PROGRESS: &str = "talaria/tool-progress";

/// In an update of a gRPC stream, which has no other place for it: the number of its event, to resume after.
pub const EVENT: &str = "talaria/event";

/// In the data of a question, not in metadata: the question asks for an approval. Executors say so, and callers without a
/// name may not answer where strangers call.
pub const APPROVAL: &str = "approval";

/// The beginning of the id of a message that the host sends to itself, by a way on which it may be repeated. A random part
/// follows.
pub const HOST_MESSAGE: &str = "delegation-results-";

/// The key under which callers see a note of this name.
#[must_use]
pub fn note(name: &str) -> String {
    format!("talaria/{name}")
}
