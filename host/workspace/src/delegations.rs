//! Delegations: tasks that the agent gave to other workspaces, from the first write to the told result.
//!
//! **Promise.** A delegation is in the store before the platform hears of it, under an id that is also the platform's
//! idempotency key: a host that is killed at any moment sends it again and causes the work once. Its result is told to the
//! agent once: within the call that waits for it, by `check_task_status`, as the next message of the task that delegated and is
//! held open (`hold`), or else by a message to the conversation.
//!
//! **Bounds.** [`Limits`]: delegations that are open at once, the bytes of a result, and the time after which one without an
//! answer fails. The newest [`KEPT`] that were told stay readable; older ones are deleted.
//!
//! **Failure.** If the platform cannot be reached, delegations stay as they are and are sent, and their results looked for,
//! again, with growing pauses. If the store fails, a delegation is not made, and a change is tried again.
//!
//! Results are looked up (`poll`) and told (`tell`) by [`Delegations::run`], which sleeps while there is nothing to do.

mod hold;
mod poll;
mod tell;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use talaria_backoff::Backoff;
use talaria_turns::keys::HOST_MESSAGE;
use talaria_turns::{
    CallingTurn, ContextId, Delegation, DelegationState, DelegationStore, Store, StoreError, TaskKey,
    Timestamp, Turn, TurnEnd, TurnObserver,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::platform::Platform;
use crate::tickets::Tickets;

pub use hold::IdleTimeout;
pub(crate) use hold::{Link, WrongTicket};

/// Delegations that were told and stay readable.
const KEPT: usize = 64;

/// Pauses between two looks at the platform while delegations are open. Each new delegation starts them over.
const LOOKS: Backoff = Backoff::from_first(Duration::from_secs(1)).up_to(Duration::from_secs(15));

/// The pause between two looks at results that are still to be told.
const TELLING: Duration = Duration::from_millis(500);

/// Bounds of delegations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Delegations that are open at once.
    pub(crate) open: usize,
    /// Bytes of a result; the rest is cut off, with a note.
    pub(crate) result: usize,
    /// How long an answer is awaited.
    pub(crate) deadline: Duration,
}

/// The delegations of this workspace.
pub(crate) struct Delegations {
    platform: Arc<Platform>,
    workspace: String,
    store: Arc<dyn DelegationStore>,
    limits: Limits,
    tickets: Arc<Tickets>,
    link: OnceLock<Link>,
    // Held for one access at a time, never across an await.
    state: Mutex<State>,
    /// One change at a time, so that the store and `state` agree.
    changing: tokio::sync::Mutex<()>,
    /// Counts changes.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// All delegations by id. The ids are in the order in which the delegations were made.
    known: BTreeMap<Box<str>, Delegation>,
    /// Those that a call sends or waits for now, and how many calls do.
    awaited: HashMap<Box<str>, usize>,
    /// The contexts of the turns that run.
    running: HashMap<TaskKey, ContextId>,
    /// The tasks that are held open, and until when.
    held: HashMap<TaskKey, Instant>,
    /// The tasks whose results nobody waits for any more.
    given_up: HashSet<TaskKey>,
    /// The messages that tell results and are on their way.
    sending: HashSet<Box<str>>,
    /// The messages that have arrived as turns.
    arrived: HashSet<Box<str>>,
}

/// Why a delegation was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeginError {
    /// Too many are open.
    #[error("{0} delegations are open, which is the limit")]
    Full(usize),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A call that is concerned with a delegation; dropping it ends that.
struct Awaiting<'a>(&'a Delegations, Box<str>);

// === impl Delegations ===

impl Delegations {
    /// Reads the delegations of earlier processes. `log` shows which of their results have been told.
    pub(crate) async fn open(
        platform: Arc<Platform>,
        workspace: &str,
        (store, log): (Arc<dyn DelegationStore>, Arc<dyn Store>),
        limits: Limits,
        tickets: Arc<Tickets>,
    ) -> Result<Self, StoreError> {
        let known: BTreeMap<_, _> =
            store.delegations().await?.into_iter().map(|one| (one.id.clone(), one)).collect();
        let arrived = tell::arrived(&known, log.as_ref()).await?;
        let state = State { known, arrived, ..State::default() };
        Ok(Self {
            platform,
            workspace: workspace.to_owned(),
            store,
            limits,
            tickets,
            link: OnceLock::new(),
            state: Mutex::new(state),
            changing: tokio::sync::Mutex::default(),
            changed: watch::Sender::default(),
        })
    }

