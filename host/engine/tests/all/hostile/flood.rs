//! What a turn makes the host store and log is bounded, whichever import it uses, and however it is divided.
//!
//! Each attack runs with the default limits and must leave behind no more than the budget of a turn.

use std::time::Duration;

use talaria_engine::Limits;
use talaria_rig::{Format, Logged, MailHost, Ran, Rig, Trace};
use talaria_turns::{Content, Emitted, FailureKind, Part};

use super::hostile;
use crate::contained::run;

/// What a turn may put out by default.
const OUTPUT: usize = 64 << 20;
/// The fixed part of an entry in a task's log.
const ENTRY: usize = 1024;

/// How many were accepted, and why the next one was not.
fn accepted(ran: &Ran) -> (usize, &str) {
    let (count, why) = ran.text().split_once(": ").expect("a count");
    (count.parse().expect("a number"), why)
}

/// The largest resident size of this process so far, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Runs a turn. Asserts that this process did not grow by more than the guest's memory, one call and the budget.
async fn within_memory(rig: &Rig, attack: &str) -> Ran {
    rig.run("hash").await;
    let before = peak();
    let ran = rig.run(attack).await;
    let (grown, limits) = (peak() - before, Limits::default());
    let most = limits.memory + 2 * limits.call_bytes + 2 * OUTPUT;
    assert!(grown < most, "{attack}: grew by {grown} bytes");
    ran
}

#[tokio::test]
async fn empty_events_are_bounded_by_their_fixed_part() {
    let ran = hostile().await.run("status 1000000").await;
    let (count, why) = accepted(&ran);
    assert_eq!((count, ran.events.len()), (OUTPUT / ENTRY, OUTPUT / ENTRY));
    assert_eq!(
        why,
        "executor hostile may not put out more than 67108864 bytes a turn; grant it with output = \"131072KiB\""
    );
}

#[tokio::test]
async fn the_number_of_events_is_bounded() {
    let limits = Limits { events: 1_000, ..Limits::default() };
    let rig = hostile().await.limits(limits);
    for attack in ["status 1000000", "questions 1000000", "checkpoints 1000000 1", "files 1000000 1"] {
        let ran = rig.run(attack).await;
        let (count, why) = accepted(&ran);
        let entries = if attack.starts_with("questions") { 2 } else { 1 };
        assert_eq!(count * entries, 1_000, "{attack}");
        assert_eq!(
            why,
            "executor hostile may not add more than 1000 events to a turn; grant it with events = 2000"
        );
    }
}

#[tokio::test]
async fn the_number_of_artifacts_is_bounded() {
    let ran = hostile().await.run("pieces 1001 x").await;
    assert_eq!(ran.text(), "the turn has made 1000 artifacts, the most; append to one of them");
    assert_eq!(ran.events.len(), 1_000);
}

#[tokio::test]
async fn file_names_and_media_types_count() {
    let rig = hostile().await;
    let ran = within_memory(&rig, "files 1000 3000000").await;
    assert_eq!(accepted(&ran), (0, "the event has 6000001 bytes; 1048576 are the most"));
    let ran = within_memory(&rig, "files 1000 500000").await;
    assert_eq!(accepted(&ran).0, OUTPUT / 1_001_281, "each has a million bytes, and its fixed parts");
}

#[tokio::test]
async fn empty_parts_count() {
    let ran = within_memory(&hostile().await, "parts 1000 10000").await;
    assert_eq!(accepted(&ran).0, 26, "each part has 256 bytes");
}

#[tokio::test]
async fn questions_that_are_withdrawn_count() {
    let ran = hostile().await.run("questions 1000000 100000").await;
    let (count, why) = accepted(&ran);
    assert_eq!(count, OUTPUT / (100_000 + 2 * ENTRY + 256), "{why}");
    assert_eq!(ran.questions.len(), count);
    assert!(why.contains("output = "), "{why}");
}

