//! Each tool, and what it refuses.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_fakes::Mood;
use talaria_mcp::Tools as _;
use talaria_store::Memory;

use crate::kit::{Agent, platform};

#[tokio::test]
async fn peers_and_the_own_workspace_are_shown_without_the_platforms_secrets() {
    let platform = platform().await;
    let agent = Agent::new(&platform).await;
    let peers = agent.ask("list_peers", json!({})).await;
    assert_eq!(
        (&peers["count"], &peers["peers"][0]["id"], &peers["peers"][1]["name"]),
        (&json!(2), &json!("peer-1"), &json!("Ben"))
    );
    assert_eq!(peers["peers"][0]["skills"], json!(["papers"]));
    assert_eq!(peers["peers"][1]["role"], "Ben's role");
    let info = agent.ask("get_workspace_info", json!(null)).await;
    assert_eq!((&info["id"], &info["tier"], info.get("auth_token")), (&json!("ws-1"), &json!(1), None));
    let team = agent.ask("route_task_to_team", json!({ "task": "look it up" })).await;
    assert_eq!((&team["action"], &team["members"][0]["id"]), (&json!("choose_member"), &json!("peer-1")));
    assert_eq!(team["members"].as_array().unwrap().len(), 1, "Ben is no member");
    let names: Vec<_> = agent.tools.list().await.iter().map(|tool| tool.name).collect();
    for name in ["route_task_to_team", "delegate_to_workspace", "search_memory", "broadcast_message"] {
        assert!(names.contains(&name), "{name}");
    }
    platform.set_surroundings(json!([]), "");
    assert!(!agent.tools.list().await.iter().any(|tool| tool.name == "route_task_to_team"));
    assert_eq!(agent.ask("route_task_to_team", json!({ "task": "x" })).await["status"], "refused");
    assert!(agent.tools.call("run_code", json!({})).await.is_none());
}

#[tokio::test]
async fn messages_and_requests_reach_people() {
    let platform = platform().await;
    let agent = Agent::new(&platform).await;
    let files = agent.folder.path().join("files");
    fs::write(files.join("report.txt"), "the report").unwrap();
    let attachments = json!([files.join("report.txt")]);
    let sent =
        agent.ask("send_message_to_user", json!({ "message": "done", "attachments": attachments })).await;
    assert_eq!(sent["status"], "sent");
    let notice = &platform.notices().await[0];
    assert_eq!(
        (&notice["message"], &notice["attachments"][0]["uri"]),
        (&json!("done"), &json!("upload://0"))
    );
    assert_eq!(notice["attachments"][0].get("token"), None, "only what the message needs");
    assert!(
        platform.uploads()[0].contains("filename=\"report.txt\"")
            && platform.uploads()[0].contains("the report")
    );

    let made =
        agent.ask("create_request", json!({ "kind": "task", "title": "sign it", "priority": 3 })).await;
    assert_eq!((&made["status"], &made["request_id"]), (&json!("pending"), &json!("req-1")));
    assert_eq!(platform.requests()[0]["recipient_type"], "user");
    let listed = agent.ask("check_requests", json!({})).await;
    assert_eq!((&listed["count"], &listed["requests"][0]["title"]), (&json!(1), &json!("sign it")));
    // An older platform has approvals only.
    platform.deny("requests");
    let made = agent.ask("request_approval", json!({ "action": "delete it", "reason": "old" })).await;
    assert_eq!(made["request_id"], "app-2");
    assert_eq!(agent.ask("check_requests", json!({})).await["count"], 2);
    let history = agent.call("chat_history", json!({ "peer_id": "Ann" })).await;
    let (first, second) = (history.find("you: first"), history.find("Ann: second"));
    assert!(first.is_some() && first < second && history.starts_with("<untrusted-peer-text"), "{history}");
    assert_eq!(agent.ask("broadcast_message", json!({ "message": "hello" })).await["delivered"], 3);
}

#[tokio::test]
async fn only_files_of_the_allowed_folders_are_sent() {
    let platform = platform().await;
    let agent = Agent::new(&platform).await;
    let secret = agent.folder.path().join(".auth_token");
    fs::write(&secret, "the-token").unwrap();
    std::os::unix::fs::symlink(&secret, agent.folder.path().join("files/link")).unwrap();
    for path in [
        secret.clone(),
        agent.folder.path().join("files/link"),
        agent.folder.path().join("files/../.auth_token"),
    ] {
        let said = agent.ask("send_message_to_user", json!({ "message": "x", "attachments": [path] })).await;
        assert_eq!(said["status"], "refused", "{said}");
    }
    assert!(platform.uploads().is_empty(), "nothing was uploaded");
}

#[tokio::test]
async fn memory_is_scrubbed_and_searched() {
    let platform = platform().await;
    let agent = Agent::new(&platform).await;
    let kept = agent
        .ask(
            "commit_memory",
            json!({ "content": "the key is sk-abcdefghijklmnopqrstuvwxyz123456", "scope": "team" }),
        )
        .await;
    assert_eq!((&kept["status"], &kept["scope"]), (&json!("remembered"), &json!("TEAM")));
    let stored = platform.memories()[0]["content"].as_str().unwrap().to_owned();
    assert!(!stored.contains("abcdefghijklmnop"), "{stored}");
    platform.remember(json!({ "content": "fish swim", "scope": "LOCAL" }));
    let found = agent.call("search_memory", json!({ "query": "Fish" })).await;
    assert!(found.contains("[LOCAL] fish swim") && !found.contains("the key"), "{found}");
    platform.deny("memory");
    let said = agent.ask("commit_memory", json!({ "content": "x" })).await;
    assert!(said["reason"].as_str().unwrap().contains("memory plugin"), "{said}");
}

