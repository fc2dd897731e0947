//! `GET /events`: what changes, as server-sent events.
//!
//! | event | data |
//! |---|---|
//! | `turn` | a row as in `GET /turns`, within 100 ms of a change, one for all changes of a task meanwhile |
//! | `executors` | `{}`: read `/executors` again |
//! | `stats` | the bucket that ended, every ten seconds |
//! | `reset` | `{}`: this reader was behind and missed something; read everything again |
//!
//! A comment every 15 seconds keeps the connection open. The readers are bounded, and so is how far one may be behind; see
//! [`crate::journal`]. Changes of tasks without a turn, such as a cancel of a task that waits for its caller, are found by
//! reading the newest rows again every second, while somebody watches.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use talaria_executors::Executors;
use talaria_turns::{State, Store, Survey, TaskId, Timestamp};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::reply::{Reply, failure};
use super::{Host, turns};
use crate::journal::{EVERY, Journal, PAUSE, Watching};

/// The longest silence.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How often the newest rows are read again.
const LOOK: Duration = Duration::from_secs(1);

/// The rows that are read again.
const NEWEST: usize = 50;

/// The tasks of one round; the rest follow in the next.
const ROUND: usize = 200;

/// Answers with a stream.
pub(super) fn watch(host: &Host, closing: CancellationToken) -> Reply {
    let Some(watching) = host.journal.changes().watch() else {
        let message = "too many read /events already; close a page of the console";
        return failure(StatusCode::TOO_MANY_REQUESTS, "RESOURCE_EXHAUSTED", message);
    };
    // Sent at once, so that a reader knows that it is connected.
    let first = Some(Bytes::from_static(b": watching\n\n"));
    let frames = stream::unfold((watching, closing, first), async |(mut watching, closing, first)| {
        let frame = match first {
            Some(frame) => frame,
            None => closing.run_until_cancelled(next(&mut watching)).await??,
        };
        Some((Ok(Frame::data(frame)), (watching, closing, None)))
    });
    let mut reply = Response::new(StreamBody::new(Box::pin(frames)).boxed_unsync());
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    let buffering = HeaderName::from_static("x-accel-buffering");
    reply.headers_mut().insert(buffering, HeaderValue::from_static("no"));
    reply
}

/// The next frame; `None` at the end.
async fn next(watching: &mut Watching) -> Option<Bytes> {
    match timeout(KEEP_ALIVE, watching.frames.recv()).await {
        Err(_) => Some(Bytes::from_static(b": keep-alive\n\n")),
        Ok(Ok(frame)) => Some(frame),
        Ok(Err(RecvError::Lagged(_))) => {
            // What it still could read is older than what it will read again.
            watching.frames = watching.frames.resubscribe();
            Some(frame("reset", &json!({})))
        }
        Ok(Err(RecvError::Closed)) => None,
    }
}

/// Tells those who watch to read the executors again.
pub(super) fn executors_changed(journal: &Journal) {
    journal.changes().publish(frame("executors", &json!({})));
}

fn frame(event: &str, data: &Value) -> Bytes {
    format!("event: {event}\ndata: {data}\n\n").into()
}

/// Publishes changes until `shutdown`.
pub(crate) async fn publish(
    journal: Arc<Journal>,
    (store, executors): (Arc<dyn Store>, Arc<Executors>),
    memory: impl Fn() -> usize + Send,
    shutdown: CancellationToken,
) {
    let mut every = interval(EVERY);
    let mut look = interval(LOOK);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    every.tick().await;
    let publishing = async {
        let (mut known, mut state) = (HashMap::new(), seen(&executors));
        loop {
            tokio::select! {
                () = journal.changes().changed() => {
                    round(&journal, &*store).await;
                    sleep(PAUSE).await;
                }
                _ = every.tick() => {
                    journal.tick(memory());
                    if let Some(bucket) = journal.stats(|stats| stats.last()) {
                        journal.changes().publish(frame("stats", &bucket));
                    }
                }
                _ = look.tick(), if journal.changes().is_watched() => {
                    look_again(&journal, &*store, &mut known).await;
                    let now = seen(&executors);
                    if now != state {
                        state = now;
                        executors_changed(&journal);
                    }
                }
            }
        }
    };
    shutdown.run_until_cancelled(publishing).await;
}

/// Publishes the tasks that changed.
async fn round(journal: &Journal, store: &dyn Store) {
    for (number, task) in journal.changes().take().into_iter().enumerate() {
        if number >= ROUND {
            journal.changes().touch(&task);
            continue;
        }
        if let Ok(Some(row)) = store.find(&task).await {
            journal.changes().publish(frame("turn", &turns::row(&row, journal)));
        }
    }
}

/// Publishes the newest tasks whose status is another than the last time.
async fn look_again(journal: &Journal, store: &dyn Store, known: &mut HashMap<TaskId, (State, Timestamp)>) {
    let Ok(page) = store.survey(&Survey { limit: NEWEST, ..Survey::default() }).await else { return };
    let mut now = HashMap::with_capacity(NEWEST);
    for row in page.rows {
        let status = (row.state, row.at);
        if !known.is_empty() && known.get(&row.key.task) != Some(&status) {
            journal.changes().publish(frame("turn", &turns::row(&row, journal)));
        }
        now.insert(row.key.task, status);
    }
    *known = now;
}

/// What the page shows of executors and may change without a request.
fn seen(executors: &Executors) -> Vec<String> {
    let table = executors.table();
    let entries = table.entries().map(|(name, entry)| {
        let version = |loaded: &Arc<talaria_executors::LoadedExecutor>| {
            format!("{} {:?}", loaded.executor.component().digest(), loaded.readiness())
        };
        let (current, waiting) = (entry.current.as_ref().map(version), entry.waiting.as_ref().map(version));
        format!("{name} {current:?} {waiting:?} {:?} {:p}", entry.refused, entry)
    });
    entries.collect()
}
