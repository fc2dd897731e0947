//! The platform's contribution to the prompt: its instructions, the peers, and the files that the parent shares.
//!
//! Each is fetched on its own, and one that cannot be fetched stays as it was: the prompt does not change while the platform
//! is down.

use std::time::Duration;

use serde_json::Value;

use crate::platform::{CallError, Platform};

/// The timeout of each request. Short: a prompt without peers is better than a turn that waits.
const REQUEST: Duration = Duration::from_secs(3);

/// The maximum number of peers that a prompt names.
const PEERS: usize = 200;

/// The platform's information about this workspace and its peers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PlatformContext {
    /// The platform's instructions.
    pub(crate) instructions: String,
    /// The workspaces to which this one may delegate.
    pub(crate) peers: Vec<Peer>,
    /// The peers that this workspace coordinates.
    pub(crate) children: Vec<Peer>,
    /// The paths and texts of the files that the parent shares.
    pub(crate) parent: Vec<(String, String)>,
}

/// Another workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) id: String,
    pub(crate) name: String,
    /// What it is there for, if the platform says so.
    pub(crate) role: String,
    pub(crate) status: String,
    pub(crate) skills: Vec<String>,
}

// === impl PlatformContext ===

impl PlatformContext {
    /// Fetches everything. Returns the new context, and a description of what could not be fetched.
    pub(crate) async fn fetch(
        platform: &Platform,
        workspace: &str,
        parent: Option<&str>,
        before: &Self,
    ) -> (Self, Option<String>) {
        let mut fresh = before.clone();
        let mut problems = Vec::new();
        let path = format!("/workspaces/{workspace}/instructions/resolve");
        match platform.get(&path, REQUEST).await {
            Ok(answer) => fresh.instructions = text(&answer, "instructions").trim().to_owned(),
            // Older platforms have no instructions.
            Err(CallError::Rejected { status: 404, .. }) => fresh.instructions.clear(),
            Err(error) => problems.push(format!("instructions: {error}")),
        }
        match platform.get(&format!("/registry/{workspace}/peers"), REQUEST).await {
            Ok(answer) => (fresh.peers, fresh.children) = peers_and_children(&answer, workspace),
            Err(error) => problems.push(format!("peers: {error}")),
        }
        if let Some(parent) = parent {
            match platform.get(&format!("/workspaces/{parent}/shared-context"), REQUEST).await {
                Ok(answer) => {
                    let files = answer.as_array().map(Vec::as_slice).unwrap_or_default();
                    let file = |file: &Value| {
                        (text(file, "path").to_owned(), text(file, "content").trim().to_owned())
                    };
                    fresh.parent = files.iter().map(file).filter(|(_, text)| !text.is_empty()).collect();
                }
                Err(CallError::Rejected { status: 404, .. }) => fresh.parent.clear(),
                Err(error) => problems.push(format!("shared context: {error}")),
            }
        }
        (fresh, (!problems.is_empty()).then(|| problems.join("; ")))
    }
}

/// Fetches the peers, and those among them that this workspace coordinates.
pub(crate) async fn fetch_peers(
    platform: &Platform,
    workspace: &str,
) -> Result<(Vec<Peer>, Vec<Peer>), CallError> {
    let answer = platform.get(&format!("/registry/{workspace}/peers"), REQUEST).await?;
    Ok(peers_and_children(&answer, workspace))
}

fn peers_and_children(answer: &Value, workspace: &str) -> (Vec<Peer>, Vec<Peer>) {
    let all = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_child = |peer: &&Value| peer.get("parent_id").and_then(Value::as_str) == Some(workspace);
    let peers = all.iter().filter_map(Peer::of).take(PEERS).collect();
    (peers, all.iter().filter(is_child).filter_map(Peer::of).take(PEERS).collect())
}

// === impl Peer ===

impl Peer {
    /// `None` for a peer without a card, to which nothing can be delegated.
    fn of(value: &Value) -> Option<Self> {
        let card = match value.get("agent_card")? {
            Value::String(text) => serde_json::from_str(text).ok()?,
            card => card.clone(),
        };
        let card = card.as_object()?;
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let or =
            |text: &str, otherwise: &str| if text.is_empty() { otherwise.to_owned() } else { line(text) };
        let name = card.get("name").and_then(Value::as_str).unwrap_or_else(|| text(value, "name"));
        let skills = card.get("skills").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let skill = |skill: &Value| {
            let name = text(skill, "name");
            Some(line(if name.is_empty() { text(skill, "id") } else { name })).filter(|name| !name.is_empty())
        };
        Some(Self {
            id: or(text(value, "id"), "unknown"),
            name: or(name, "Unknown"),
            role: line(text(value, "role")),
            status: or(text(value, "status"), "unknown"),
            skills: skills.iter().filter_map(skill).collect(),
        })
    }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
