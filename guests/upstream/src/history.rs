//! What was said in a conversation before a turn, as the messages of a chat completion.
//!
//! The host gives it ([`state::history`]): turns of the same caller that ended well. Here it becomes text that any model
//! takes: it begins with the user, and two messages of the same side in a row are one, since some models want both sides
//! to take turns. What a model thought aloud is taken out of its answers, because thoughts that come back are taken for
//! facts. Bounded by messages and bytes, the newest stay. A conversation that cannot be read is no reason to fail a turn: it is
//! told to the operator, and the turn goes out alone.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use talaria_guest::{Content, Message, Part, Role, log, state};

/// Messages that are sent along.
const MESSAGES: u32 = 100;
/// Bytes of them, some sixty thousand tokens: more would leave no room for the answer in most models.
const BYTES: usize = 256 << 10;

/// Who remembers a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remembers {
    /// The upstream, where it is known to; else the host.
    #[default]
    Auto,
    /// The upstream, in a session of its own.
    Session,
    /// The host: each turn is sent with the messages before it.
    Messages,
    /// Nobody.
    None,
}

/// One message, as a chat completion has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Said {
    /// What is said.
    pub content: String,
    /// Who says it: `user` or `assistant`.
    pub role: &'static str,
}

/// The schema of the setting.
#[must_use]
pub fn schema(auto: &str) -> Value {
    json!({
        "enum": ["auto", "session", "messages", "none"],
        "description": format!(
            "Who remembers a conversation: the upstream in a session of its own (`session`), the host, which sends the \
             messages before each turn along (`messages`), or nobody (`none`). {auto}"
        ),
        "default": "auto",
    })
}

/// What was said before this turn.
#[must_use]
pub fn messages() -> Vec<Said> {
    match state::history(MESSAGES) {
        Ok(history) => chat(&history),
        Err(error) => {
            let what = format!("the turn goes out without the conversation before it: {}", error.message);
            log::write(log::Level::Warn, &what, None);
            Vec::new()
        }
    }
}

fn chat(history: &[Message]) -> Vec<Said> {
    let mut room = BYTES;
    let mut newest: Vec<Said> = Vec::new();
    for message in history.iter().rev() {
        let (role, content) = match message.role {
            Role::User => ("user", text(&message.parts)),
            Role::Agent => ("assistant", without_thoughts(&text(&message.parts)).to_owned()),
        };
        if content.is_empty() {
            continue;
        }
        match room.checked_sub(content.len()) {
            Some(left) => room = left,
            None => break,
        }
        match newest.last_mut().filter(|next| next.role == role) {
            Some(next) => next.content = format!("{content}\n\n{}", next.content),
            None => newest.push(Said { content, role }),
        }
    }
    while newest.last().is_some_and(|oldest| oldest.role != "user") {
        newest.pop();
    }
    newest.reverse();
    newest
}

/// A message as text: its texts and data, and the names of its files.
fn text(parts: &[Part]) -> String {
    let pieces = parts.iter().map(|part| match &part.content {
        Content::Text(text) | Content::Data(text) => text.trim().to_owned(),
        Content::Uri(uri) => format!("[{}]", part.filename.as_deref().unwrap_or(uri)),
        Content::Bytes(_) => {
            let kind = part.media_type.as_deref().unwrap_or("a file");
            format!("[{}]", part.filename.as_deref().unwrap_or(kind))
        }
    });
    pieces.filter(|piece| !piece.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The text behind what a model thought aloud at its beginning.
fn without_thoughts(text: &str) -> &str {
    let mut rest = text.trim();
    while let Some(thought) = rest.strip_prefix("<think>") {
        // One that does not end was cut off, and there is no answer behind it.
        rest = thought.split_once("</think>").map_or("", |(_, answer)| answer.trim_start());
    }
    rest
}
