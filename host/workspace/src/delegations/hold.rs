//! Which turn delegated, and its task, which is held open until the results are there.
//!
//! **Whose call it is.** An executor that calls tools of the host is known. An agent that calls them over its own connection
//! is not: then a `ticket` names its conversation, and without one it is the turn that runs, if exactly one does.
//!
//! **Hold.** A turn that completes while results of its delegations are to be told leaves its task open
//! ([`talaria_turns::Hold`]). When all its delegations have ended, their results become the next message of the task, and
//! the answer to that is what the caller gets. A task is held for the idle timeout of its executor at most: then it gets the
//! results that there are, or completes with the answer that it has, and the rest is told to the conversation.
//!
//! If the task was cancelled, or failed because nothing happened, its delegations are given up: nobody waits for them.

use std::sync::Arc;
use std::time::Duration;

use subtle::ConstantTimeEq as _;
use talaria_turns::{
    CallingTurn, ContextId, Delegation, DelegationState, FinalState, Hold, Incoming, Message, Part,
    Principal, Role, SendError, State as TaskState, StoreError, TaskKey, Timestamp, Turn, TurnEnd, Turns,
};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{Delegations, State, tell};
use crate::activity::Activity;

/// How long a task is held if its executor names no idle timeout: the default deadline of a turn.
const DEFAULT_IDLE: Duration = Duration::from_secs(600);

/// How long an executor of this name may be silent, if it says so.
pub type IdleTimeout = Box<dyn Fn(&str) -> Option<Duration> + Send + Sync>;

/// What holding tasks needs of the host. It exists only after the tools.
pub(crate) struct Link {
    pub(crate) turns: Turns,
    pub(crate) activity: Arc<Activity>,
    pub(crate) idle: IdleTimeout,
}

/// The ticket is not that of a running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrongTicket;

// === impl Delegations ===

impl Delegations {
    /// The turn that makes a call, as far as that is known.
    pub(crate) fn calling_turn(&self, ticket: Option<&str>) -> Result<Option<CallingTurn>, WrongTicket> {
        let state = self.state();
        let calling = |(key, context): (&TaskKey, &ContextId)| CallingTurn {
            owner: key.owner.clone(),
            task: key.task.clone(),
            context: context.clone(),
            traceparent: None,
        };
        let Some(ticket) = ticket else {
            let mut running = state.running.iter();
            return Ok(match (running.next(), running.next()) {
                (Some(one), None) => Some(calling(one)),
                _ => None,
            });
        };
        let is_named = |key: &TaskKey, context: &ContextId| {
            let known = self.tickets.of(&key.owner, context);
            bool::from(known.as_bytes().ct_eq(ticket.as_bytes()))
        };
        let named = state.running.iter().find(|(key, context)| is_named(key, context));
        named.map(|one| Some(calling(one))).ok_or(WrongTicket)
    }

    /// The ticket of a conversation.
    pub(crate) fn ticket(&self, owner: &Principal, context: &ContextId) -> String {
        self.tickets.of(owner, context)
    }

    /// Gives the delegations what they need to hold tasks. Tasks that may have been held before a restart are held until
    /// [`Delegations::check_held`] has looked at them.
    pub(crate) fn link(&self, link: Link) {
        let keys: Vec<TaskKey> = {
            let state = self.state();
            let untold = state.known.values().filter(|one| one.told.is_none());
            untold.filter_map(|one| one.turn.clone()).collect()
        };
        if self.link.set(link).is_ok() {
            keys.into_iter().for_each(|key| self.hold(key, DEFAULT_IDLE));
        }
    }

    /// Stops holding the tasks that were not held before the restart, or have ended since. Called after the turns were
    /// resumed; a task that works may have a turn, which decides at its end.
    pub(super) async fn check_held(&self) {
        let Some(link) = self.link.get() else { return };
        let held: Vec<TaskKey> = self.state().held.keys().cloned().collect();
        for key in held {
            match link.turns.task(&key.owner, &key.task).await {
                Ok(task) if task.status.state == TaskState::Working => {}
                Ok(_) | Err(StoreError::NotFound) => self.unhold(&key),
                Err(error) => warn!(task = %key.task, %error, "held task not read"),
            }
        }
    }

    /// Completes all held tasks with the answers that they have, before the host stops. Their results are told later.
    pub(crate) async fn release_all(&self) {
        let held: Vec<TaskKey> = self.state().held.keys().cloned().collect();
        for key in held {
            self.release(&key).await;
        }
    }

    /// Holds the task of a turn that has completed, if results of its delegations are to be told.
    pub(super) fn turn_ended(&self, executor: &str, turn: &Turn, end: TurnEnd<'_>) {
        let key = TaskKey { owner: turn.principal.clone(), task: turn.task.clone() };
        let mut state = self.state();
        state.running.remove(&key);
        let is_waiting =
            state.known.values().any(|one| one.told.is_none() && one.turn.as_ref() == Some(&key));
        match end {
            TurnEnd::Cancelled if is_waiting => drop(state.given_up.insert(key)),
            TurnEnd::Outcome(outcome) if is_waiting && outcome.state == FinalState::Completed => {
                drop(state);
                if let Some(link) = self.link.get() {
                    self.hold(key, (link.idle)(executor).unwrap_or(DEFAULT_IDLE));
                }
            }
            _ => {}
        }
    }

