//! What the A2A client makes of a hostile server: its card, its answers, and its text on a terminal.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use talaria_a2a::fuzz::{Dialect, write_task};
use talaria_client::fuzz::{Transcript, flowing_text, next_step, one_line, same_origin, tool_progress};
use talaria_client::{Answer, Card, Printable, Update};
use talaria_turns::{Event, Part, State, Task};

fuzz_target!(|text: &str| {
    if let Ok(raw) = serde_json::from_str::<Value>(text) {
        check_answer(&raw);
        check_card(&raw);
    }
    let (one, other) = text.split_once('\n').unwrap_or((text, text));
    check_origins(one, other);
    check_transcript(text);
    check_line(text);

    let printed = Printable(text).to_string();
    let is_control = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    assert!(!printed.contains(is_control), "a terminal would obey {printed:?}");
    assert!(text.contains(is_control) || printed == text);

    // The client understands what our own server writes.
    for state in [State::Working, State::InputRequired, State::Completed, State::Failed] {
        let mut task = Task::new("t".parse().expect("an id"), "c".parse().expect("an id"));
        task.apply(&Event::said(state, vec![Part::text(text)])).expect("a legal move");
        for dialect in [Dialect::V1, Dialect::V03] {
            let written = write_task(dialect, &Arc::new(task.clone())).expect("a task can be written");
            let written: Value = serde_json::from_str(&written).expect("JSON");
            let result =
                if dialect == Dialect::V1 { serde_json::json!({ "task": written }) } else { written };
            let answer = check_answer(&result).expect("an answer");
            assert_eq!(answer.status.task.as_deref(), Some("t"));
            assert_eq!(answer.status.state, Some(state.to_string()));
            assert_eq!(answer.text(), text);
        }
    }
});

/// An answer serializes to what arrived, and its status is consistent.
fn check_answer(raw: &Value) -> Option<Answer> {
    if let Update::Status(update) | Update::Artifact(update) = Update::of(raw) {
        let _ = tool_progress(update).map(|line| one_line(&line));
        let _ = flowing_text(&update["artifact"]);
    }
    let answer = Answer::read(raw.clone())?;
    assert_eq!(serde_json::to_value(&answer).ok().as_ref(), Some(raw), "an answer's JSON is what arrived");
    let status = &answer.status;
    assert!(!status.is_terminal() || (status.is_settled() && !status.wants_input()));
    assert!(!status.wants_input() || (status.is_settled() && status.is_reply()));
    let _ = (status.summary(), next_step(status, "http://h"));
    Some(answer)
}

/// The client calls only addresses that are in the card.
fn check_card(raw: &Value) {
    let Some(card) = raw.as_object().cloned().and_then(Card::read) else { return };
    if let Ok(interface) = card.interface(None) {
        let text = raw.to_string();
        assert!(text.contains(&Value::from(interface.url.as_str()).to_string()), "{}", interface.url);
    }
}

/// Two addresses with the same origin have the same origin for a browser too: a token goes to both.
fn check_origins(one: &str, other: &str) {
    assert_eq!(same_origin(one, other), same_origin(other, one));
    if !same_origin(one, other) {
        return;
    }
    let parts = |address: &str| {
        let url = url::Url::parse(address).ok()?;
        let host = match url.host_str()? {
            "127.0.0.1" | "[::1]" => "localhost".to_owned(),
            host => host.to_owned(),
        };
        Some((url.scheme().to_owned(), host, url.port_or_known_default()))
    };
    if let (Some(one), Some(other)) = (parts(one), parts(other)) {
        assert_eq!(one, other);
    }
}

/// An artifact is printed in full, whether it arrives in pieces or as snapshots.
fn check_transcript(text: &str) {
    let mut transcript = Transcript::default();
    let mut shown = String::new();
    let mut whole = String::new();
    for line in text.split_inclusive('\n') {
        whole.push_str(line);
        // A piece, or a snapshot of everything so far after a gap.
        let piece =
            if line.len() % 2 == 0 { transcript.append("a", line) } else { transcript.replace("a", &whole) };
        shown.extend(piece.map(|piece| piece.text));
    }
    assert_eq!(shown, whole);
    assert!(transcript.replace("a", &whole).is_none(), "no text is printed twice");
}

fn check_line(text: &str) {
    let line = one_line(text);
    assert!(!line.contains(['\n', '\r']));
    assert_eq!(one_line(&line), line);
}