#[tokio::test]
async fn checkpoints_count() {
    let ran = hostile().await.run("checkpoints 1000000 65536").await;
    let (count, why) = accepted(&ran);
    assert_eq!(count, OUTPUT / (87_384 + ENTRY), "they are stored as base64: {why}");
    assert_eq!(ran.checkpoints.len(), count);
}

#[tokio::test]
async fn a_value_that_is_written_again_and_again_counts() {
    let ran = hostile().await.run("rewrites 1000000 60000").await;
    let (count, why) = accepted(&ran);
    assert_eq!(count, OUTPUT / (60_000 + ENTRY + 1), "{why}");
}

#[tokio::test]
async fn expected_replies_count() {
    let mail = MailHost::start().await;
    let limits = Limits { output_bytes: 1 << 20, ..Limits::default() };
    let ran = hostile().await.limits(limits).callbacks(mail.callbacks()).run("expectations 100000").await;
    let (count, why) = accepted(&ran);
    assert!((1_000..1_024).contains(&count), "{count}: {why}");
    assert!(why.contains("output = "), "{why}");
}

#[tokio::test]
async fn json_counts_as_the_tree_that_it_becomes() {
    let rig = hostile().await;
    let ran = within_memory(&rig, "zeros 1000 400000").await;
    assert_eq!(accepted(&ran).0, 2, "each value has 80 bytes in memory");
    let failure = within_memory(&rig, "zeros-outcome 8000000").await.failure().message.clone();
    assert!(failure.contains("may not put out more than"), "{failure}");
    let generous = Limits { output_bytes: 4 << 30, ..Limits::default() };
    let failure =
        within_memory(&rig.limits(generous), "zeros-outcome 8000000").await.failure().message.clone();
    assert_eq!(
        failure,
        "the executor's answer is malformed: part.data has so many values that it takes 640000160 bytes in memory; \
         67108864 are the most"
    );
}

#[tokio::test]
async fn an_answer_and_a_failure_are_charged_too() {
    let limits = Limits { output_bytes: 1 << 20, ..Limits::default() };
    let rig = hostile().await.limits(limits);
    assert!(
        rig.run("file-outcome 2000000").await.result.is_ok(),
        "a mebibyte is free, and a mebibyte is left"
    );
    let failure = rig.run("file-outcome 3000000").await.failure().clone();
    assert_eq!(failure.kind, FailureKind::Internal);
    assert_eq!(
        failure.message,
        "the executor's answer is too large: executor hostile may not put out more than 1048576 bytes a turn; \
         grant it with output = \"2048KiB\""
    );
    assert_eq!(rig.run("fail 1000").await.failure().message.len(), 1_000);
    let failure = rig.run("fail 3000000").await.failure().message.clone();
    assert_eq!(failure, "the executor failed, with a text that is too large to show");
}

#[tokio::test]
async fn open_spans_are_few_and_small() {
    let trace = Trace::start();
    let rig = hostile().await;
    let ran = within_memory(&rig, "spans 900 15000000").await;
    assert_eq!(ran.text(), "900", "a guest cannot see that a span does nothing");
    let spans = trace.guest_spans("attack.span");
    assert_eq!(spans.len(), 64);
    assert!(spans.iter().all(|attributes| attributes.len() < 2_100), "{}", spans[0].len());
    assert!(trace.everything().len() < 64 * 4_000, "{}", trace.everything().len());
}

#[tokio::test]
async fn a_long_span_name_is_not_repeated_in_every_line() {
    for format in [Format::Text, Format::Json] {
        let log = Logged::start(format);
        assert_eq!(hostile().await.run("span-name 100000 4000000").await.text(), "named");
        let text = log.text();
        assert!(text.lines().count() > 50, "{text}");
        // As many bytes as the grant allows in a second, and those for the time that the turn took.
        assert!(text.len() < 4 * (64 << 10), "{} bytes in {} lines", text.len(), text.lines().count());
    }
}

