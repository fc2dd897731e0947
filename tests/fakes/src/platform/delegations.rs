//! The delegations of a platform, and the log that has them.
//!
//! The peculiarities of the real one:
//! - a delegation has two rows, one for the request (`delegate`) and one for the end (`delegate_result`). The list shows both,
//!   the newest 50 rows of all delegations, and cuts answers at 300 bytes; the log has them whole;
//! - rows are rewritten in place: the status of the request follows the delegation, and a `queued` end becomes the answer;
//! - a cursor that the log does not know gets a 410. With a cursor the oldest row comes first, without one the newest;
//! - a known key gets the first delegation again, unless that failed. Then its request is deleted, and the key is free.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{FakePlatform, refuse};
use crate::reply::Reply;

/// Bytes of an answer in the list.
const PREVIEW: usize = 300;

/// Rows of the list, and the most rows of the log in one response.
const ROWS: (usize, usize) = (50, 500);

/// A delegation that a workspace posted.
#[derive(Debug, Clone)]
pub struct Delegated {
    /// The platform's id.
    pub id: String,
    /// The workspace that posted it.
    pub source: String,
    /// The body of the first request.
    pub body: Value,
    /// The requests with its key.
    pub posts: usize,
}

/// The activity of all workspaces.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) delegated: Vec<Delegated>,
    rows: Vec<Row>,
    numbers: u64,
    /// Whether the list shows the status of a request as the log does. Where it does not, requests stay `pending` there.
    pub(super) lists_requests: bool,
}

#[derive(Debug, Clone)]
struct Row {
    number: u64,
    at: Instant,
    /// The workspace whose log it is in.
    workspace: String,
    activity_type: &'static str,
    method: &'static str,
    source: String,
    target: String,
    summary: String,
    status: &'static str,
    request: Value,
    response: Value,
    error: String,
    /// The idempotency key of a request.
    key: Option<String>,
    /// The id of the delegation; empty for other rows.
    delegation: String,
}

// === impl FakePlatform ===

impl FakePlatform {
    /// The delegations that it accepted.
    #[must_use]
    pub fn delegated(&self) -> Vec<Delegated> {
        self.state().team.log.delegated.clone()
    }

    /// Waits until it has accepted so many delegations. Returns the last one.
    pub async fn told_delegation(&self, times: usize) -> Delegated {
        self.until("a delegation", |state| state.team.log.delegated.get(times.checked_sub(1)?).cloned()).await
    }

    /// Waits until so many delegations have ended, or are queued.
    pub async fn ended_delegations(&self, count: usize) {
        self.until("ends of delegations", |state| (state.team.log.ends() >= count).then_some(())).await;
    }

    /// A peer answers a delegation.
    pub fn answer_delegation(&self, number: usize, text: &str) {
        self.end_delegation(number, End::Completed(text.into()));
    }

    /// A delegation fails.
    pub fn fail_delegation(&self, number: usize, error: &str) {
        self.end_delegation(number, End::Failed(error.into()));
    }

    /// A delegation waits in the queue of a busy peer.
    pub fn queue_delegation(&self, number: usize) {
        self.end_delegation(number, End::Queued);
    }

    fn end_delegation(&self, number: usize, end: End) {
        let mut state = self.state();
        let log = &mut state.team.log;
        let id = log.delegated.get(number - 1).expect("there are so many delegations").id.clone();
        log.end(&id, end);
        drop(state);
        self.platform.told.send_modify(|told| *told += 1);
    }
}

/// How a delegation ends, or is put off.
#[derive(Debug, Clone)]
pub(super) enum End {
    Completed(String),
    Failed(String),
    Queued,
}

// === impl Log ===

