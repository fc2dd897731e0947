//! A list of tasks in a store that has many, against one that has few: a page must cost what is on it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use talaria_store::{Sqlite, SqliteConfig};
use talaria_turns::{
    Artifact, ContextId, Event, Message, Part, Principal, Query, REPLY, Role, State, Store, StoreError,
    TaskId, TaskKey,
};
use tokio::task::JoinSet;

use crate::table::{Row, Target, median};

/// The tasks of the two stores.
const FEW: usize = 1_000;
const MANY: usize = 100_000;
/// The writers that create them, so that writes share commits.
const WRITERS: usize = 64;
/// The tasks on a page.
const PAGE: usize = 50;
const LISTS: usize = 100;

pub(crate) async fn pages() -> Result<Vec<Row>> {
    // Beside the binary, because the folder for temporary files may not be on disk.
    let here = std::env::current_exe()?;
    let folder = tempfile::Builder::new()
        .prefix("talaria-lists-")
        .tempdir_in(here.parent().unwrap_or(Path::new(".")))?;
    let mut stores = Vec::new();
    for tasks in [FEW, MANY] {
        let store = Sqlite::open(&folder.path().join(format!("{tasks}.db")), &SqliteConfig::default())?;
        stores.push(filled(store, tasks).await?);
    }
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..LISTS {
        for (store, times) in stores.iter().zip(&mut times) {
            times.push(list(store).await?);
        }
    }
    let [few, many] = times.each_mut().map(|times| median(times));
    Ok(vec![
        Row::new("ListTasks with 100,000 tasks, of the time with 1,000", many / few, "", Target::Under(2.0))
            .note(format!(
                "{many:.2} to {few:.2} ms in SQLite; medians of {LISTS} first pages of {PAGE}, in turns"
            )),
    ])
}

/// Lists the first page; returns the milliseconds.
async fn list(store: &Sqlite) -> Result<f64> {
    let query =
        Query { context: None, state: None, since: None, after: None, limit: PAGE, bytes: usize::MAX };
    let begin = Instant::now();
    let page = store.list(&Principal::anyone(), &query).await?;
    let took = begin.elapsed().as_secs_f64() * 1e3;
    anyhow::ensure!(page.tasks.len() == PAGE, "a page has {} tasks", page.tasks.len());
    Ok(took)
}

/// Fills a store with finished tasks, each in a context of its own.
async fn filled(store: Sqlite, tasks: usize) -> Result<Arc<Sqlite>> {
    let store = Arc::new(store);
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            for _ in (writer..tasks).step_by(WRITERS) {
                create(&store).await?;
            }
            Ok::<_, StoreError>(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    Ok(store)
}

/// Creates a task as a turn leaves it.
async fn create(store: &Sqlite) -> Result<(), StoreError> {
    let key = TaskKey { owner: Principal::anyone(), task: TaskId::fresh() };
    let message = Message { role: Role::User, ..Message::agent(vec![Part::text("What do you know?")]) };
    let accepted =
        Event::Accepted { message: message.into(), executor: "echo".into(), metadata: None, trace: None };
    store.create(&key, &ContextId::fresh(), &[accepted]).await?;
    let artifact = Artifact::new(REPLY, vec![Part::text("Less than I would like to.")]).into();
    let reply = Event::Artifact { artifact, append: false, last: true };
    let events = [Event::moved(State::Working), reply, Event::ended(State::Completed, Vec::new(), None)];
    store.append(&key, 1, &events).await
}