#[tokio::test]
async fn no_text_of_a_guest_forges_a_log_line() {
    let forged = "forge 0 aLF2026-01-01T00:00:00Z ERROR talaria: forgedCRESC[2Jb";
    let rig = hostile().await;
    let log = Logged::start(Format::Text);
    assert_eq!(rig.run(forged).await.text(), "forged");
    let text = log.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "a line, an attribute and an event: {text}");
    assert!(lines.iter().all(|line| line.contains("forged") && line.contains(" INFO ")), "{text}");
    assert!(!text.contains(['\r', '\u{1b}']), "{text:?}");
}

#[tokio::test]
async fn work_of_the_host_counts_as_computing() {
    let limits = Limits { cpu: Duration::from_millis(300), ..Limits::default() };
    let rig = hostile().await.limits(limits);
    for attack in ["scrub 0 1000000", "scrub 0 100", "parsed 0 10000", "rejected 0 3000000"] {
        let ran = rig.run(attack).await;
        let stopped = "the executor computed for longer than 0.3s and was stopped";
        assert_eq!(ran.failure().message, stopped, "{attack}");
    }
}

#[tokio::test]
async fn scrub_does_not_tell_whether_a_guess_is_right() {
    let rig = hostile().await.secret("PROBE_KEY", "correct-horse-battery");
    let guess = async |text: &str| rig.run(&format!("guess 0 {text}")).await.text().to_owned();
    assert_eq!(guess("correct-horse-battery").await, "false");
    assert_eq!(guess("Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5").await, "false");
    assert_eq!(guess("sk-abcdefghijklmnopqrstuvwx").await, "true", "shapes are no secret");
}

#[tokio::test]
async fn log_lines_are_charged_to_the_turn() {
    let rig = hostile().await.limits(Limits { output_bytes: 2_000, ..Limits::default() });
    let log = Logged::start(Format::Text);
    let executor = rig.executor();
    assert_eq!(run(&executor, &rig, "log 100").await.unwrap(), "logged");
    assert_eq!(log.text().lines().count(), 7, "each has 257 bytes: {}", log.text());
    assert_eq!(run(&executor, &rig, "log 1").await.unwrap(), "logged");
    assert!(log.text().contains("dropped=93"), "{}", log.text());
}

#[tokio::test]
async fn every_string_of_an_event_is_redacted() {
    let secret = "correct-horse-battery";
    let rig = hostile().await.secret("PROBE_KEY", secret);
    let ran = rig.run(&format!("everywhere 0 {secret}")).await;
    assert_eq!((ran.text(), ran.events.len()), ("5", 5));
    let said = format!("{:?}", ran.events);
    assert!(said.contains("[REDACTED:secret]") && !said.contains(secret), "{said}");
    assert!(!said.contains(&format!("{:?}", secret.as_bytes())), "{said}");
}

#[tokio::test]
async fn a_secret_that_is_split_over_the_pieces_of_artifacts_is_redacted() {
    let rig = hostile().await.secret("PROBE_KEY", "correct-horse-battery");
    for (pieces, last) in [("it is correct-|horse|-battery ok", "ok"), ("correct-horse|-batter", "batter")] {
        let ran = rig.run(&format!("pieces 3 {pieces}")).await;
        assert_eq!(ran.text(), "emitted");
        for id in ["a0", "a1", "a2"] {
            let said: String = ran.events.iter().map(|event| text_of(event, id)).collect();
            assert!(said.ends_with(last), "{said}");
            assert_eq!(said.contains("[REDACTED:secret]"), last == "ok", "{said}");
            assert!(!said.contains("correct-horse-battery"), "{said}");
        }
    }
}

fn text_of<'a>(event: &'a Emitted, wanted: &str) -> &'a str {
    match event {
        Emitted::Artifact { artifact, .. } if artifact.id == wanted => match artifact.parts.as_slice() {
            [Part { content: Content::Text(text), .. }] => text,
            other => panic!("{other:?}"),
        },
        _ => "",
    }
}
