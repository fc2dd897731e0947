//! The modules of `talaria send` that read what a server says, and what must hold of them.

#[path = "../../../../../host/talaria/src/send/answer.rs"]
mod answer;
#[path = "../../../../../host/talaria/src/send/card.rs"]
mod card;
#[path = "../../../../../host/talaria/src/send/transcript.rs"]
mod transcript;
#[path = "../../../../../host/talaria/src/send/update.rs"]
mod update;

use serde_json::Value;

use self::answer::{Answer, flowing_text};
use self::card::{Card, origin, same_origin};
use self::transcript::Transcript;
use self::update::{Update, one_line, tool_progress};

/// An answer says what came, and its state is one thing.
pub(super) fn check_answer(raw: &Value) -> Option<(Option<String>, Option<String>, String)> {
    if let Update::Status(update) | Update::Artifact(update) = Update::of(raw) {
        let _ = tool_progress(update).map(|line| one_line(&line));
        let _ = flowing_text(&update["artifact"]);
    }
    let answer = Answer::read(raw.clone())?;
    assert_eq!(serde_json::to_value(&answer).ok().as_ref(), Some(raw), "an answer's JSON is what came");
    let standing = &answer.standing;
    assert!(!standing.is_over() || (standing.is_settled() && !standing.asks()));
    assert!(!standing.asks() || (standing.is_settled() && standing.is_reply()));
    let _ = (standing.summary(), standing.next_step("http://h"));
    Some((standing.task.clone(), standing.state.clone(), answer.to_string()))
}

/// What is called is in the card.
pub(super) fn check_card(raw: &Value) {
    let Some(card) = raw.as_object().cloned().and_then(Card::read) else { return };
    if let Ok(interface) = card.interface(None) {
        let text = raw.to_string();
        assert!(text.contains(&Value::from(interface.url.as_str()).to_string()), "{}", interface.url);
    }
}

/// Two addresses that pass for one place are one place to a browser too: a token goes to both.
pub(super) fn check_origins(one: &str, other: &str) {
    assert!(one.starts_with(origin(one)));
    assert_eq!(same_origin(one, other), same_origin(other, one));
    if !same_origin(one, other) {
        return;
    }
    let place = |address: &str| {
        let url = url::Url::parse(address).ok()?;
        let host = match url.host_str()? {
            "127.0.0.1" | "[::1]" => "localhost".to_owned(),
            host => host.to_owned(),
        };
        Some((url.scheme().to_owned(), host, url.port_or_known_default()))
    };
    if let (Some(one), Some(other)) = (place(one), place(other)) {
        assert_eq!(one, other);
    }
}

/// What is shown of an artifact is its text, however it came.
pub(super) fn check_transcript(text: &str) {
    let mut transcript = Transcript::default();
    let mut shown = String::new();
    let mut whole = String::new();
    for line in text.split_inclusive('\n') {
        whole.push_str(line);
        // A piece, or a snapshot of all of it after a gap.
        let piece =
            if line.len() % 2 == 0 { transcript.append("a", line) } else { transcript.replace("a", &whole) };
        shown.extend(piece.map(|piece| piece.text));
    }
    assert_eq!(shown, whole);
    assert!(transcript.replace("a", &whole).is_none(), "nothing is said twice");
}

pub(super) fn check_line(text: &str) {
    let line = one_line(text);
    assert!(!line.contains(['\n', '\r']));
    assert_eq!(one_line(&line), line);
}
