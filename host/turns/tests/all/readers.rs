//! Readers: every event once, in order, from any place on, each at its own pace.

use talaria_turns::{Entry, Event, FollowError, Limits, Principal, Reader, State};

use crate::kit::{message, service, text};

async fn rest(mut reader: Reader) -> Vec<Entry> {
    let mut entries = Vec::new();
    while let Some(entry) = reader.next().await.unwrap() {
        entries.push(entry);
    }
    entries
}

#[tokio::test]
async fn a_reader_sees_every_event_once_and_in_order() {
    let (turns, _) = service(Limits::default());
    let accepted = turns.send(message("stream")).await.unwrap();
    let entries = rest(accepted.reader()).await;
    let sequence: Vec<u64> = entries.iter().map(|entry| entry.sequence).collect();
    let first = accepted.task.version + 1;
    assert_eq!(sequence, (first..first + sequence.len() as u64).collect::<Vec<_>>());
    let states: Vec<State> = entries.iter().filter_map(|entry| entry.event.state()).collect();
    assert_eq!(states, [State::Working, State::Completed]);
}

#[tokio::test]
async fn a_streamed_answer_is_not_sent_again() {
    for prompt in ["stream", "stream blanks"] {
        let (turns, _) = service(Limits::default());
        let accepted = turns.send(message(prompt)).await.unwrap();
        let entries = rest(accepted.reader()).await;
        let said = entries.iter().filter(|entry| matches!(*entry.event, Event::Artifact { .. })).count();
        assert_eq!(said, 2, "{prompt}: one for each delta");
    }
}

#[tokio::test]
async fn a_reader_resumes_exactly_where_it_was_cut_off() {
    let (turns, _) = service(Limits::default());
    let accepted = turns.send(message("stream")).await.unwrap();
    let (id, all) = (accepted.task.id.clone(), rest(accepted.reader()).await);
    for (at, entry) in all.iter().enumerate() {
        let followed = turns.follow(&Principal::anyone(), &id, Some(entry.sequence)).await;
        if at + 1 == all.len() {
            assert!(matches!(followed, Err(FollowError::Over { .. })), "there is nothing after the last");
        } else {
            assert_eq!(rest(followed.unwrap().1).await, all[at + 1..], "after {}", entry.sequence);
        }
    }
    let beyond = turns.follow(&Principal::anyone(), &id, Some(1_000)).await;
    assert!(matches!(beyond, Err(FollowError::NoSuchEvent { after: 1_000, .. })));
}

#[tokio::test]
async fn a_reader_of_a_task_that_asks_sees_the_next_turn() {
    let (turns, _) = service(Limits::default());
    let asked = turns.send(message("ask")).await.unwrap().settled().await;
    let (_, reader) = turns.follow(&Principal::anyone(), &asked.id, None).await.unwrap();
    let mut answer = message("hi");
    answer.task = Some(asked.id.clone());
    turns.send(answer).await.unwrap().settled().await;
    let states: Vec<State> = rest(reader).await.iter().filter_map(|entry| entry.event.state()).collect();
    assert_eq!(states.last(), Some(&State::Completed));
}

#[tokio::test]
async fn a_reader_that_is_far_behind_reads_from_the_store() {
    let (turns, _) = service(Limits::default());
    let accepted = turns.send(message("flood")).await.unwrap();
    let slow = accepted.reader();
    let task = accepted.settled().await;
    let entries = rest(slow).await;
    let deltas = entries.iter().filter(|entry| matches!(*entry.event, Event::Artifact { .. })).count();
    assert_eq!(deltas, 1_000);
    assert_eq!(entries.last().map(|entry| entry.sequence), Some(task.version));
    assert_eq!(text(task.text_reply()).len(), 1_000);
}
