//! The domain: tasks, their turns, the log of events, and the traits of stores and executors.
//!
//! This crate knows no protocol version and no transport: no HTTP, no A2A JSON, no WebAssembly. `a2a` calls [`Turns`];
//! `engine` implements [`Executor`]; `store` implements [`Store`].
//!
//! The log is the truth. A [`Task`] is the fold of its [`Event`]s, and the sequence number of the last event is the task's
//! version. An append names the version that it builds on, so of two concurrent writers one fails.
#![forbid(unsafe_code)]

mod callback;
mod delegation;
mod executor;
mod hold;
mod hops;
pub mod keys;
mod lanes;
mod live_task;
mod model;
mod observer;
mod once;
mod push;
mod recall;
mod rejections;
mod retention;
mod scope;
mod service;
mod shared;
mod shares;
mod size;
mod store;
mod stream_as;
mod survey;
mod task;
mod text;
mod timeline;
mod toolbox;
mod trace;
mod workspace;

pub use callback::{
    Awaited, CallbackError, CallbackHeader, CallbackStore, Callbacks, Delivery, Expectation, ExpectedReply,
    Late, LateReplySink, StoredCallback,
};
pub use delegation::{Delegation, DelegationState, DelegationStore};
pub use executor::{
    Emitted, Executor, Failure, FailureKind, FinalState, NoExecutor, Outcome, Route, RouteQuery, TooLarge,
    ToolProgress, ToolState, Turn, Usage,
};
pub use hold::Hold;
pub use hops::HopsError;
pub use live_task::Reader;
pub use model::{
    Artifact, Content, ContextId, Id, InvalidId, Message, MessageId, Metadata, OfContext, OfMessage,
    OfPushConfig, OfTask, Part, Principal, PushConfigId, Role, TaskId, Timestamp,
};
pub use observer::{TurnEnd, TurnObserver};
pub use once::Once;
pub use push::{
    Authentication, Credential, GivenUp, PushConfig, PushContent, PushError, PushFailure, PushLimits,
    PushNotification, PushQueue, PushSender, Retry, StoredPushConfig,
};
pub use recall::{Extent, Recall, Recollection};
pub use rejections::Refused;
pub use retention::{Kept, Retention};
pub use scope::{Past, Question, Scope, TurnOver, TurnSignal};
pub use service::{Accepted, CancelError, FollowError, Incoming, Limits, SendError, Turns, TurnsBuilder};
pub use shares::{CallerLimits, OverShare, Shares};
pub use store::{
    Begin, EVENTS_BYTES, Entry, Logged, Onto, Page, Place, Query, StateKey, Store, StoreError, TaskKey,
};
pub use stream_as::StreamAs;
pub use survey::{BEGINNING, LOOKED_AT, Said, Survey, Surveyed, TaskRow};
pub use task::{Checkpoint, Event, IllegalMove, Pending, REPLY, State, Status, Task};
pub use text::{is_text_media, message_text};
pub use timeline::{
    ComponentVersion, Facts, OpenStep, STEPS, Step, StepKind, StepTrace, Timeline, TurnState, UpstreamError,
};
pub use toolbox::{CallingTurn, ToolError, ToolSpec, Toolbox, Toolboxes};
pub use trace::{SpanId, TraceContext, TraceId, TraceSampler};
pub use workspace::{Workspace, Workspaces};
