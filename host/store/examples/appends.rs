//! Measures the stores: turns of three appends each, of a caller with a name, by 64 writers at once.
//!
//! `cargo run --release -p talaria-store --example appends [SECONDS] [WRITERS] [FOLDER] [STORE]`
#![expect(clippy::print_stdout, reason = "the numbers are for a person")]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use talaria_store::{Memory, Sqlite, SqliteConfig, Synchronous};
use talaria_turns::{
    Artifact, ContextId, Event, Message, Once, Onto, Part, Principal, REPLY, Role, State, Store, StoreError,
    TaskId, TaskKey,
};

const QUESTION: &str =
    "What do you know about the sandals of Perseus, and who made them? Two sentences will do.";
const ANSWER: &str = "The talaria were winged sandals of imperishable gold that carried Perseus over sea and land \
                      as fast as a bird. Hephaestus is said to have made them.";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let writers = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let only = arguments.next();
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let duration = Duration::from_secs(seconds);
    if wanted("memory") {
        measure("memory", Arc::new(Memory::new(1_000_000)), duration, writers).await?;
    }
    let modes = [("sqlite", Synchronous::Normal), ("sqlite-full", Synchronous::Full)];
    for (name, synchronous) in modes.into_iter().filter(|(name, _)| wanted(name)) {
        let file = folder.join(format!("talaria-appends-{}.db", std::process::id()));
        let store = Sqlite::open(&file, &SqliteConfig { synchronous, ..SqliteConfig::default() })?;
        measure(name, Arc::new(store), duration, writers).await?;
        std::fs::remove_file(&file)?;
    }
    Ok(())
}

async fn measure<S: Store>(
    name: &str,
    store: Arc<S>,
    duration: Duration,
    writers: usize,
) -> Result<(), Box<dyn Error>> {
    let (begin, cpu) = (Instant::now(), cpu_seconds());
    let mut set = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let store = Arc::clone(&store);
        set.spawn(async move {
            let owner = Principal::named(&format!("caller-{}", writer % 4));
            let mut times = Vec::new();
            while begin.elapsed() < duration {
                let started = Instant::now();
                turn(&*store, &owner).await?;
                times.push(started.elapsed());
            }
            Ok::<_, StoreError>(times)
        });
    }
    let mut times = Vec::new();
    while let Some(result) = set.join_next().await {
        times.extend(result??);
    }
    let (elapsed, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    times.sort_unstable();
    let turns = times.len();
    let at = |share: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a list")]
        let place = ((turns as f64) * share) as usize;
        times.get(place.min(turns.saturating_sub(1))).copied().unwrap_or_default()
    };
    let turns = turns as f64;
    println!(
        "{name:13} {:8.0} turns/s {:8.0} appends/s {:6.1} us CPU/turn  p50 {:?} p99 {:?} p99.9 {:?} max {:?}",
        turns / elapsed,
        3.0 * turns / elapsed,
        cpu / turns * 1e6,
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    let dropped = Instant::now();
    drop(store);
    println!("{:13} closed in {:?}", "", dropped.elapsed());
    Ok(())
}

/// A turn as the service writes it: accept the message once, begin, answer.
async fn turn(store: &dyn Store, owner: &Principal) -> Result<(), StoreError> {
    let key = TaskKey { owner: owner.clone(), task: TaskId::fresh() };
    let message = Arc::new(Message { role: Role::User, ..Message::agent(vec![Part::text(QUESTION)]) });
    let (once, context) = (Once::of(&message, None, None), ContextId::fresh());
    let accepted = Event::Accepted { message, executor: "echo".into(), metadata: None, trace: None };
    let onto = Onto::Nothing { context: &context, host_made: true };
    store.write(&key, onto, &[Arc::new(accepted)], Some(&once)).await?;
    store.append(&key, 1, &[Event::moved(State::Working)]).await?;
    let artifact = Arc::new(Artifact::new(REPLY, vec![Part::text(ANSWER)]));
    let reply = Event::Artifact { artifact, append: false, last: true };
    store.append(&key, 2, &[reply, Event::ended(State::Completed, Vec::new(), None)]).await
}

/// The processor time of this process, all threads, from `/proc`; 0 if there is no `/proc`.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks =
        |place: usize| fields.get(place).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / 100.0
}
