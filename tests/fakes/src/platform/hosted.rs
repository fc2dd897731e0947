//! Several workspaces on one platform: who they are, who may talk to whom, and whose token is whose.
//!
//! A platform without hosted workspaces has one, which nobody announced, and its tests play all others. With them every
//! request must carry the token of the workspace that it is about, and messages reach the bridges that registered.
//!
//! Two workspaces may talk if one is above the other at any distance, or if they have the same parent.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use super::{FakePlatform, refuse};
use crate::gateway::Recorded;
use crate::reply::Reply;

/// A workspace that the platform hosts.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    name: String,
    parent: Option<String>,
    token: Option<String>,
    /// Where its bridge is, once that has registered.
    pub(super) url: Option<String>,
    card: Value,
    /// Whether it fetches its messages itself. Then nobody gets an answer.
    pub(super) polls: bool,
    /// Whether messages to it are queued.
    pub(super) is_busy: bool,
    pub(super) queue: VecDeque<Queued>,
}

/// A message in the queue of a busy workspace.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) caller: String,
    pub(super) body: Value,
    /// The delegation that it is for.
    pub(super) delegation: Option<String>,
}

/// The hosted workspaces by id.
#[derive(Debug, Default)]
pub(super) struct Hosted(BTreeMap<String, Workspace>);

// === impl FakePlatform ===

impl FakePlatform {
    /// Hosts a workspace from now on. Its bridge registers like any other.
    ///
    /// # Panics
    /// If the id is not a UUID, which the platform demands of targets.
    pub fn host(&self, id: &str, name: &str, parent: Option<&str>) {
        assert!(is_uuid(id), "{id} is not a UUID");
        let mut state = self.state();
        state.team.log.lists_requests = true;
        let workspace =
            Workspace { name: name.into(), parent: parent.map(str::to_owned), ..Workspace::default() };
        state.hosted.0.insert(id.into(), workspace);
    }

    /// Makes a hosted workspace one that fetches its messages itself.
    pub fn let_poll(&self, id: &str) {
        self.state().hosted.get(id).polls = true;
    }

    /// Queues messages to a hosted workspace, or stops doing so. The queue is sent after its next heartbeat.
    pub fn set_busy(&self, id: &str, is_busy: bool) {
        self.state().hosted.get(id).is_busy = is_busy;
    }

    /// The token of a hosted workspace, once its bridge has registered.
    #[must_use]
    pub fn token_of(&self, id: &str) -> Option<String> {
        self.state().hosted.get(id).token.clone()
    }

    /// Waits until the bridges of these hosted workspaces have registered.
    pub async fn hosts(&self, ids: &[&str]) {
        self.until("registrations of hosted workspaces", |state| {
            let is_there = |id: &&str| state.hosted.0.get(*id).is_some_and(|one| one.url.is_some());
            ids.iter().all(is_there).then_some(())
        })
        .await;
    }
}

// === impl Hosted ===

impl Hosted {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn find(&mut self, id: &str) -> Option<&mut Workspace> {
        self.0.get_mut(id)
    }

    fn get(&mut self, id: &str) -> &mut Workspace {
        self.0.get_mut(id).unwrap_or_else(|| panic!("the platform does not host {id}"))
    }

    /// Forgets where the bridges are.
    pub(super) fn forget(&mut self) {
        self.0.values_mut().for_each(|workspace| workspace.url = None);
    }

    /// Takes the registration of a workspace. Returns a token for it if it has none yet.
    pub(super) fn register(&mut self, body: &Value, token: String) -> Option<String> {
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let workspace = self.0.get_mut(text("id")?)?;
        workspace.url = text("url").map(str::to_owned);
        workspace.card = body.get("agent_card").cloned().unwrap_or_default();
        match workspace.token {
            Some(_) => None,
            None => {
                workspace.token = Some(token.clone());
                Some(token)
            }
        }
    }

    /// The workspace whose token a request carries.
    pub(super) fn caller(&self, request: &Recorded) -> Option<&str> {
        let bearer = request.header("authorization")?.strip_prefix("Bearer ")?;
        let owner = self.0.iter().find(|(_, workspace)| workspace.token.as_deref() == Some(bearer));
        owner.map(|(id, _)| id.as_str())
    }

