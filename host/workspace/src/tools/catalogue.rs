//! The tools that the agent is offered: names, descriptions, arguments, and the action that each needs.
//!
//! The names are those of the platform's own tools, so that prompts and skills written for those fit. The older names of
//! the Python runtime are offered too, since an agent can call only what is listed.

use serde_json::{Value, json};
use talaria_mcp::Tool;

use super::roles::Action;

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    ListPeers,
    WorkspaceInfo,
    Delegate,
    DelegateAsync,
    CheckTask,
    CancelDelegation,
    RouteToTeam,
    SendMessage,
    CreateApproval,
    CreateRequest,
    CheckRequests,
    CommitMemory,
    RecallMemory,
    ChatHistory,
    Broadcast,
}

use Name::*;

/// Every name on the wire, and the tool that it calls.
const NAMES: [(&str, Name); 19] = [
    ("list_peers", ListPeers),
    ("get_workspace_info", WorkspaceInfo),
    ("delegate_task", Delegate),
    ("delegate_task_async", DelegateAsync),
    ("check_task_status", CheckTask),
    ("cancel_delegation", CancelDelegation),
    ("route_task_to_team", RouteToTeam),
    ("send_message_to_user", SendMessage),
    ("create_approval", CreateApproval),
    ("create_request", CreateRequest),
    ("check_requests", CheckRequests),
    ("commit_memory", CommitMemory),
    ("recall_memory", RecallMemory),
    ("chat_history", ChatHistory),
    ("broadcast_message", Broadcast),
    ("delegate_to_workspace", DelegateAsync),
    ("check_delegation_status", CheckTask),
    ("request_approval", CreateApproval),
    ("search_memory", RecallMemory),
];

/// What is offered here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    /// Whether there is a team to route tasks to, or that is not known.
    pub(super) team: bool,
    /// Whether broadcasts are enabled.
    pub(super) broadcast: bool,
}

// === impl Name ===

impl Name {
    /// The tool of this name, and the name as a constant.
    pub(super) fn find(name: &str) -> Option<(&'static str, Self)> {
        NAMES.into_iter().find(|(known, _)| *known == name)
    }

    /// The action that it needs.
    pub(super) fn action(self) -> Action {
        match self {
            Delegate | DelegateAsync | CheckTask | CancelDelegation | RouteToTeam | Broadcast => {
                Action::Delegate
            }
            SendMessage | CreateApproval | CreateRequest => Action::Approve,
            CommitMemory => Action::MemoryWrite,
            RecallMemory => Action::MemoryRead,
            ListPeers | WorkspaceInfo | CheckRequests | ChatHistory => Action::Look,
        }
    }

    fn is_offered(self, offer: Offer) -> bool {
        match self {
            RouteToTeam => offer.team,
            Broadcast => offer.broadcast,
            _ => true,
        }
    }

