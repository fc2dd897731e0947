//! What a platform does for the tools of a workspace: delegations, memory, requests, files.
//!
//! The traps of the real one are here too: several rows for a delegation, answers cut at 300 bytes in the list, `queued`
//! rows that are rewritten later, and a receipt in place of an answer for a workspace that polls.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::refuse;
use crate::gateway::Recorded;
use crate::reply::Reply;

/// A delegation that a workspace posted.
#[derive(Debug, Clone)]
pub struct Delegated {
    /// The platform's id.
    pub id: String,
    /// The body of the first request.
    pub body: Value,
    /// The requests with its key.
    pub posts: usize,
    status: &'static str,
    text: String,
    error: String,
}

/// What the platform stores for the tools.
#[derive(Debug, Default)]
pub(super) struct Team {
    pub(super) delegated: Vec<Delegated>,
    pub(super) memories: Vec<Value>,
    pub(super) requests: Vec<Value>,
    pub(super) uploads: Vec<String>,
    pub(super) broadcasts: Vec<Value>,
    /// The abilities that it denies: `delegate`, `talk_to_user`, `broadcast`, `memory`, `requests`.
    pub(super) denied: BTreeSet<String>,
}

// === impl Team ===

impl Team {
    /// Answers a request of a workspace's tools; `None` for any other.
    pub(super) fn answer(&mut self, request: &Recorded) -> Option<Reply> {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let rest = path.strip_prefix("/workspaces/")?;
        let (workspace, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let is_denied = |ability: &str| self.denied.contains(ability);
        let reply = match (request.method.as_str(), rest) {
            (
                _,
                "delegate" | "delegations" | "activity" | "memories" | "requests" | "approvals" | "broadcast",
            ) if request.header("x-workspace-id") != Some(workspace) => {
                refuse(401, "caller ID does not match the token")
            }
            ("POST", "delegate") if is_denied("delegate") => refuse(403, "tool call failed"),
            ("POST", "delegate") => self.delegate(workspace, &request.json()),
            ("GET", "delegations") => Reply::json(&self.delegated.iter().flat_map(listed).collect()),
            ("GET", "activity") if query.contains("type=delegation") => {
                Reply::json(&self.delegated.iter().rev().flat_map(logged).collect())
            }
            ("GET", "activity") => Reply::json(&json!([
                { "created_at": "2026-01-02T00:00:00Z", "source_id": "peer", "summary": "short", "request_body": { "params": { "message": { "parts": [{ "kind": "text", "text": "second" }] } } } },
                { "created_at": "2026-01-01T00:00:00Z", "source_id": workspace, "summary": "first" },
            ])),
            ("POST", "activity") => Reply::json(&json!({ "status": "logged" })),
            (_, "memories") if is_denied("memory") => refuse(503, "memory plugin is not configured"),
            ("POST", "memories") => {
                let body = request.json();
                let scope = body.get("scope").cloned();
                self.memories.push(body);
                let id = format!("mem-{}", self.memories.len());
                created(&json!({ "id": id, "scope": scope, "namespace": "workspace" }))
            }
            ("GET", "memories") => Reply::json(&self.memories.iter().rev().cloned().collect()),
            (_, "requests") if is_denied("requests") => refuse(404, "no such route"),
            ("POST", "requests") => {
                self.requests.push(request.json());
                created(&json!({ "request_id": format!("req-{}", self.requests.len()), "status": "pending" }))
            }
            ("GET", "requests") => Reply::json(&self.requests.iter().map(pending).collect()),
            ("POST", "approvals") => {
                self.requests.push(request.json());
                created(
                    &json!({ "approval_id": format!("app-{}", self.requests.len()), "status": "pending" }),
                )
            }
            ("GET", "approvals") => Reply::json(&self.requests.iter().map(pending).collect()),
            ("POST", "notify") if is_denied("talk_to_user") => refuse(403, "talk_to_user_disabled"),
            ("POST", "chat/uploads") => {
                self.uploads.push(String::from_utf8_lossy(&request.body).into_owned());
                let files = String::from_utf8_lossy(&request.body).matches("filename=").count();
                let file = |n| json!({ "uri": format!("upload://{n}"), "name": "f", "mimeType": "text/plain", "size": 4, "token": "not for others" });
                Reply::json(&json!({ "files": (0..files).map(file).collect::<Vec<_>>() }))
            }
            ("POST", "broadcast") if is_denied("broadcast") => refuse(403, "broadcast_disabled"),
            ("POST", "broadcast") => {
                self.broadcasts.push(request.json());
                Reply::json(&json!({ "status": "sent", "delivered": 3 }))
            }
            ("GET", "") => Reply::json(&json!({
                "id": workspace, "name": "Lead", "role": null, "tier": 1, "status": "online", "parent_id": null, "auth_token": "secret",
            })),
            _ => return None,
        };
        Some(reply)
    }

    fn delegate(&mut self, workspace: &str, body: &Value) -> Reply {
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let (Some(target), Some(_)) = (text("target_id"), text("task")) else {
            return refuse(400, "invalid delegation request");
        };
        if target == workspace {
            return refuse(400, "self-delegation not permitted");
        }
        let same = |one: &&mut Delegated| {
            body.get("idempotency_key").is_some()
                && one.body.get("idempotency_key") == body.get("idempotency_key")
        };
        if let Some(known) = self.delegated.iter_mut().find(same) {
            known.posts += 1;
            return Reply::json(&json!({
                "delegation_id": known.id, "status": known.status, "target_id": target, "idempotent_hit": true,
            }));
        }
        let id = format!("d-{}", self.delegated.len() + 1);
        let answer = json!({ "delegation_id": id, "status": "delegated", "target_id": target });
        let (text, error) = (String::new(), String::new());
        self.delegated.push(Delegated {
            id,
            body: body.clone(),
            posts: 1,
            status: "dispatched",
            text,
            error,
        });
        Reply::status(202, "application/json", answer.to_string())
    }
}

// === impl Delegated ===

impl Delegated {
    /// Ends it, or marks it as queued.
    pub(super) fn become_(&mut self, status: &'static str, text: &str, error: &str) {
        (self.status, self.text, self.error) = (status, text.to_owned(), error.to_owned());
    }
}

/// The rows of a delegation in the log.
fn logged(one: &Delegated) -> Vec<Value> {
    let begun = json!({ "id": format!("{}-a", one.id), "activity_type": "delegation", "method": "delegate", "status": one.status, "request_body": one.body });
    if one.status == "dispatched" {
        return vec![begun];
    }
    let body = json!({ "text": one.text, "delegation_id": one.id });
    let end = json!({
        "id": format!("{}-b", one.id), "activity_type": "delegation", "method": "delegate_result",
        "status": one.status, "response_body": body, "error_detail": one.error,
    });
    vec![end, begun]
}

/// The rows of a delegation in the list.
fn listed(one: &Delegated) -> Vec<Value> {
    let row = |status: &str| json!({ "id": one.id, "type": "delegation", "direction": "sent", "target_id": one.body.get("target_id"), "status": status, "delegation_id": one.id });
    let preview: String = one.text.chars().take(300).collect();
    let mut end = row(one.status);
    if let Some(end) = end.as_object_mut() {
        end.insert("response_preview".into(), json!(preview));
        end.insert("error".into(), json!(one.error));
    }
    vec![end, row("pending")]
}

fn pending(body: &Value) -> Value {
    json!({ "id": "req-1", "title": body.get("title"), "action": body.get("action"), "status": "pending" })
}

fn created(body: &Value) -> Reply {
    Reply::status(201, "application/json", body.to_string())
}