    /// Why a request is rejected, by its token and by whom it is about.
    pub(super) fn rejects(&self, request: &Recorded) -> Option<Reply> {
        let path = request.path.split('?').next().unwrap_or_default();
        let words: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let named =
            |name: &str| request.json().get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let about = match words.as_slice() {
            ["registry", "register"] => named("id"),
            ["registry", "heartbeat" | "update-card"] => named("workspace_id"),
            ["registry" | "workspaces", id, ..] => (*id).to_owned(),
            _ => return None,
        };
        let Some(workspace) = self.0.get(&about) else { return Some(refuse(404, "workspace not found")) };
        if workspace.token.is_none() && words == ["registry", "register"] {
            return None;
        }
        let is_proxied = words.ends_with(&["a2a"]);
        if request.header("authorization").is_none() {
            let missing =
                if is_proxied { "missing caller auth token" } else { "missing workspace auth token" };
            return Some(refuse(401, missing));
        }
        let Some(caller) = self.caller(request) else {
            return Some(refuse(401, "invalid workspace auth token"));
        };
        let claimed = request.header("x-workspace-id");
        match words.as_slice() {
            [.., "a2a"]
                if claimed.is_some_and(|id| id.starts_with("system:") || id.starts_with("webhook:")) =>
            {
                Some(refuse(403, "invalid caller ID"))
            }
            [.., "a2a"] if claimed.is_some_and(|id| id != caller) => {
                Some(refuse(401, "caller ID does not match the authenticated workspace"))
            }
            [.., "a2a" | "shared-context"] => None,
            [.., "delegate"] if caller != about => {
                Some(refuse(403, "source workspace does not match authenticated identity"))
            }
            _ if caller != about => Some(refuse(401, "invalid workspace auth token")),
            _ => None,
        }
    }

    /// Whether two workspaces may talk.
    pub(super) fn can_communicate(&self, one: &str, other: &str) -> bool {
        let parent = |id: &str| self.0.get(id).and_then(|workspace| workspace.parent.as_deref());
        let are_siblings = parent(one).is_some() && parent(one) == parent(other);
        one == other || are_siblings || self.is_above(one, other) || self.is_above(other, one)
    }

    fn is_above(&self, upper: &str, lower: &str) -> bool {
        self.line(lower).skip(1).any(|id| id == upper)
    }

    /// A workspace and those above it.
    fn line<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a str> {
        std::iter::successors(Some(id), |id| self.0.get(*id)?.parent.as_deref())
    }

    /// The answer to `GET /registry/{id}/peers`: the parent, the siblings and the children.
    pub(super) fn peers(&self, of: &str) -> Value {
        let parent = |id: &str| self.0.get(id).and_then(|workspace| workspace.parent.as_deref());
        let is_near = |id: &str| {
            let is_sibling = parent(of).is_some() && parent(id) == parent(of);
            id != of && (is_sibling || parent(of) == Some(id) || parent(id) == Some(of))
        };
        let show = |(id, workspace): (&String, &Workspace)| {
            let status = if workspace.url.is_some() { "online" } else { "offline" };
            json!({
                "id": id, "name": workspace.name, "role": null, "tier": 1, "status": status, "url": workspace.url,
                "agent_card": workspace.card, "parent_id": workspace.parent, "active_tasks": 0,
            })
        };
        self.0.iter().filter(|(id, _)| is_near(id)).map(show).collect()
    }

    /// The answer to `GET /workspaces/{id}`.
    pub(super) fn info(&self, id: &str) -> Option<Value> {
        let workspace = self.0.get(id)?;
        Some(json!({
            "id": id, "name": workspace.name, "role": null, "tier": 1, "status": "online",
            "parent_id": workspace.parent, "auth_token": "secret",
        }))
    }

    /// The namespace of a memory that a workspace writes or reads; `None` if it may not write there.
    pub(super) fn namespace(&self, of: &str, scope: &str, writes: bool) -> Option<String> {
        let root = self.line(of).last().unwrap_or(of);
        match scope {
            "GLOBAL" if writes && root != of => None,
            "GLOBAL" => Some(format!("org:{root}")),
            "TEAM" => Some(format!("team:{}", self.line(of).nth(1).unwrap_or(of))),
            _ => Some(format!("workspace:{of}")),
        }
    }
}

/// Whether a text is a UUID.
pub(super) fn is_uuid(text: &str) -> bool {
    let groups: Vec<_> = text.split('-').collect();
    let is_hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(is_hex)
}