    fn describe(self) -> (&'static str, Value) {
        let text = |about: &str| json!({ "type": "string", "description": about });
        let peer = || text("The id of the peer, or its name if no other peer has it (see list_peers).");
        let task = || {
            text(
                "What the peer is to do. It knows nothing of this conversation: say everything that it needs.",
            )
        };
        let ticket = || text("The ticket of this conversation, if your instructions name one.");
        let wait = json!({ "type": "integer", "minimum": 0, "maximum": 60, "description": "Seconds to wait for the answer; 20 by default." });
        let scope = || json!({ "type": "string", "enum": ["LOCAL", "TEAM", "GLOBAL"] });
        let object = |properties: Value, required: &[&str]| json!({ "type": "object", "properties": properties, "required": required });
        match self {
            ListPeers => (
                "Lists the workspaces that you can delegate to: name, id, role, status, skills.",
                object(json!({}), &[]),
            ),
            WorkspaceInfo => (
                "Tells who you are on the platform: id, name, role, tier, status, parent.",
                object(json!({}), &[]),
            ),
            Delegate => (
                "Gives a task to a peer and waits a short time for the answer. If there is none yet, you get a delegation_id; the answer comes later as a message, or ask with check_task_status.",
                object(
                    json!({ "workspace_id": peer(), "task": task(), "wait_seconds": wait, "ticket": ticket() }),
                    &["workspace_id", "task"],
                ),
            ),
            DelegateAsync => (
                "Gives a task to a peer and returns at once with a delegation_id. The answer comes later as a message, or ask with check_task_status.",
                object(
                    json!({ "workspace_id": peer(), "task": task(), "ticket": ticket() }),
                    &["workspace_id", "task"],
                ),
            ),
            CheckTask => (
                "Tells the state of a delegation and its answer. Without task_id it lists the newest delegations.",
                object(
                    json!({
                        "task_id": text("The delegation_id."),
                        "workspace_id": text("Not needed."),
                        "offset": { "type": "integer", "minimum": 0, "description": "Where to read on in a long answer." },
                    }),
                    &[],
                ),
            ),
            CancelDelegation => (
                "Stops waiting for the answer to a delegation. The peer itself cannot be stopped.",
                object(json!({ "task_id": text("The delegation_id.") }), &["task_id"]),
            ),
            RouteToTeam => (
                "Shows the members of your team for a task, or gives the task to the member that you prefer.",
                object(
                    json!({ "task": task(), "preferred_member_id": peer(), "ticket": ticket() }),
                    &["task"],
                ),
            ),
            SendMessage => (
                "Shows a message to the person who uses this workspace, with files if you like.",
                object(
                    json!({
                        "message": text("The message."),
                        "attachments": { "type": "array", "maxItems": 10, "items": { "type": "string" }, "description": "Absolute paths of files." },
                    }),
                    &["message"],
                ),
            ),
            CreateApproval => (
                "Asks a person to approve an action before you do it. Returns at once; the decision comes later as a message.",
                object(
                    json!({ "action": text("What you want to do."), "reason": text("Why.") }),
                    &["action"],
                ),
            ),
            CreateRequest => (
                "Asks a person to do or to approve something. Returns at once; the answer comes later as a message.",
                object(
                    json!({
                        "kind": { "type": "string", "enum": ["task", "approval"] },
                        "title": text("The request in a line."),
                        "detail": text("Everything that the person needs to know."),
                        "priority": { "type": "integer", "minimum": 0, "maximum": 10 },
                    }),
                    &["kind", "title"],
                ),
            ),
            CheckRequests => (
                "Lists your requests to people, and what was decided.",
                object(json!({ "status": text("Only those with this status, such as pending.") }), &[]),
            ),
            CommitMemory => (
                "Remembers a text beyond this conversation: LOCAL for yourself, TEAM for your team, GLOBAL for everybody.",
                object(json!({ "content": text("What to remember."), "scope": scope() }), &["content"]),
            ),
            RecallMemory => (
                "Finds what was remembered, by words and scope. Without a query it lists the newest.",
                object(json!({ "query": text("Words to look for."), "scope": scope() }), &[]),
            ),
            ChatHistory => (
                "Reads what you and a peer wrote to each other, oldest first.",
                object(
                    json!({
                        "peer_id": peer(),
                        "limit": { "type": "integer", "minimum": 1, "maximum": 500, "description": "20 by default." },
                        "before_ts": text("Only what is older than this RFC 3339 time."),
                    }),
                    &["peer_id"],
                ),
            ),
            Broadcast => (
                "Shows the first 120 characters of a message to all workspaces that you can reach. They do not answer.",
                object(json!({ "message": text("The message.") }), &["message"]),
            ),
        }
    }
}

/// The tools that are offered.
pub(super) fn tools(offer: Offer) -> Vec<Tool> {
    let tool = |(name, tool): (&'static str, Name)| {
        let first = NAMES.into_iter().find(|(_, known)| *known == tool).map_or(name, |(first, _)| first);
        let (description, input_schema) = tool.describe();
        let description = match first == name {
            true => description.to_owned(),
            false => format!("The older name of {first}. {description}"),
        };
        Tool { name, description, input_schema }
    };
    NAMES.into_iter().filter(|(_, name)| name.is_offered(offer)).map(tool).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_schema_and_the_list_fits_what_is_offered() {
        let all = tools(Offer { team: true, broadcast: true });
        assert_eq!(all.len(), NAMES.len());
        for tool in &all {
            assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
            assert!(tool.description.ends_with('.'), "{}", tool.name);
        }
        let few: Vec<_> =
            tools(Offer { team: false, broadcast: false }).iter().map(|tool| tool.name).collect();
        assert!(!few.contains(&"route_task_to_team") && !few.contains(&"broadcast_message"));
        assert_eq!(few.len(), NAMES.len() - 2);
        assert_eq!(Name::find("run_code"), None);
    }
}
