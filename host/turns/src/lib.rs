//! The domain: tasks, the turns that move them, the log of what happened, and the store it all lives in.
//!
//! Everything here is version-blind and transport-blind: no HTTP, no A2A JSON, no WebAssembly. `a2a` calls
//! [`Turns`]; `engine` implements [`Executor`]; `store` implements [`Store`].
//!
//! The log is the truth. A [`Task`] is what folding its [`Event`]s gives, and the sequence number of the last event
//! is the task's version: appending names the version it builds on, so two writers cannot both win.
#![forbid(unsafe_code)]

mod callback;
mod executor;
mod hook;
mod live;
mod model;
mod observer;
mod once;
mod order;
mod recall;
mod refused;
mod run;
mod service;
mod store;
mod task;
mod tell;
mod text;
mod workspace;

pub use callback::{
    Awaited, CallbackError, CallbackHeader, CallbackStore, Callbacks, Delivery, Expectation, ExpectedReply,
    Late, LateReplySink, StoredCallback,
};
pub use executor::{
    Asked, Emitted, Executor, Failure, FailureKind, FinalState, NoExecutor, Outcome, Past, Question, Route,
    Said, Scope, ToolProgress, ToolState, Turn, TurnOver, Usage,
};
pub use hook::{
    Again, Authentication, Courier, Credential, GivenUp, Hook, HookError, HookLimits, Hooked, News, Tells,
    Undelivered,
};
pub use live::Reader;
pub use model::{
    Artifact, Content, ContextId, HookId, Id, InvalidId, Message, MessageId, Metadata, OfContext, OfHook,
    OfMessage, OfTask, Part, Principal, Role, TaskId, Timestamp,
};
pub use observer::{TurnEnd, TurnObserver};
pub use once::Once;
pub use recall::{Extent, Recall, Recollection};
pub use refused::Refused;
pub use service::{Accepted, CancelError, FollowError, Incoming, Limits, SendError, Turns, TurnsBuilder};
pub use store::{Begin, Entry, Logged, Onto, Page, Place, Query, StateKey, Store, StoreError, TaskKey};
pub use task::{Checkpoint, Event, IllegalMove, Pending, REPLY, State, Status, Task};
pub use tell::StreamAs;
pub use text::{is_text_media, message_text};
pub use workspace::{Workspace, Workspaces};
