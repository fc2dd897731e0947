//! `talaria tasks`: the turns of all callers of a running host.

use std::fmt::{self, Write as _};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::Value;

use super::waterfall::waterfall;
use super::{RunningHost, columns, line, number, text, time};
use crate::cli::TaskFilter;
use crate::output::{self, Format};

/// Rows of tasks.
#[derive(Debug, Serialize)]
pub(crate) struct List {
    turns: Vec<Value>,
    next: Option<String>,
}

/// One task with all that is known of it.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Shown(Value);

/// A task that was cancelled.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Cancelled(Value);

/// A change, as one line.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Change(Value);

/// The rows that one request asks for.
const PAGE: usize = 200;

// === impl List ===

impl List {
    pub(crate) async fn ask(host: &RunningHost, filter: &TaskFilter, limit: usize) -> anyhow::Result<Self> {
        let (mut turns, mut next) = (Vec::new(), filter.after.clone());
        loop {
            let most = (limit - turns.len()).clamp(1, PAGE);
            let mut page = host.get(&format!("/turns?{}", query(filter, most, next.as_deref()))).await?;
            if let Some(Value::Array(rows)) = page.get_mut("turns").map(Value::take) {
                turns.extend(rows);
            }
            next = page.get("next").and_then(Value::as_str).map(str::to_owned);
            if turns.len() >= limit || next.is_none() {
                return Ok(Self { turns, next });
            }
        }
    }
}

fn query(filter: &TaskFilter, limit: usize, after: Option<&str>) -> String {
    let mut query = format!("limit={limit}");
    let pairs = [
        ("state", filter.state.as_deref()),
        ("executor", filter.executor.as_deref()),
        ("owner", filter.owner.as_deref()),
        ("context", filter.context.as_deref()),
        ("search", filter.search.as_deref()),
        ("after", after),
    ];
    for (key, value) in pairs {
        if let Some(value) = value {
            let _ = write!(query, "&{key}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
    }
    query
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.turns.is_empty() {
            return f.write_str("no tasks");
        }
        let head = ["TASK", "STATE", "EXECUTOR", "OWNER", "AT", "TOOK", "TEXT"].map(str::to_owned).to_vec();
        let rows: Vec<_> = std::iter::once(head).chain(self.turns.iter().map(cells)).collect();
        f.write_str(&columns(&rows))?;
        if let Some(next) = &self.next {
            write!(f, "\nmore: --after {next}")?;
        }
        Ok(())
    }
}

fn cells(row: &Value) -> Vec<String> {
    let took = match row.pointer("/timeline/total_ms").and_then(Value::as_f64) {
        Some(millis) => time(millis),
        None => "-".to_owned(),
    };
    let owner = match text(row, "/owner") {
        "" => "-",
        owner => owner,
    };
    vec![
        text(row, "/task").to_owned(),
        text(row, "/state").to_owned(),
        line(text(row, "/executor"), 24),
        line(owner, 24),
        text(row, "/at").to_owned(),
        took,
        line(text(row, "/text"), 60),
    ]
}

// === impl Shown ===

impl Shown {
    pub(crate) async fn ask(host: &RunningHost, task: &str) -> anyhow::Result<Self> {
        Ok(Self(host.get(&format!("/turns/{}", utf8_percent_encode(task, NON_ALPHANUMERIC))).await?))
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(task) = self;
        let rows =
            ["task", "context", "owner", "executor", "state", "at", "trace_id"].iter().filter_map(|key| {
                let value = text(task, &format!("/{key}"));
                (!value.is_empty()).then(|| vec![(*key).to_owned(), line(value, 120)])
            });
        f.write_str(&columns(&rows.collect::<Vec<_>>()))?;
        let list = |key: &str| task.get(key).and_then(Value::as_array).into_iter().flatten();
        for message in list("messages") {
            write!(f, "\n\n{}:", text(message, "/role"))?;
            for part in message.get("parts").and_then(Value::as_array).into_iter().flatten() {
                match part.get("text").and_then(Value::as_str) {
                    Some(text) => write!(f, " {}", text.trim())?,
                    None => write!(f, " [{}]", line(&part.to_string(), 200))?,
                }
            }
        }
        for artifact in list("artifacts") {
            write!(f, "\n\n{}:", line(text(artifact, "/id"), 80))?;
            for part in artifact.get("parts").and_then(Value::as_array).into_iter().flatten() {
                match part.get("text").and_then(Value::as_str) {
                    Some(text) => write!(f, " {}", text.trim())?,
                    None => write!(f, " [{}]", line(&part.to_string(), 200))?,
                }
            }
        }
        for timeline in list("timelines") {
            write!(f, "\n\n{}", waterfall(timeline))?;
        }
        if list("timelines").next().is_none() {
            f.write_str(
                "\n\nno timeline: the turn ended before the host was started, or long ago; its events:",
            )?;
            for event in list("events") {
                let (at, kind) = (text(event, "/at"), text(event, "/kind"));
                write!(f, "\n  {at}  {kind:<10} {}", line(text(event, "/summary"), 100))?;
            }
        }
        Ok(())
    }
}

// === impl Cancelled ===

impl Cancelled {
    pub(crate) async fn ask(host: &RunningHost, task: &str) -> anyhow::Result<Self> {
        let path = format!("/turns/{}/cancel", utf8_percent_encode(task, NON_ALPHANUMERIC));
        host.send("POST", &path).await.map(Self)
    }
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", text(&self.0, "/task"), text(&self.0, "/state"))
    }
}

// === watch ===

/// Prints changes until the host ends the stream. With a task, until it has ended. As JSON, each is one line.
pub(crate) async fn watch(host: &RunningHost, task: Option<&str>, format: Format) -> anyhow::Result<()> {
    let mut events = host.watch().await?;
    // What is over already does not change any more.
    if let Some(task) = task {
        let shown = Shown::ask(host, task).await?;
        print(format, &Change(shown.0.clone()))?;
        if is_over(text(&shown.0, "/state")) {
            return Ok(());
        }
    }
    while let Some(event) = events.next_event().await? {
        if event.event != "turn" {
            continue;
        }
        let Ok(row) = serde_json::from_str::<Value>(&event.data) else { continue };
        if task.is_some_and(|task| text(&row, "/task") != task) {
            continue;
        }
        let is_last = task.is_some() && is_over(text(&row, "/state"));
        print(format, &Change(row))?;
        if is_last {
            break;
        }
    }
    Ok(())
}

fn print(format: Format, change: &Change) -> anyhow::Result<()> {
    match format {
        Format::Text => output::print(format, change)?,
        Format::Json => output::line(&change.0)?,
    }
    Ok(())
}

fn is_over(state: &str) -> bool {
    matches!(state, "completed" | "failed" | "canceled" | "rejected")
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(row) = self;
        let (task, state, executor) = (text(row, "/task"), text(row, "/state"), text(row, "/executor"));
        write!(f, "{}  {task}  {state:<14} {}", text(row, "/at"), line(executor, 24))?;
        let total = number(row, "/timeline/total_ms");
        if total > 0.0 {
            write!(f, "  {}", time(total))?;
        }
        let reason = text(row, "/timeline/reason");
        if !reason.is_empty() {
            write!(f, "  {}", line(reason, 120))?;
        }
        Ok(())
    }
}