#[tokio::test]
async fn every_refusal_is_an_ordinary_result_with_a_next_step() {
    let platform = platform().await;
    let agent = Agent::new(&platform).await;
    let long = "x".repeat(10 << 20);
    for (tool, arguments) in [
        ("delegate_task", json!({ "workspace_id": "ws-1", "task": "x" })),
        ("delegate_task", json!({ "workspace_id": "stranger", "task": "x" })),
        ("delegate_task", json!({ "workspace_id": "peer-1" })),
        ("delegate_task", json!({ "workspace_id": 7, "task": "x" })),
        ("delegate_task", json!({ "workspace_id": "peer-1", "task": "x", "wait_seconds": 61 })),
        ("delegate_task", json!({ "workspace_id": "peer-1", "task": long })),
        ("delegate_task", json!(["peer-1", "x"])),
        ("delegate_task", json!("peer-1")),
        ("check_task_status", json!({ "task_id": "no-such" })),
        ("check_task_status", json!({ "task_id": "x".repeat(1000) })),
        ("cancel_delegation", json!({})),
        ("route_task_to_team", json!({ "task": "x", "preferred_member_id": "peer-2" })),
        ("send_message_to_user", json!({ "message": "x", "attachments": "/etc/passwd" })),
        ("send_message_to_user", json!({ "message": "x", "attachments": [{}] })),
        ("create_request", json!({ "kind": "party", "title": "x" })),
        ("commit_memory", json!({ "content": "x", "scope": "WORLD" })),
        ("chat_history", json!({ "peer_id": "stranger" })),
    ] {
        let said = agent.ask(tool, arguments).await;
        assert_eq!(said["status"], "refused", "{tool}: {said}");
        assert!(said["next_step"].is_string() && said.to_string().len() < 1000, "{tool}: {said}");
    }
    assert_eq!(agent.refused.load(Ordering::Relaxed), 17, "each is counted");
    assert!(platform.delegated().is_empty(), "nothing reached the platform");
    for ability in ["talk_to_user", "broadcast", "delegate"] {
        platform.deny(ability);
    }
    let said = agent.ask("send_message_to_user", json!({ "message": "x" })).await;
    assert!(said["reason"].as_str().unwrap().contains("talk_to_user_disabled"), "{said}");
    assert_eq!(agent.ask("broadcast_message", json!({ "message": "x" })).await["status"], "refused");
    let said = agent.call("delegate_task", json!({ "workspace_id": "peer-1", "task": "x" })).await;
    assert!(said.contains("\"status\":\"failed\"") && said.contains("tool call failed"), "{said}");
}

#[tokio::test]
async fn a_platform_that_answers_nonsense_gives_clear_results() {
    let platform = platform().await;
    let agent = Agent::new(&platform).await;
    for mood in [Mood::Html, Mood::Empty, Mood::Huge, Mood::Refuses(410), Mood::Refuses(500)] {
        platform.be(mood);
        for (tool, arguments) in [
            ("list_peers", json!({})),
            ("get_workspace_info", json!({})),
            ("send_message_to_user", json!({ "message": "x" })),
            ("create_approval", json!({ "action": "x" })),
            ("check_requests", json!({})),
            ("commit_memory", json!({ "content": "x" })),
            ("recall_memory", json!({})),
            ("delegate_task", json!({ "workspace_id": "peer-1", "task": "x" })),
        ] {
            let said = agent.ask(tool, arguments).await;
            let is_said = matches!(said["status"].as_str(), Some("failed" | "refused"));
            assert!(is_said && said["reason"].is_string(), "{mood:?} {tool}: {said}");
            assert!(said.to_string().len() < 1000, "{mood:?} {tool}");
        }
    }
}

#[tokio::test]
async fn roles_decide_what_the_agent_may_do() {
    let platform = platform().await;
    let manifest = "rbac: {roles: [read-only]}\n";
    let agent = Agent::start(&platform, Arc::new(Memory::new(9)), manifest, Duration::from_secs(60)).await;
    for (tool, arguments) in [
        ("delegate_task", json!({ "workspace_id": "peer-1", "task": "x" })),
        ("delegate_to_workspace", json!({ "workspace_id": "peer-1", "task": "x" })),
        ("check_task_status", json!({})),
        ("send_message_to_user", json!({ "message": "x" })),
        ("create_approval", json!({ "action": "x" })),
        ("commit_memory", json!({ "content": "x" })),
    ] {
        let said = agent.ask(tool, arguments).await;
        assert!(said["reason"].as_str().unwrap().contains("read-only"), "{tool}: {said}");
    }
    assert_eq!(agent.call("recall_memory", json!({})).await, "No memories found.");
    assert_eq!(agent.ask("list_peers", json!({})).await["count"], 2);
    // An edit of the file counts at once.
    fs::write(agent.folder.path().join("config.yaml"), "rbac: {roles: [operator]}\n").unwrap();
    assert_eq!(agent.ask("commit_memory", json!({ "content": "x" })).await["status"], "remembered");
}

#[tokio::test]
async fn an_agent_in_a_loop_is_slowed_down() {
    let platform = platform().await;
    let agent = Agent::new(&platform).await;
    let mut last = Value::Null;
    for _ in 0..121 {
        last = agent.ask("check_task_status", json!({})).await;
    }
    assert!(last["reason"].as_str().unwrap_or_default().contains("120 calls"), "{last}");
}