impl Log {
    /// Takes a delegation. Returns the response, and the number of a new delegation.
    pub(super) fn delegate(&mut self, source: &str, body: &Value) -> (Reply, Option<usize>) {
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let (Some(target), Some(task)) = (text("target_id"), text("task")) else {
            return (refuse(400, "invalid delegation request"), None);
        };
        if target == source {
            let error = json!({
                "error": "self-delegation not permitted",
                "reason": "the source workspace and target workspace are the same",
                "hint": "do the work yourself, or pick a different peer",
            });
            return (Reply::status(400, "application/json", error.to_string()), None);
        }
        let key = text("idempotency_key").filter(|key| !key.is_empty());
        let is_known = |row: &Row| row.workspace == source && key.is_some() && row.key.as_deref() == key;
        if let Some(known) = self.rows.iter().find(|row| is_known(row)).cloned() {
            if known.status != "failed" {
                if let Some(first) = self.delegated.iter_mut().find(|one| one.id == known.delegation) {
                    first.posts += 1;
                }
                let again = json!({
                    "delegation_id": known.delegation, "status": known.status, "target_id": known.target,
                    "idempotent_hit": true,
                });
                return (Reply::json(&again), None);
            }
            self.rows.retain(|row| !is_known(row));
        }
        let id = format!("d-{}", self.delegated.len() + 1);
        let request = Row {
            method: "delegate",
            summary: format!("Delegating to {target}"),
            status: "dispatched",
            request: json!({ "task": task, "delegation_id": id }),
            response: json!({ "delegation_id": id }),
            key: key.map(str::to_owned),
            delegation: id.clone(),
            ..self.row(source, (source, target), "delegation")
        };
        self.rows.push(request);
        let answer = json!({ "delegation_id": id, "status": "delegated", "target_id": target });
        self.delegated.push(Delegated { id, source: source.into(), body: body.clone(), posts: 1 });
        (Reply::status(202, "application/json", answer.to_string()), Some(self.delegated.len()))
    }

    /// Ends a delegation, or puts it off. The row of an end that is there is rewritten.
    pub(super) fn end(&mut self, id: &str, end: End) {
        let (status, summary, response, error) = match end {
            End::Completed(text) => {
                let summary = format!("Delegation completed ({})", cut(&text, 80));
                ("completed", summary, json!({ "text": text, "delegation_id": id }), String::new())
            }
            End::Failed(error) => {
                ("failed", "Delegation failed".into(), json!({ "delegation_id": id }), error)
            }
            End::Queued => {
                let summary = "Delegation queued — target at capacity".into();
                ("queued", summary, json!({ "delegation_id": id, "queued": true }), String::new())
            }
        };
        let is_drained = self.find(id, "delegate_result").is_some_and(|row| row.status == "queued");
        if let Some(request) = self.find(id, "delegate") {
            // The end of the queue reaches the row of the end only.
            if !is_drained {
                (request.status, request.error) = (status, error.clone());
            }
            let request = request.clone();
            if let Some(row) = self.find(id, "delegate_result") {
                (row.status, row.summary, row.response, row.error) = (status, summary, response, error);
                return;
            }
            let row = Row {
                method: "delegate_result",
                delegation: id.into(),
                ..self.row(&request.workspace, (&request.source, &request.target), "delegation")
            };
            self.rows.push(Row { status, summary, response, error, ..row });
        }
    }

    /// Adds a message to the log of the workspace that got it.
    pub(super) fn message(&mut self, source: &str, target: &str, request: &Value, response: &Value) {
        let row = Row {
            method: "message/send",
            status: "ok",
            request: request.clone(),
            response: response.clone(),
            ..self.row(target, (source, target), "a2a_receive")
        };
        self.rows.push(row);
    }

    fn row(&mut self, workspace: &str, (source, target): (&str, &str), activity_type: &'static str) -> Row {
        self.numbers += 1;
        Row {
            number: self.numbers,
            at: Instant::now(),
            workspace: workspace.into(),
            activity_type,
            method: "",
            source: source.into(),
            target: target.into(),
            summary: String::new(),
            status: "",
            request: Value::Null,
            response: Value::Null,
            error: String::new(),
            key: None,
            delegation: String::new(),
        }
    }

