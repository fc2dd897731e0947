//! The platform's contribution to the prompt: its instructions, the peers, and the files that the parent shares.
//!
//! Each is fetched on its own, and one that cannot be fetched stays as it was: the prompt does not change while the platform
//! is down.

use std::time::Duration;

use serde_json::Value;

use crate::platform::{Platform, Unanswered};

/// The timeout of each request. Short: a prompt without peers is better than a turn that waits.
const REQUEST: Duration = Duration::from_secs(3);

/// The most peers that a prompt names.
const PEERS: usize = 200;

/// What the platform knows of this workspace and those around it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PlatformContext {
    /// The platform's instructions.
    pub(crate) instructions: String,
    /// Other workspaces that it may delegate to.
    pub(crate) peers: Vec<Peer>,
    /// The peers that it coordinates.
    pub(crate) children: Vec<Peer>,
    /// Files that the parent shares: their paths and texts.
    pub(crate) parent: Vec<(String, String)>,
}

/// Another workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) skills: Vec<String>,
}

// === impl PlatformContext ===

impl PlatformContext {
    /// Fetches everything, and says what could not be fetched.
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
            Err(Unanswered::Refused { status: 404, .. }) => fresh.instructions.clear(),
            Err(error) => problems.push(format!("instructions: {error}")),
        }
        match platform.get(&format!("/registry/{workspace}/peers"), REQUEST).await {
            Ok(answer) => {
                let all = answer.as_array().map(Vec::as_slice).unwrap_or_default();
                let is_child =
                    |peer: &&Value| peer.get("parent_id").and_then(Value::as_str) == Some(workspace);
                fresh.peers = all.iter().filter_map(Peer::of).take(PEERS).collect();
                fresh.children = all.iter().filter(is_child).filter_map(Peer::of).take(PEERS).collect();
            }
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
                Err(Unanswered::Refused { status: 404, .. }) => fresh.parent.clear(),
                Err(error) => problems.push(format!("shared context: {error}")),
            }
        }
        (fresh, (!problems.is_empty()).then(|| problems.join("; ")))
    }
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
            status: or(text(value, "status"), "unknown"),
            skills: skills.iter().filter_map(skill).collect(),
        })
    }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
