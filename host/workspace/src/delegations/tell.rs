//! Tells the agent results that came after the call that delegated.
//!
//! If the task that delegated is held open, its results become its next message, once all of them are there (`hold`).
//! Otherwise they become a message to the own workspace, through the platform's proxy, as
//! [`SelfPrompts`](crate::SelfPrompts) sends them: the platform shows it, and it comes back as an ordinary turn, in the
//! conversation that delegated if that is known. Results of one conversation that come within [`GATHER`] are one message.
//!
//! **Once.** The id of the message is stored with the results before it is sent. They count as told when the turn with that
//! message begins, or when the platform accepts the message. After a restart the log of turns shows whether the message
//! arrived. If the host is killed after the platform took the message and before it came back, it is sent again with the same
//! id, and the host recognises the copy ([`HOST_MESSAGE`]).
//!
//! While the turn that delegated still runs, it can ask with `check_task_status`, so its results are held back, for at most
//! [`HOLD`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use talaria_backoff::Backoff;
use talaria_turns::keys::HOST_MESSAGE;
use talaria_turns::{Begin, Delegation, DelegationState, Event, Store, StoreError, TaskKey, Timestamp};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::{Delegations, State};
use crate::platform::CallError;
use crate::tools::untrusted;

/// How long results are gathered.
const GATHER: Duration = Duration::from_secs(2);

/// How long the results of a running turn are held back: the default deadline of a turn.
const HOLD: Duration = Duration::from_secs(600);

/// The time that the turn with the results may take.
const TURN: Duration = Duration::from_secs(600);

/// How long a message is tried, before its results can only be asked for.
const GIVE_UP: Duration = Duration::from_secs(24 * 3600);

/// Bytes of one answer in a message; the rest is read with `check_task_status`.
const SHOWN: usize = 16 << 10;

/// Events of the log that are read at a time, and in all, to find the messages that arrived.
const SCAN: (usize, usize) = (1000, 20_000);

/// A message that is to be sent.
struct Due {
    id: Box<str>,
    to: Destination,
    results: Vec<Delegation>,
}

/// Where results go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Destination {
    /// To the held task that waits for them.
    Task(TaskKey),
    /// To this conversation; without one to the workspace.
    Conversation(Option<Box<str>>),
}

/// Returns which messages of these delegations have arrived as turns.
pub(super) async fn arrived(
    known: &BTreeMap<Box<str>, Delegation>,
    log: &dyn Store,
) -> Result<HashSet<Box<str>>, StoreError> {
    let sent = known.values().filter(|one| one.told.is_none()).filter_map(|one| one.message.clone());
    let sent: HashSet<Box<str>> = sent.collect();
    let mut found = HashSet::new();
    if sent.is_empty() {
        return Ok(found);
    }
    let (mut begin, mut read) = (Begin::Last(SCAN.1), 0);
    loop {
        let events = log.log(begin, SCAN.0).await?;
        read += events.len();
        let ids = events.iter().filter_map(|logged| match logged.entry.event.as_ref() {
            Event::Accepted { message, .. } => Some(message.id.as_str()),
            _ => None,
        });
        found.extend(ids.filter_map(|id| sent.get(id).cloned()));
        match events.last() {
            Some(last) if events.len() == SCAN.0 && read < 4 * SCAN.1 => begin = Begin::At(last.number + 1),
            _ => return Ok(found),
        }
    }
}

// === impl Delegations ===

impl Delegations {
    /// Counts the results as told whose messages have arrived.
    pub(super) async fn note_arrivals(&self) {
        let due: Vec<(Box<str>, Box<str>)> = {
            let state = self.state();
            let mine = |one: &Delegation| {
                let message = one.message.clone().filter(|message| state.arrived.contains(message))?;
                one.told.is_none().then(|| (one.id.clone(), message))
            };
            state.known.values().filter_map(mine).collect()
        };
        for (id, _) in &due {
            self.change(id, |one| one.told = one.told.or(Some(Timestamp::now()))).await;
        }
        let mut state = self.state();
        let State { arrived, known, .. } = &mut *state;
        arrived.retain(|message| {
            known.values().any(|one| one.told.is_none() && one.message.as_ref() == Some(message))
        });
    }

    /// Sends the messages that are due.
    pub(super) async fn tell(self: Arc<Self>, (tracker, shutdown): &(TaskTracker, CancellationToken)) {
        for Due { id, to, results } in self.due().await {
            self.state().sending.insert(id.clone());
            let (delegations, shutdown) = (Arc::clone(&self), shutdown.clone());
            tracker.spawn(async move {
                let telling = async {
                    match &to {
                        Destination::Task(key) => delegations.send_to_task(key, &id, &results).await,
                        Destination::Conversation(context) => {
                            delegations.send_message(&id, context.as_deref(), &results).await;
                        }
                    }
                };
                shutdown.run_until_cancelled(Box::pin(telling)).await;
                delegations.state().sending.remove(&id);
            });
        }
    }