    /// Makes a delegation of this turn, sends it, and waits for its end for at most `wait`. Returns it as it is then; an ended one counts
    /// as told. A delegation that is not accepted at once is sent again later.
    pub(crate) async fn delegate(
        &self,
        (target, target_name): (&str, &str),
        task: &str,
        turn: Option<CallingTurn>,
        wait: Duration,
    ) -> Result<Delegation, BeginError> {
        let until = Instant::now() + wait;
        let (created, id) = (Timestamp::now(), uuid::Uuid::now_v7().to_string());
        let deadline = u64::try_from(self.limits.deadline.as_millis()).unwrap_or(u64::MAX);
        let delegation = Delegation {
            id: id.clone().into(),
            target: target.into(),
            target_name: target_name.into(),
            task: task.into(),
            context: turn.as_ref().map(|turn| turn.context.as_str().into()),
            turn: turn.map(|turn| TaskKey { owner: turn.owner, task: turn.task }),
            state: DelegationState::Sending,
            remote: None,
            result: None,
            created,
            until: Timestamp::from_millis(created.millis().saturating_add(deadline)),
            ended: None,
            message: None,
            told: None,
        };
        let _awaiting = Awaiting::new(self, &id);
        {
            let _changing = self.changing.lock().await;
            let open = self.count(|one| one.state.is_open());
            if open >= self.limits.open {
                return Err(BeginError::Full(open));
            }
            self.store.put_delegation(&delegation).await?;
            self.state().known.insert(delegation.id.clone(), delegation.clone());
        }
        self.send(&delegation).await;
        Ok(self.settled(&id, until).await.unwrap_or(delegation))
    }

    /// Returns a delegation; if it has ended, it counts as told.
    pub(crate) async fn look(&self, id: &str) -> Option<Delegation> {
        let _awaiting = Awaiting::new(self, id);
        self.settled(id, Instant::now()).await
    }

    /// The newest delegations, newest first.
    pub(crate) fn newest(&self, count: usize) -> Vec<Delegation> {
        self.state().known.values().rev().take(count).cloned().collect()
    }

    /// Stops waiting for an answer. Returns the delegation as it was before.
    pub(crate) async fn withdraw(&self, id: &str) -> Option<Delegation> {
        let before = self.state().known.get(id).cloned()?;
        self.change(id, |one| {
            if one.state.is_open() {
                (one.state, one.ended) = (DelegationState::Withdrawn, Some(Timestamp::now()));
            }
            one.told = one.told.or(Some(Timestamp::now()));
        })
        .await;
        Some(before)
    }

    /// Sends what is still to be sent, looks for results and tells them, until `shutdown`.
    pub(crate) async fn run(self: Arc<Self>, (tracker, shutdown): (TaskTracker, CancellationToken)) {
        let worker = Arc::clone(&self);
        let spawn = (tracker, shutdown.clone());
        shutdown.run_until_cancelled(worker.work(spawn)).await;
    }

