//! Every turn ends, and what it emitted is stored.

use std::time::Duration;

use talaria_turns::{Event, Limits, Part, Principal, SendError, State, Task};

use crate::kit::{message, service, text};

async fn run(prompt: &str) -> std::sync::Arc<Task> {
    let (turns, _) = service(Limits::default());
    turns.send(message(prompt)).await.unwrap().settled().await
}

#[tokio::test]
async fn the_caller_reads_the_text_of_a_failure() {
    let task = run("fail").await;
    assert_eq!(task.status.state, State::Failed);
    assert_eq!(text(task.text_reply()), "[upstream] broken");
}

#[tokio::test]
async fn a_panic_ends_its_turn_only() {
    let task = run("panic").await;
    assert_eq!(task.status.state, State::Failed);
    assert!(text(task.text_reply()).contains("panicked"));
}

#[tokio::test]
async fn deltas_that_add_up_to_the_answer_are_the_answer() {
    let task = run("stream").await;
    assert_eq!(task.artifacts.len(), 1);
    assert_eq!(task.artifacts[0].parts, vec![Part::text("Hello")]);
}

#[tokio::test]
async fn an_answer_lists_each_tool_call_once_and_briefly() {
    let task = run("use tools").await;
    let trace = task.metadata["tool_trace"].as_array().unwrap();
    assert_eq!(trace.len(), 40);
    assert_eq!(trace[1]["tool"], "ls");
    let input = trace[1]["input"].as_str().unwrap();
    assert!(input.starts_with("1 x") && input.chars().count() == 200, "{input}");
    assert_eq!(run("stream").await.metadata.get("tool_trace"), None);
}

#[tokio::test]
async fn the_whole_answer_follows_its_pieces_in_the_log() {
    let (turns, _) = service(Limits::default());
    let accepted = turns.send(message("stream")).await.unwrap();
    let mut reader = accepted.reader();
    let mut wholes = Vec::new();
    while let Some(entry) = reader.next().await.unwrap() {
        if let Event::Whole(artifact) = &*entry.event {
            wholes.push((entry.sequence, artifact.parts.clone()));
        }
    }
    assert_eq!(wholes, [(5, vec![Part::text("Hello")])], "before the end, once");
}

#[tokio::test]
async fn an_answer_that_contradicts_its_deltas_replaces_them() {
    assert_eq!(text(run("contradict").await.text_reply()), "right");
}

#[tokio::test]
async fn a_drain_fails_the_turns_that_do_not_end() {
    let (turns, _) = service(Limits::default());
    let accepted = turns.send(message("wait")).await.unwrap();
    assert_eq!(turns.drain(Duration::from_millis(1)).await, 1);
    let id = accepted.task.id.clone();
    let task = accepted.settled().await;
    assert_eq!(task.status.state, State::Failed);
    assert_eq!(text(task.text_reply()), "interrupted by a shutdown");
    assert_eq!(turns.task(&Principal::anyone(), &id).await.unwrap().status.state, State::Failed);
    assert!(matches!(turns.send(message("hi")).await, Err(SendError::Draining)));
    assert_eq!(turns.refused().draining, 1);
}