    /// The messages that are due. The ids of new ones are in the store.
    async fn due(&self) -> Vec<Due> {
        let mut fresh: HashMap<Destination, Vec<Delegation>> = HashMap::new();
        let mut sent: BTreeMap<Box<str>, (Destination, Vec<Delegation>)> = BTreeMap::new();
        {
            let state = self.state();
            let untold = state.known.values().filter(|one| one.ended.is_some() && one.told.is_none());
            for one in untold.filter(|one| !state.awaited.contains_key(&one.id)) {
                let to = state.destination(one);
                match &one.message {
                    Some(message) if state.sending.contains(message) || state.arrived.contains(message) => {}
                    Some(message) => {
                        sent.entry(message.clone()).or_insert((to, Vec::new())).1.push(one.clone());
                    }
                    None => fresh.entry(to).or_default().push(one.clone()),
                }
            }
            fresh.retain(|to, results| state.is_due(to, results));
        }
        let mut due = Vec::new();
        for (to, results) in fresh {
            let id: Box<str> = format!("{HOST_MESSAGE}{}", uuid::Uuid::new_v4().simple()).into();
            let mut all = true;
            for one in &results {
                all &= self.change(&one.id, |one| one.message = Some(id.clone())).await;
            }
            if all {
                due.push(Due { id, to, results });
            }
        }
        due.extend(sent.into_iter().map(|(id, (to, results))| Due { id, to, results }));
        due
    }

    /// Sends a message until it has arrived or there is no hope.
    async fn send_message(&self, id: &str, context: Option<&str>, results: &[Delegation]) {
        let mut message = json!({
            "role": "user", "messageId": id, "parts": [{ "kind": "text", "text": text(results, 0) }],
        });
        if let (Some(context), Some(message)) = (context, message.as_object_mut()) {
            message.insert("contextId".into(), json!(context));
        }
        let params = json!({ "message": message, "metadata": { "source_type": "self-delegation-results" } });
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "message/send", "params": params });
        let path = format!("/workspaces/{}/a2a", self.workspace);
        let mut backoff = Backoff::from_first(Duration::from_secs(1)).up_to(Duration::from_secs(60));
        let began = tokio::time::Instant::now();
        loop {
            let error = match self.platform.post(&path, &body, TURN).await {
                // An answer that is not JSON is the proxy's or the turn's; the message has arrived.
                Ok(_) | Err(CallError::NotJson(_)) => break,
                Err(error) => error,
            };
            if self.state().arrived.contains(id) {
                return;
            }
            if began.elapsed() > GIVE_UP {
                warn!(%error, message = id, "results of delegations not told; the agent can still ask for them");
                break;
            }
            let delay = backoff.next_delay();
            info!(%error, message = id, ?delay, "results of delegations not told; will retry");
            tokio::time::sleep(delay).await;
        }
        self.mark_told(results).await;
    }
}

// === impl State ===

impl State {
    /// Where the result of a delegation goes.
    fn destination(&self, one: &Delegation) -> Destination {
        match one.turn.as_ref().filter(|key| self.held.contains_key(key)) {
            Some(key) => Destination::Task(key.clone()),
            None => Destination::Conversation(one.context.clone()),
        }
    }

    /// Whether these results are to be told now.
    fn is_due(&self, to: &Destination, results: &[Delegation]) -> bool {
        let context = match to {
            Destination::Task(key) => {
                let is_missing = |one: &Delegation| one.state.is_open() && one.turn.as_ref() == Some(key);
                let is_over = self.held.get(key).is_none_or(|until| *until <= tokio::time::Instant::now());
                return is_over || !self.known.values().any(is_missing);
            }
            Destination::Conversation(context) => context,
        };
        let now = Timestamp::now();
        let ended = results.iter().filter_map(|one| one.ended);
        let ages = ended.map(|at| now.millis().saturating_sub(at.millis()));
        let (youngest, oldest) = ages.fold((u64::MAX, 0), |(y, o), age| (y.min(age), o.max(age)));
        let is_running = match context {
            Some(context) => self.running.values().any(|running| running.as_str() == &**context),
            None => !self.running.is_empty(),
        };
        let over = |age: u64, time: Duration| u128::from(age) >= time.as_millis();
        over(youngest, GATHER) && (!is_running || over(oldest, HOLD))
    }
}

/// The text of a message with results, of which `open` are still missing.
pub(super) fn text(results: &[Delegation], open: usize) -> String {
    let mut text = String::from("Results of tasks that you delegated earlier:\n");
    for one in results {
        let how = match one.state {
            DelegationState::Completed => "completed",
            _ => "failed",
        };
        let result = one.result.as_deref().unwrap_or_default();
        let end = result.floor_char_boundary(SHOWN);
        let shown = result.get(..end).unwrap_or_default();
        text.push_str(&format!(
            "\nDelegation {} to {} {how}. The task was: {}\n{}\n",
            one.id,
            untrusted::line(&one.target_name, 80),
            untrusted::line(&one.task, 200),
            untrusted::wrap(&one.target_name, shown),
        ));
        if shown.len() < result.len() {
            text.push_str(&format!(
                "This is the beginning of {} bytes; read on with check_task_status (task_id {}, offset {}).\n",
                result.len(),
                one.id,
                shown.len(),
            ));
        }
    }
    if open > 0 {
        text.push_str(&format!(
            "\n{open} of your delegations have no answer yet; it comes as another message.\n"
        ));
    }
    text.push_str("\nCarry on with the work that waited for them, and report what the caller needs to know.");
    text
}
