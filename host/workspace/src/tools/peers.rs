//! The tools about the team: who is there, and who could take a task.

use serde_json::{Map, Value, json};
use talaria_turns::CallingTurn;

use super::arguments::Arguments;
use super::refusal::Refusal;
use super::{TEXT, TeamTools, WITHIN, untrusted};
use crate::platform::CallError;
use crate::platform_context::{self, Peer};

const SEE_PEERS: &str = "call list_peers and use an id from there";

impl TeamTools {
    pub(super) async fn list_peers(&self) -> Result<String, Refusal> {
        let (peers, note) = match self.fetch_peers().await {
            Ok((peers, _)) => (peers, None),
            Err(error) => {
                let known = self.assembly.platform_context().load().peers.clone();
                if known.is_empty() {
                    return Err(error.into());
                }
                (known, Some("the platform did not answer; this is the last known state"))
            }
        };
        let mut answer = json!({ "count": peers.len(), "peers": peers.iter().map(show).collect::<Vec<_>>() });
        if let (Some(note), Some(answer)) = (note, answer.as_object_mut()) {
            answer.insert("note".into(), json!(note));
        }
        Ok(answer.to_string())
    }

    pub(super) async fn workspace_info(&self) -> Result<String, Refusal> {
        let id = &self.assembly.places().id;
        let answer = self.platform.get(&format!("/workspaces/{id}"), WITHIN).await?;
        // The rest of the answer is the platform's business.
        let known = ["id", "name", "role", "tier", "status", "parent_id"];
        let short = |value: &Value| match value {
            Value::String(text) => json!(untrusted::line(text, 200)),
            Value::Number(_) | Value::Null | Value::Bool(_) => value.clone(),
            _ => Value::Null,
        };
        let info: Map<_, _> =
            known.into_iter().filter_map(|key| Some((key.to_owned(), short(answer.get(key)?)))).collect();
        Ok(Value::Object(info).to_string())
    }

    pub(super) async fn route_to_team(
        &self,
        turn: Option<CallingTurn>,
        arguments: &Arguments,
    ) -> Result<String, Refusal> {
        let task = arguments.required("task", TEXT)?;
        let turn = self.calling_turn(turn, arguments)?;
        let children = match self.fetch_peers().await {
            Ok((_, children)) => children,
            Err(error) => Some(self.known_children()).filter(|known| !known.is_empty()).ok_or(error)?,
        };
        if children.is_empty() {
            return Err(Refusal::new(
                "this workspace has no team",
                "do the task yourself, or delegate it to a peer (list_peers, delegate_task)",
            ));
        }
        let Some(preferred) = arguments.text("preferred_member_id", 200)? else {
            let members: Vec<_> = children.iter().map(show).collect();
            let message = "choose the member that fits the task, and call again with preferred_member_id";
            return Ok(
                json!({ "action": "choose_member", "message": message, "members": members }).to_string()
            );
        };
        let member = choose(&children, preferred)?;
        self.delegate_to(turn, &member, task, std::time::Duration::ZERO).await
    }

    /// The peer of this id or name.
    pub(super) async fn peer(&self, wanted: &str) -> Result<Peer, Refusal> {
        if wanted == self.assembly.places().id {
            return Err(Refusal::new(
                "that is this workspace itself",
                "do the task yourself, or choose a peer",
            ));
        }
        let known = self.assembly.platform_context().load().peers.clone();
        if let Some(peer) = known.iter().find(|peer| peer.id == wanted) {
            return Ok(peer.clone());
        }
        let peers = match self.fetch_peers().await {
            Ok((peers, _)) => peers,
            Err(error) if known.is_empty() => return Err(error.into()),
            Err(_) => known,
        };
        choose(&peers, wanted)
    }

    pub(super) async fn fetch_peers(&self) -> Result<(Vec<Peer>, Vec<Peer>), CallError> {
        let id = &self.assembly.places().id;
        let (mut peers, children) = platform_context::fetch_peers(&self.platform, id).await?;
        peers.retain(|peer| peer.id != *id);
        Ok((peers, children))
    }

    pub(super) fn known_children(&self) -> Vec<Peer> {
        self.assembly.platform_context().load().children.clone()
    }
}

/// The peer of this id, or else of this name, if no other has it.
fn choose(peers: &[Peer], wanted: &str) -> Result<Peer, Refusal> {
    if let Some(peer) = peers.iter().find(|peer| peer.id == wanted) {
        return Ok(peer.clone());
    }
    let mut named = peers.iter().filter(|peer| peer.name.to_lowercase() == wanted.to_lowercase());
    match (named.next(), named.next()) {
        (Some(peer), None) => Ok(peer.clone()),
        (Some(_), Some(_)) => Err(Refusal::new(
            format!("several peers are called {:?}", untrusted::line(wanted, 80)),
            SEE_PEERS,
        )),
        _ => Err(Refusal::new(
            format!("{:?} is not a peer of this workspace", untrusted::line(wanted, 80)),
            SEE_PEERS,
        )),
    }
}

fn show(peer: &Peer) -> Value {
    let skills: Vec<_> = peer.skills.iter().take(20).map(|skill| untrusted::line(skill, 80)).collect();
    let mut shown = json!({
        "id": untrusted::line(&peer.id, 128),
        "name": untrusted::line(&peer.name, 80),
        "status": untrusted::line(&peer.status, 40),
        "skills": skills,
    });
    if let (false, Some(shown)) = (peer.role.is_empty(), shown.as_object_mut()) {
        shown.insert("role".into(), json!(untrusted::line(&peer.role, 200)));
    }
    shown
}