    /// A turn of a held task begins; at its end it is decided anew.
    pub(super) fn turn_began(&self, turn: &Turn) {
        let key = TaskKey { owner: turn.principal.clone(), task: turn.task.clone() };
        self.unhold(&key);
        self.state().running.insert(key, turn.context.clone());
    }

    fn hold(&self, key: TaskKey, idle: Duration) {
        if let Some(link) = self.link.get() {
            link.activity.hold(&key.task, true);
        }
        self.state().held.insert(key, Instant::now() + idle);
    }

    fn unhold(&self, key: &TaskKey) {
        if self.state().held.remove(key).is_some()
            && let Some(link) = self.link.get()
        {
            link.activity.hold(&key.task, false);
        }
    }

    /// Stops holding a task, and completes it.
    async fn release(&self, key: &TaskKey) {
        self.state().held.remove(key);
        self.complete(key).await;
    }

    /// Completes a task that is held no longer, unless it is held again.
    async fn complete(&self, key: &TaskKey) {
        let Some(link) = self.link.get() else { return };
        link.activity.hold(&key.task, self.is_held(key));
        match link.turns.release(key).await {
            Ok(true) => info!(task = %key.task, "task completed without the results of its delegations"),
            Ok(false) => {}
            Err(error) => warn!(task = %key.task, %error, "held task not completed"),
        }
    }

    /// Releases the tasks that wait for nothing any more, and gives up what nobody waits for.
    pub(super) async fn tend_held(&self) {
        let (released, given_up) = {
            let mut state = self.state();
            let State { held, known, given_up, .. } = &mut *state;
            let is_untold =
                |one: &Delegation, key: &TaskKey| one.told.is_none() && one.turn.as_ref() == Some(key);
            let is_waiting = |key: &TaskKey| known.values().any(|one| is_untold(one, key));
            let has_results =
                |key: &TaskKey| known.values().any(|one| is_untold(one, key) && one.ended.is_some());
            let now = Instant::now();
            let is_released =
                |key: &TaskKey, until: &mut Instant| !is_waiting(key) || (*until <= now && !has_results(key));
            let released: Vec<TaskKey> = held.extract_if(is_released).map(|(key, _)| key).collect();
            let over = |one: &&Delegation| {
                one.told.is_none() && one.turn.as_ref().is_some_and(|key| given_up.contains(key))
            };
            let ids: Vec<Box<str>> = known.values().filter(over).map(|one| one.id.clone()).collect();
            (released, ids)
        };
        for key in released {
            self.complete(&key).await;
        }
        for id in given_up {
            self.withdraw(&id).await;
        }
        let mut state = self.state();
        let State { known, given_up, .. } = &mut *state;
        given_up.retain(|key| known.values().any(|one| one.told.is_none() && one.turn.as_ref() == Some(key)));
    }

    /// When the next task will have been held for long enough.
    pub(super) fn next_release(&self) -> Option<Instant> {
        let now = Instant::now();
        self.state().held.values().filter(|until| **until > now).min().copied()
    }

    /// Sends results to the held task that waits for them, as its next message.
    pub(super) async fn send_to_task(&self, key: &TaskKey, id: &str, results: &[Delegation]) {
        let (Some(link), Ok(id)) = (self.link.get(), id.parse()) else { return };
        let open = self.count(|one| one.state.is_open() && one.turn.as_ref() == Some(key));
        let parts = vec![Part::text(tell::text(results, open))];
        let message = Message { id, role: Role::User, ..Message::agent(parts) };
        let incoming = Incoming {
            principal: key.owner.clone(),
            message: Arc::new(message),
            task: Some(key.task.clone()),
            context: None,
            // Readers that follow the task see the answer as it is written.
            streaming: true,
            async_delivery: true,
            metadata: None,
            push: None,
            trace: None,
        };
        match link.turns.send(incoming).await {
            // It is in the store, so it is told even if the host is killed now.
            Ok(_) => self.mark_told(results).await,
            Err(SendError::TaskOver { state: TaskState::Canceled, .. }) => {
                self.state().given_up.insert(key.clone());
                self.unhold(key);
            }
            Err(
                error @ (SendError::Busy(_)
                | SendError::LaneFull(_)
                | SendError::NoMemory(_)
                | SendError::OverShare(_)
                | SendError::Draining
                | SendError::Store(_)),
            ) => debug!(task = %key.task, %error, "results of delegations not told; will retry"),
            Err(error) => {
                info!(task = %key.task, %error, "held task takes no results; they go to its conversation");
                self.release(key).await;
            }
        }
    }

    /// Counts results as told.
    pub(super) async fn mark_told(&self, results: &[Delegation]) {
        for one in results {
            self.change(&one.id, |one| one.told = one.told.or(Some(Timestamp::now()))).await;
        }
    }
}

impl Hold for Delegations {
    fn is_held(&self, task: &TaskKey) -> bool {
        self.state().held.contains_key(task)
    }

    fn is_over(&self, task: &TaskKey) {
        self.unhold(task);
        let mut state = self.state();
        let is_waiting = |one: &Delegation| {
            one.told.is_none() && one.state != DelegationState::Withdrawn && one.turn.as_ref() == Some(task)
        };
        if state.known.values().any(is_waiting) {
            state.given_up.insert(task.clone());
            drop(state);
            self.changed.send_modify(|changes| *changes += 1);
        }
    }
}
