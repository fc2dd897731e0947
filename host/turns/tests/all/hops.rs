//! A message that passed through too many hosts is rejected before anything is written.

use serde_json::{Value, json};
use talaria_turns::{HopsError, Incoming, Limits, Message, Principal, Query, SendError, Turns};

use crate::kit::{message, service};

fn passed_through(hops: Value) -> Incoming {
    let incoming = message("hi");
    let metadata = json!({ "talaria/hops": hops }).as_object().cloned();
    Incoming { message: Message { metadata, ..(*incoming.message).clone() }.into(), ..incoming }
}

async fn tasks(turns: &Turns) -> usize {
    let query = Query { context: None, state: None, since: None, after: None, limit: 100, bytes: 1 << 20 };
    turns.list(&Principal::anyone(), &query).await.unwrap().total
}

#[tokio::test]
async fn a_message_that_passed_through_too_many_hosts_leaves_nothing() {
    let (turns, _) = service(Limits { hops: 2, ..Limits::default() });
    turns.send(passed_through(json!(2))).await.unwrap().settled().await;
    for (hops, expected) in
        [(json!(3), HopsError::TooMany { hops: 3, limit: 2 }), (json!("3"), HopsError::Malformed)]
    {
        match turns.send(passed_through(hops)).await.map(drop) {
            Err(SendError::Hops(error)) => assert_eq!(error, expected),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(tasks(&turns).await, 1);
}

#[tokio::test]
async fn an_answer_counts_like_any_message() {
    let (turns, _) = service(Limits { hops: 2, ..Limits::default() });
    let asked = turns.send(message("ask")).await.unwrap().settled().await;
    let answer = Incoming { task: Some(asked.id.clone()), ..passed_through(json!(3)) };
    assert!(matches!(turns.send(answer).await, Err(SendError::Hops(_))));
    assert_eq!(turns.task(&Principal::anyone(), &asked.id).await.unwrap().version, asked.version);
}