    async fn work(self: Arc<Self>, spawn: (TaskTracker, CancellationToken)) {
        self.check_held().await;
        let (mut changed, mut looks, mut failures) = (self.changed.subscribe(), LOOKS, 0);
        let (mut known, mut look_at) = (0, Instant::now());
        loop {
            changed.mark_unchanged();
            self.note_arrivals().await;
            self.tend_held().await;
            let (open, newest) = self.open_now();
            if newest > known {
                (looks, known) = (LOOKS, newest);
                look_at = look_at.min(Instant::now() + looks.delay(1));
            }
            if open > 0 && Instant::now() >= look_at {
                self.poll(&mut failures).await;
                look_at = Instant::now() + looks.next_delay();
            }
            Arc::clone(&self).tell(&spawn).await;
            self.forget().await;
            let untold = self.count(|one| one.ended.is_some() && one.told.is_none());
            let (open, _) = self.open_now();
            let look = (open > 0).then_some(look_at);
            let tell = (untold > 0).then(|| Instant::now() + TELLING);
            let wake = [look, tell, self.next_release()].into_iter().flatten().min();
            let sleep = async {
                match wake {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep => {}
                _ = changed.changed() => {}
            }
        }
    }

    /// Ends a delegation that is open.
    async fn end(&self, id: &str, state: DelegationState, result: &str) {
        let result = cut(result, self.limits.result);
        self.change(id, |one| {
            if one.state.is_open() {
                (one.state, one.result, one.ended) = (state, Some(result.into()), Some(Timestamp::now()));
            }
        })
        .await;
    }

    /// Changes a delegation, in the store first. Returns whether that succeeded.
    async fn change(&self, id: &str, change: impl FnOnce(&mut Delegation)) -> bool {
        let _changing = self.changing.lock().await;
        let Some(before) = self.state().known.get(id).cloned() else { return false };
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return true;
        }
        if let Err(error) = self.store.put_delegation(&after).await {
            warn!(id, %error, "delegation not stored; will retry");
            return false;
        }
        self.state().known.insert(after.id.clone(), after);
        self.changed.send_modify(|changes| *changes += 1);
        true
    }

    /// Waits until a delegation has ended, and counts it as told then.
    async fn settled(&self, id: &str, until: Instant) -> Option<Delegation> {
        let mut changed = self.changed.subscribe();
        // The platform is asked soon after a new delegation, not only at the next look.
        self.changed.send_modify(|changes| *changes += 1);
        loop {
            let now = self.state().known.get(id).cloned()?;
            if !now.state.is_open() {
                if now.told.is_none() {
                    self.change(id, |one| one.told = Some(Timestamp::now())).await;
                }
                return Some(now);
            }
            if !matches!(timeout_at(until, changed.changed()).await, Ok(Ok(()))) {
                return self.state().known.get(id).filter(|one| one.state.is_open()).cloned().or(Some(now));
            }
        }
    }

    /// Deletes all but the newest that were told.
    async fn forget(&self) {
        let told: Vec<_> =
            self.state().known.values().filter(|one| one.told.is_some()).map(|one| one.id.clone()).collect();
        let old: Vec<_> = told.iter().rev().skip(KEPT).cloned().collect();
        if old.is_empty() {
            return;
        }
        let _changing = self.changing.lock().await;
        match self.store.delete_delegations(&old).await {
            Ok(()) => self.state().known.retain(|id, _| !old.contains(id)),
            Err(error) => warn!(%error, "old delegations not deleted; will retry"),
        }
    }

    /// How many delegations are open, and when the newest was made.
    fn open_now(&self) -> (usize, u64) {
        let newest = |state: &State| state.known.values().next_back().map_or(0, |one| one.created.millis());
        (self.count(|one| one.state.is_open()), newest(&self.state()))
    }

    fn count(&self, which: impl Fn(&Delegation) -> bool) -> usize {
        self.state().known.values().filter(|one| which(one)).count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnObserver for Delegations {
    fn began(&self, _: &str, turn: &Turn) {
        self.turn_began(turn);
        let message = turn.message.id.as_str();
        if message.starts_with(HOST_MESSAGE) {
            self.state().arrived.insert(message.into());
        }
        self.changed.send_modify(|changes| *changes += 1);
    }

    fn ended(&self, executor: &str, turn: &Turn, end: TurnEnd<'_>, _: Duration) {
        self.turn_ended(executor, turn, end);
        self.changed.send_modify(|changes| *changes += 1);
    }
}

// === impl Awaiting ===

impl<'a> Awaiting<'a> {
    fn new(of: &'a Delegations, id: &str) -> Self {
        *of.state().awaited.entry(id.into()).or_default() += 1;
        Self(of, id.into())
    }
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if let Some(calls) = state.awaited.get_mut(&self.1) {
            *calls -= 1;
            if *calls == 0 {
                state.awaited.remove(&self.1);
            }
        }
        drop(state);
        self.0.changed.send_modify(|changes| *changes += 1);
    }
}

/// The text, or its beginning with a note.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most);
    let kept = text.get(..end).unwrap_or_default();
    format!("{kept}\n[cut: {} of {} bytes]", kept.len(), text.len())
}
