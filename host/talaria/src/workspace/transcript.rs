//! What `GET /transcript` shows: what the agent itself remembers, where the executor that takes the turns (or the one that
//! would in its stead) shows it, else what passed through the bridge.
//!
//! A reader stays with the record that it began with: numbers of the agent's lines begin at [`AGENT`], those of the bridge are
//! below. While the agent's record cannot be read, one who begins gets the bridge's, and one who reads on gets nothing new;
//! `source` says why.
//!
//! Bounds: one reading of the agent's record at a time, within what the engine gives it; [`ANSWER`] bytes of lines.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_engine::Line;
use talaria_turns::StoreError;
use talaria_workspace::{Page, Transcript};
use tokio::sync::Mutex;

use talaria_executors::{Executors, LoadedExecutor, Table};

/// Where the numbers of the agent's lines begin. JavaScript, which the platform's canvas is written in, counts to twice that.
const AGENT: u64 = 1 << 52;

/// Most bytes of one answer: the platform's proxy takes 1 MiB.
const ANSWER: usize = 900 << 10;

/// What names the bridge's record.
const BRIDGE: &str = "talaria: events of tasks";

/// Both records.
pub(super) struct Records {
    bridge: Arc<Transcript>,
    executors: Arc<Executors>,
    reading: Mutex<()>,
}

/// Which record is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The agent's, or else the bridge's.
    Any,
    /// The bridge's.
    Bridge,
}

// === impl Records ===

impl Records {
    pub(super) fn new(bridge: Arc<Transcript>, executors: Arc<Executors>) -> Self {
        Self { bridge, executors, reading: Mutex::new(()) }
    }

    /// At most `limit` lines from the number `since` on, and which record they are of.
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

/// The executor whose agent is looked at.
fn shown(table: &Table) -> Option<(String, Arc<LoadedExecutor>)> {
    let default = table.default_name();
    let fallback = table.entry(default).and_then(|seat| seat.fallback.as_ref());
    let fallback = fallback.and_then(|name| Some((name, table.entry(name)?.current.as_ref()?)));
    let mut able = [table.stand_in(default), fallback].into_iter().flatten();
    let (name, loaded) =
        able.find(|(_, loaded)| loaded.executor.component().has_transcript() && !loaded.is_quarantined())?;
    Some((name.to_string(), Arc::clone(loaded)))
}

/// A line in the shape of the bridge's own.
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