    fn find(&mut self, delegation: &str, method: &str) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.delegation == delegation && row.method == method)
    }

    fn ends(&self) -> usize {
        self.rows.iter().filter(|row| row.method == "delegate_result").count()
    }

    /// The answer to `GET …/delegations`.
    pub(super) fn list(&self, workspace: &str) -> Value {
        let mine = |row: &&Row| row.workspace == workspace && row.activity_type == "delegation";
        let show = |row: &Row| row.listed(self.lists_requests);
        self.rows.iter().rev().filter(mine).take(ROWS.0).map(show).collect()
    }

    /// The answer to `GET …/activity`.
    pub(super) fn activity(&self, workspace: &str, query: &str) -> Reply {
        let mine: Vec<&Row> = self.rows.iter().filter(|row| row.workspace == workspace).collect();
        let since = match parameter(query, "since_secs").map(str::parse) {
            None => None,
            Some(Ok(seconds)) => Some(Duration::from_secs(seconds)),
            Some(Err(_)) => return refuse(400, "since_secs must be a positive integer"),
        };
        let cursor = parameter(query, "since_id");
        let after = match cursor {
            None => 0,
            Some(id) => match mine.iter().find(|row| row.id() == id) {
                Some(row) => row.number,
                None => return refuse(410, "since_id cursor not found; omit since_id to reset"),
            },
        };
        let limit = parameter(query, "limit").and_then(|limit| limit.parse().ok()).unwrap_or(100).min(ROWS.1);
        let peer = parameter(query, "peer_id").map(|peer| peer.replace("%2D", "-"));
        let is_wanted = |row: &&&Row| {
            row.number > after
                && parameter(query, "type").is_none_or(|wanted| wanted == row.activity_type)
                && peer.as_ref().is_none_or(|peer| row.source == *peer || row.target == *peer)
                && since.is_none_or(|since| row.at.elapsed() <= since)
        };
        let rows = mine.iter().filter(is_wanted).map(|row| row.logged());
        let rows: Vec<Value> = match cursor {
            Some(_) => rows.take(limit).collect(),
            None => rows.rev().take(limit).collect(),
        };
        Reply::json(&rows.into())
    }
}

// === impl Row ===

impl Row {
    fn id(&self) -> String {
        format!("row-{}", self.number)
    }

    /// Later rows have later times.
    fn created_at(&self) -> String {
        format!(
            "2026-01-01T{:02}:{:02}:{:02}Z",
            self.number / 3600 % 24,
            self.number / 60 % 60,
            self.number % 60
        )
    }

    fn logged(&self) -> Value {
        json!({
            "id": self.id(), "seq": self.number, "created_at": self.created_at(), "workspace_id": self.workspace,
            "activity_type": self.activity_type, "method": self.method, "source_id": self.source, "target_id": self.target,
            "summary": self.summary, "status": self.status, "request_body": self.request, "response_body": self.response,
            "error_detail": (!self.error.is_empty()).then_some(&self.error),
        })
    }

    fn listed(&self, shows_status: bool) -> Value {
        let is_request = self.method == "delegate";
        let status = if is_request && !shows_status { "pending" } else { self.status };
        let mut row = json!({
            "id": self.id(), "type": "delegation", "direction": "sent", "source_id": self.source, "target_id": self.target,
            "summary": self.summary, "status": status, "created_at": self.created_at(), "delegation_id": self.delegation,
        });
        // Without a text the whole body is shown, which for a request is its id.
        let text = self.response.get("text").and_then(Value::as_str);
        let preview = text.map_or_else(|| self.response.to_string(), str::to_owned);
        if let Some(row) = row.as_object_mut() {
            if !self.error.is_empty() {
                row.insert("error".into(), json!(self.error));
            }
            if !preview.is_empty() {
                row.insert("response_preview".into(), json!(cut(&preview, PREVIEW)));
            }
        }
        row
    }
}

fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or_default()
}

/// The value of a parameter in a query, as it is there.
fn parameter<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query
        .split('&')
        .find_map(|pair| pair.split_once('=').filter(|(known, _)| *known == name))
        .map(|(_, value)| value)
}
