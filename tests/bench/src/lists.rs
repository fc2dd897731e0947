//! A list of tasks in a store that has many, against one that has few: a page must cost what is on it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use talaria_egress::{Egress, Request};
use talaria_store::{Sqlite, SqliteConfig};
use talaria_turns::{
    Artifact, ContextId, Event, Message, Part, Principal, Query, REPLY, Role, State, Store, StoreError,
    TaskId, TaskKey,
};
use tokio::task::JoinSet;

use crate::gateway::Gateway;
use crate::process::Bridge;
use crate::table::{Row, Target, median};

/// The tasks of the two stores.
const FEW: usize = 1_000;
const MANY: usize = 100_000;
/// The writers that create them, so that writes share commits.
const WRITERS: usize = 64;
/// The tasks on a page.
const PAGE: usize = 50;
const LISTS: usize = 100;

pub(crate) async fn pages(bridge: &Bridge) -> Result<Vec<Row>> {
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
    drop(stores);
    let listed = of_all_callers(bridge, &folder.path().join(format!("{MANY}.db"))).await?;
    let [few, many] = times.each_mut().map(|times| median(times));
    Ok(vec![
        Row::new("ListTasks with 100,000 tasks, of the time with 1,000", many / few, "", Target::Under(2.0))
            .note(format!(
                "{many:.2} to {few:.2} ms in SQLite; medians of {LISTS} first pages of {PAGE}, in turns"
            )),
        listed,
    ])
}

/// The operator's list, through the admin server of a bridge with this store.
async fn of_all_callers(bridge: &Bridge, store: &Path) -> Result<Row> {
    let gateway = Gateway::fast().await?;
    let (mut server, admin) = bridge.start_on(&gateway.base_url(), store)?;
    server.ready().await?;
    let origin = format!("http://{admin}");
    let client = Egress::new(talaria_egress::Config::default()).origin_client("bench", &origin.parse()?);
    let mut times = Vec::new();
    let mut slowest: f64 = 0.0;
    for query in ["", "&state=failed", "&executor=none", "&search=know", "&search=nothing"] {
        for _ in 0..LISTS / 5 {
            let url = format!("{origin}/turns?limit={PAGE}{query}");
            let begin = Instant::now();
            let response = client.fetch(Request { method: "GET".into(), url, ..Request::default() }).await?;
            let took = begin.elapsed().as_secs_f64() * 1e3;
            anyhow::ensure!(response.status == 200, "the list answered {}", response.status);
            if query.is_empty() {
                times.push(took);
            }
            slowest = slowest.max(took);
        }
    }
    let row = Row::new("turns of all callers, of 100,000", median(&mut times), "ms", Target::Under(100.0));
    Ok(row.note(format!(
        "medians of {} first pages of {PAGE} through the admin server; {slowest:.1} ms for the slowest of all, with filters \
         that find nothing",
        LISTS / 5
    )))
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
