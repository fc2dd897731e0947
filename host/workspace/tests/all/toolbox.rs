//! The same tools for executors of the host.

use serde_json::json;
use talaria_mcp::Tools;
use talaria_turns::{CallingTurn, ContextId, Principal, TaskId, ToolError, Toolbox};
use talaria_workspace::OfferedTools;

use crate::kit::{Agent, platform};

#[tokio::test]
async fn an_executor_calls_the_same_tools_for_its_turn_without_a_ticket() {
    let platform = platform().await;
    let agent = Agent::new(&platform).await;
    let tools: &dyn Toolbox = agent.tools.as_ref();
    let turn = CallingTurn {
        owner: Principal::named("ann"),
        task: TaskId::fresh(),
        context: ContextId::fresh(),
        traceparent: None,
    };
    let listed = tools.tools().await;
    let names: Vec<_> =
        Tools::list(agent.tools.as_ref()).await.iter().map(|tool| tool.name.to_owned()).collect();
    assert_eq!(listed.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>(), names);
    assert!(listed.iter().all(|tool| tool.input_schema["properties"].get("ticket").is_none()));
    let offered = OfferedTools { broadcast: true };
    assert_eq!(offered.tools().await, listed, "`check` knows the same");
    assert!(offered.call(&turn, "list_peers", json!({})).await.is_err());

    let peers = tools.call(&turn, "list_peers", json!({})).await.unwrap();
    assert!(peers.contains("\"id\":\"peer-1\""), "{peers}");
    let arguments = json!({ "workspace_id": "peer-1", "task": "x", "ticket": "another's" });
    let said = tools.call(&turn, "delegate_task_async", arguments).await.unwrap();
    assert!(said.contains("\"status\":\"working\""), "the turn counts, not a ticket: {said}");
    let refused = tools.call(&turn, "delegate_task", json!({ "workspace_id": 7 })).await.unwrap();
    assert!(refused.contains("\"status\":\"refused\"") && refused.contains("next_step"), "{refused}");
    let unknown = tools.call(&turn, "run_code", json!({})).await;
    assert_eq!(unknown, Err(ToolError::Unknown("run_code".into())));
}
