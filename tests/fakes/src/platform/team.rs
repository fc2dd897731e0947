//! What a platform does for the tools of a workspace: delegations, memory, requests, files.
//!
//! Abilities of a workspace can be denied, each with the answer of the real platform. Like the newer platforms it ignores the
//! query of a memory search and returns the newest ones.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::delegations::Log;
use super::delivery::Errand;
use super::hosted::{Hosted, is_uuid};
use super::refuse;
use crate::gateway::Recorded;
use crate::reply::Reply;

/// Memories in one answer.
const MEMORIES: usize = 50;

/// What the platform stores for the tools.
#[derive(Debug, Default)]
pub(super) struct Team {
    pub(super) log: Log,
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
    pub(super) fn answer(
        &mut self,
        request: &Recorded,
        hosted: &Hosted,
        errands: &mut Vec<Errand>,
    ) -> Option<Reply> {
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
            ("POST", "delegate") => self.delegate(workspace, &request.json(), hosted, errands),
            ("GET", "delegations") => Reply::json(&self.log.list(workspace)),
            ("GET", "activity") if !hosted.is_empty() || query.contains("type=delegation") => {
                self.log.activity(workspace, query)
            }
            ("GET", "activity") => Reply::json(&json!([
                { "created_at": "2026-01-02T00:00:00Z", "source_id": "peer", "summary": "short", "request_body": { "params": { "message": { "parts": [{ "kind": "text", "text": "second" }] } } } },
                { "created_at": "2026-01-01T00:00:00Z", "source_id": workspace, "summary": "first" },
            ])),
            ("POST", "activity") => Reply::json(&json!({ "status": "logged" })),
            (_, "memories") if is_denied("memory") => {
                refuse(503, "memory plugin is not configured (set MEMORY_PLUGIN_URL)")
            }
            ("POST", "memories") => self.commit(workspace, request.json(), hosted),
            ("GET", "memories") => {
                let is_readable = |memory: &&Value| readable(memory, workspace, hosted);
                Reply::json(&self.memories.iter().rev().filter(is_readable).take(MEMORIES).cloned().collect())
            }
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
            ("GET", "") => Reply::json(&hosted.info(workspace).unwrap_or_else(|| json!({
                "id": workspace, "name": "Lead", "role": null, "tier": 1, "status": "online", "parent_id": null, "auth_token": "secret",
            }))),
            _ => return None,
        };
        Some(reply)
    }

    /// Takes a delegation. Among hosted workspaces it is sent to its target; otherwise the test answers it. Whether the two
    /// may talk is not checked here: the delegation fails later.
    fn delegate(
        &mut self,
        workspace: &str,
        body: &Value,
        hosted: &Hosted,
        errands: &mut Vec<Errand>,
    ) -> Reply {
        let target = body.get("target_id").and_then(Value::as_str);
        if !hosted.is_empty() && target.is_some_and(|target| !is_uuid(target)) {
            return refuse(400, "target_id must be a valid UUID");
        }
        let (reply, new) = self.log.delegate(workspace, body);
        errands.extend(new.filter(|_| !hosted.is_empty()).map(Errand::Delegation));
        reply
    }

    fn commit(&mut self, workspace: &str, mut body: Value, hosted: &Hosted) -> Reply {
        let scope = body.get("scope").and_then(Value::as_str).unwrap_or("LOCAL").to_owned();
        let Some(namespace) = hosted.namespace(workspace, &scope, true) else {
            return refuse(403, "only root workspaces can write GLOBAL memories");
        };
        if let (false, Some(body)) = (hosted.is_empty(), body.as_object_mut()) {
            body.insert("namespace".into(), json!(namespace));
        }
        self.memories.push(body);
        let id = format!("mem-{}", self.memories.len());
        created(&json!({ "id": id, "scope": scope, "namespace": namespace }))
    }
}

/// Whether a workspace may read a memory. Those without a namespace are everybody's.
fn readable(memory: &Value, workspace: &str, hosted: &Hosted) -> bool {
    let Some(namespace) = memory.get("namespace").and_then(Value::as_str) else { return true };
    let readable = ["LOCAL", "TEAM", "GLOBAL"].map(|scope| hosted.namespace(workspace, scope, false));
    readable.iter().flatten().any(|known| known == namespace)
}

fn pending(body: &Value) -> Value {
    json!({ "id": "req-1", "title": body.get("title"), "action": body.get("action"), "status": "pending" })
}

fn created(body: &Value) -> Reply {
    Reply::status(201, "application/json", body.to_string())
}
