//! The content of `GET /transcript`: the agent's own record, if the executor that takes the turns (or its fallback) can read
//! it, else the host's record of tasks.
//!
//! A reader stays with the record that it started with: line numbers of the agent's record start at [`AGENT`], and those of
//! the host's record are below it. While the agent's record cannot be read, a new reader gets the host's record, and a
//! reader of the agent's record gets no new lines; `source` gives the reason.
//!
//! Bounds: one read of the agent's record at a time, within the limits of the executor; [`ANSWER`] bytes of lines.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_engine::Line;
use talaria_turns::StoreError;
use talaria_workspace::{Page, Transcript};
use tokio::sync::Mutex;

use talaria_executors::{Executors, LoadedExecutor, Table};

/// The first line number of the agent's record. It is exact in JavaScript, which the platform's canvas is written in.
const AGENT: u64 = 1 << 52;

/// The largest size of one response in bytes; the platform's proxy accepts 1 MiB.
const ANSWER: usize = 900 << 10;

/// The name of the host's record in `source`.
const BRIDGE: &str = "talaria: events of tasks";

/// Both records.
pub(super) struct Records {
    bridge: Arc<Transcript>,
    executors: Arc<Executors>,
    reading: Mutex<()>,
}

/// The record that a reader requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The agent's record, else the host's.
    Any,
    /// The host's record.
    Bridge,
}

// === impl Records ===

impl Records {
    pub(super) fn new(bridge: Arc<Transcript>, executors: Arc<Executors>) -> Self {
        Self { bridge, executors, reading: Mutex::new(()) }
    }

    /// Returns at most `limit` lines from the number `since` on, and the name of their record.
    pub(super) async fn read(
        &self,
        wanted: Wanted,
        since: u64,
        limit: u32,
    ) -> Result<(Page, String), StoreError> {
        let mut source = BRIDGE.to_owned();
        if wanted == Wanted::Any
            && (since == 0 || since >= AGENT)
            && let Some((name, shown)) = shown(&self.executors.table())
        {
            let read = self.agent(&shown, since.saturating_sub(AGENT), limit).await;
            match read {
                Ok(page) => return Ok((page, format!("{name}: what the agent remembers"))),
                Err(why) => source = format!("{BRIDGE}; {name} cannot read what the agent remembers: {why}"),
            }
        }
        if since >= AGENT {
            return Ok((Page { lines: Vec::new(), cursor: since, more: false }, source));
        }
        Ok((self.bridge.read(since, limit as usize).await?, source))
    }

    async fn agent(&self, shown: &LoadedExecutor, since: u64, limit: u32) -> Result<Page, String> {
        let _alone = self.reading.lock().await;
        let since = u32::try_from(since).unwrap_or(u32::MAX);
        let read = shown.executor.transcript(since, limit).await.map_err(|failure| failure.message)?;
        let mut page = Page { lines: Vec::new(), cursor: AGENT + u64::from(since), more: read.more };
        let mut bytes = 0;
        for line in &read.lines {
            let shown = show(line);
            bytes += shown.to_string().len();
            if bytes > ANSWER && !page.lines.is_empty() {
                page.more = true;
                break;
            }
            page.lines.push(shown);
            page.cursor = AGENT + u64::from(line.number) + 1;
        }
        Ok(page)
    }
}

/// Returns the executor whose agent's record is read.
fn shown(table: &Table) -> Option<(String, Arc<LoadedExecutor>)> {
    let default = table.default_name();
    let fallback = table.entry(default).and_then(|entry| entry.fallback.as_ref());
    let fallback = fallback.and_then(|name| Some((name, table.entry(name)?.current.as_ref()?)));
    let mut able = [table.stand_in(default), fallback].into_iter().flatten();
    let (name, loaded) =
        able.find(|(_, loaded)| loaded.executor.component().has_transcript() && !loaded.is_quarantined())?;
    Some((name.to_string(), Arc::clone(loaded)))
}

/// Encodes a line in the shape of the host's record.
fn show(line: &Line) -> Value {
    let at = line.at.map(|at| at.to_string());
    let mut shown = json!({
        "type": line.kind, "timestamp": at, "session_id": line.session, "content": line.text,
    });
    if let (Value::Object(shown), Some(metadata)) = (&mut shown, &line.metadata) {
        shown.insert("metadata".into(), Value::Object(metadata.clone()));
    }
    shown
}
