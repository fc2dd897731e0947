//! The host checks what a component returns as its transcript.

use std::time::Duration;

use talaria_engine::{Limits, Page};
use talaria_turns::{Failure, FailureKind};

use super::hostile;

async fn read(attack: &str, since: u32, limit: u32) -> Result<Page, Failure> {
    let limits = Limits { cpu: Duration::from_millis(300), ..Limits::default() };
    let rig = hostile().await.setting("transcript", attack).limits(limits);
    rig.executor().transcript(since, limit).await
}

#[tokio::test]
async fn lines_outside_the_query_are_rejected() {
    assert_eq!(read("", 7, 10).await.unwrap().lines[0].number, 8);
    for attack in ["backwards", "before", "many", "no-json", "no-object"] {
        let failure = read(attack, 7, 10).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Internal, "{attack}: {failure:?}");
        assert!(
            failure.message.starts_with("the executor's transcript is malformed: "),
            "{attack}: {failure:?}"
        );
    }
}

#[tokio::test]
async fn a_transcript_that_spins_or_floods_is_stopped() {
    let spun = read("spin", 0, 10).await.unwrap_err();
    assert_eq!(spun.message, "the executor computed for longer than 0.3s and was stopped");
    let flooded = read("huge", 0, 10).await.unwrap_err();
    assert_eq!(flooded.kind, FailureKind::Internal, "{flooded:?}");
}

#[tokio::test]
async fn invalid_times_are_left_out_and_calls_that_need_a_turn_fail() {
    let times = read("times", 0, 10).await.unwrap();
    assert_eq!((times.lines.len(), times.lines.iter().filter(|line| line.at.is_some()).count()), (4, 0));
    assert_eq!(read("turn", 0, 10).await.unwrap().lines[0].text, "[true, true, true]");
}
