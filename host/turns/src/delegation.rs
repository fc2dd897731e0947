//! Delegations: tasks that this host's agent gave to another agent, as a store keeps them.
//!
//! A delegation is stored before it is sent, under an id that the receiver recognises, so that a host that is killed in
//! between can send it again without causing the work twice. It stays in the store until its result was told to the agent,
//! and for a while after that. Who receives delegations, and how results are told, is not known here.

use async_trait::async_trait;

use crate::model::Timestamp;
use crate::store::{StoreError, TaskKey};

/// A task for another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    /// Our id for it, which no other delegation has.
    pub id: Box<str>,
    /// The id of the agent that is to do it.
    pub target: Box<str>,
    /// The name of that agent.
    pub target_name: Box<str>,
    /// What it is to do.
    pub task: Box<str>,
    /// The context of the turn that delegated it, if that is known.
    pub context: Option<Box<str>>,
    /// The task whose turn delegated it, if that is known. It is held open until the result is there.
    pub turn: Option<TaskKey>,
    /// How far it got.
    pub state: DelegationState,
    /// The receiver's id for it, once the receiver has accepted it.
    pub remote: Option<Box<str>>,
    /// The answer, or the reason for its absence, once it has ended.
    pub result: Option<Box<str>>,
    /// When it was made.
    pub created: Timestamp,
    /// When it fails without an answer.
    pub until: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// The id of the message that tells its result to the agent. Set before that message is sent.
    pub message: Option<Box<str>>,
    /// When its result was told to the agent.
    pub told: Option<Timestamp>,
}

/// How far a delegation got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelegationState {
    /// It may or may not have reached the receiver.
    Sending,
    /// The receiver has it.
    Working,
    /// There is an answer.
    Completed,
    /// There will be no answer.
    Failed,
    /// The agent no longer wants the answer.
    Withdrawn,
}

/// Stores delegations. Every method does all or nothing; what a method wrote survives the end of the process once it
/// returns, if the store is durable at all.
#[async_trait]
pub trait DelegationStore: Send + Sync + 'static {
    /// All delegations, oldest first. For the start of a host.
    async fn delegations(&self) -> Result<Vec<Delegation>, StoreError>;

    /// Stores a delegation; it replaces the one with the same id.
    async fn put_delegation(&self, delegation: &Delegation) -> Result<(), StoreError>;

    /// Deletes delegations; unknown ids are ignored.
    async fn delete_delegations(&self, ids: &[Box<str>]) -> Result<(), StoreError>;
}

// === impl DelegationState ===

impl DelegationState {
    /// Whether an answer is still awaited.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Sending | Self::Working)
    }
}
