//! The domain: tasks, the turns that move them, the log of what happened, and the store it all lives in.
//!
//! Everything here is version-blind and transport-blind: no HTTP, no A2A JSON, no WebAssembly. `a2a` calls
//! [`Turns`]; `engine` implements [`Executor`]; `store` implements [`Store`].
//!
//! The log is the truth. A [`Task`] is what folding its [`Event`]s gives, and the sequence number of the last event
//! is the task's version: appending names the version it builds on, so two writers cannot both win.
#![forbid(unsafe_code)]

mod executor;
mod model;
mod service;
mod store;
mod task;
mod text;

pub use executor::{
    Emitted, Executor, Failure, FailureKind, FinalState, Outcome, Route, Scope, ToolProgress, ToolState,
    Turn, TurnOver, Usage,
};
pub use model::{
    Artifact, Content, ContextId, Id, InvalidId, Message, MessageId, Metadata, OfContext, OfMessage, OfTask,
    Part, Principal, Role, TaskId, Timestamp,
};
pub use service::{Accepted, Incoming, Limits, SendError, Turns};
pub use store::{Entry, StateKey, Store, StoreError, TaskKey};
pub use task::{Event, IllegalMove, REPLY, State, Status, Task};
pub use text::message_text;
