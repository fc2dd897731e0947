//! The earlier messages of a context, as the messages of a chat completion.
//!
//! The host supplies them ([`state::history`]): turns of the same caller that ended well. They become text that any
//! model takes. The user speaks first, and consecutive messages of one side are joined, since some models want both
//! sides to take turns. Thoughts are removed from answers, because a model takes thoughts that come back for facts. The
//! number of messages and their bytes are bounded; the newest stay. If the history cannot be read, the operator's log
//! says so, and the turn goes out without it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use talaria_guest::{Content, Message, Part, Role, state};

use crate::warn;

/// The number of messages that are sent at most.
const MESSAGES: u32 = 100;
/// The bytes of them, some sixty thousand tokens; more would leave most models no room for the answer.
const BYTES: usize = 256 << 10;

/// Who remembers a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remembers {
    /// The upstream if it is known to, else the host.
    #[default]
    Auto,
    /// The upstream, in a session of its own.
    Session,
    /// The host, which sends the earlier messages with each turn.
    Messages,
    /// Nobody.
    None,
}

/// One message, as a chat completion has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Said {
    /// The text.
    pub content: String,
    /// The speaker: `user` or `assistant`.
    pub role: &'static str,
}

/// The schema of the setting.
#[must_use]
pub fn schema(auto: &str) -> Value {
    json!({
        "enum": ["auto", "session", "messages", "none"],
        "description": format!(
            "Who remembers a context: the upstream in a session of its own (`session`), the host, which sends the earlier \
             messages with each turn (`messages`), or nobody (`none`). {auto}"
        ),
        "default": "auto",
    })
}

/// The messages before this turn.
#[must_use]
pub fn messages() -> Vec<Said> {
    match state::history(MESSAGES) {
        Ok(history) => chat(&history),
        Err(error) => {
            warn(&format!("could not read the history; the turn is sent without it: {}", error.message));
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

/// The text of a message: its texts and data, and the names of its files.
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

/// The text without the thoughts at its beginning.
fn without_thoughts(text: &str) -> &str {
    let mut rest = text.trim();
    while let Some(thought) = rest.strip_prefix("<think>") {
        // A thought that does not end was cut off, and no answer follows it.
        rest = thought.split_once("</think>").map_or("", |(_, answer)| answer.trim_start());
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: Role, contents: impl IntoIterator<Item = Content>) -> Message {
        Message { role, ..talaria_guest::testing::message(contents) }
    }

    fn said(role: Role, text: &str) -> Message {
        message(role, [Content::Text(text.into())])
    }

    fn brief(history: &[Message]) -> Vec<(&'static str, String)> {
        chat(history).into_iter().map(|said| (said.role, said.content)).collect()
    }

    #[test]
    fn both_sides_take_turns_and_the_user_speaks_first() {
        let history = [
            said(Role::Agent, "welcome"),
            said(Role::User, "one"),
            said(Role::User, "two"),
            said(Role::Agent, "<think>hm</think> yes"),
            said(Role::Agent, "<think>cut off"),
            said(Role::User, " "),
        ];
        assert_eq!(brief(&history), [("user", "one\n\ntwo".into()), ("assistant", "yes".into())]);
        assert_eq!(brief(&[said(Role::Agent, "welcome")]), []);
    }

    #[test]
    fn the_newest_messages_that_fit_stay() {
        let long = "x".repeat(BYTES - 1);
        let history = [said(Role::User, "old"), said(Role::Agent, "older answer"), said(Role::User, &long)];
        assert_eq!(brief(&history), [("user", long)]);
    }

    #[test]
    fn files_are_named_and_data_is_text() {
        let file = |content, filename: Option<&str>, media_type: Option<&str>| Part {
            filename: filename.map(str::to_owned),
            media_type: media_type.map(str::to_owned),
            ..Part::new(content)
        };
        let uri = || Content::Uri("https://h/a.txt".into());
        let parts = [
            Part::text(" look "),
            Part::new(Content::Data("{}".into())),
            file(uri(), None, None),
            file(uri(), Some("a.txt"), None),
            file(Content::Bytes(vec![1]), None, Some("image/png")),
            file(Content::Bytes(vec![1]), None, None),
        ];
        assert_eq!(text(&parts), "look {} [https://h/a.txt] [a.txt] [image/png] [a file]");
    }
}
