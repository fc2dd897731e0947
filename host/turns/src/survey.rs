//! What the operator sees of the tasks of all owners: a row each, not the whole task.
//!
//! A survey goes from the newest status to the oldest, over all owners. What it costs is bounded by [`LOOKED_AT`] rows: a page
//! of a search that finds little is shorter than asked for, or empty, and says where to go on.

use crate::model::{Content, ContextId, Part, Principal, Timestamp};
use crate::store::{Place, TaskKey};
use crate::task::{Event, State};

/// The tasks that one page of a survey looks at.
pub const LOOKED_AT: usize = 50_000;

/// The characters of a message in a row.
pub const BEGINNING: usize = 160;

/// Which tasks to survey.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Survey {
    /// Only those of this owner.
    pub owner: Option<Principal>,
    /// Only those in this state.
    pub state: Option<State>,
    /// Only those of this context.
    pub context: Option<ContextId>,
    /// Only those whose last turn this executor took.
    pub executor: Option<Box<str>>,
    /// Only those with this text in the [`TaskRow::text`], whatever the case of ASCII letters, or with this id or context.
    pub search: Option<Box<str>>,
    /// Only those after this position.
    pub after: Option<Place>,
    /// At most so many.
    pub limit: usize,
}

/// A task in a survey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRow {
    /// The task and its owner.
    pub key: TaskKey,
    /// The context.
    pub context: ContextId,
    /// The state.
    pub state: State,
    /// When the status was set.
    pub at: Timestamp,
    /// The executor of the last turn, if there was one.
    pub executor: Option<Box<str>>,
    /// The first [`BEGINNING`] characters of the last message of the caller; not scrubbed.
    pub text: Box<str>,
}

/// A page of a survey.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Surveyed {
    /// The tasks.
    pub rows: Vec<TaskRow>,
    /// The position to go on from; `None` on the last page.
    pub next: Option<Place>,
}

/// What events change in a row beside its status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// The executor of the last message that was accepted.
    pub executor: Option<Box<str>>,
    /// The beginning of the last message of the caller.
    pub text: Option<Box<str>>,
}

// === impl Survey ===

impl Survey {
    /// Whether a row is one of those asked for, apart from its owner and its position.
    #[must_use]
    pub fn fits(&self, row: &TaskRow) -> bool {
        let is_found = |search: &str| {
            row.key.task.as_str() == search
                || row.context.as_str() == search
                || row.text.to_ascii_lowercase().contains(&search.to_ascii_lowercase())
        };
        self.state.is_none_or(|state| state == row.state)
            && self.context.as_ref().is_none_or(|context| *context == row.context)
            && self.executor.as_ref().is_none_or(|executor| row.executor.as_ref() == Some(executor))
            && self.search.as_deref().is_none_or(is_found)
    }
}

// === impl TaskRow ===

impl TaskRow {
    /// The position of this row.
    #[must_use]
    pub fn place(&self) -> Place {
        Place { at: self.at, task: self.key.task.clone() }
    }
}

// === impl Said ===

impl Said {
    /// What these events change; nothing, mostly.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut said = Self::default();
        for event in events {
            let message = match event {
                Event::Accepted { message, executor, .. } => {
                    said.executor = Some(executor.clone());
                    message
                }
                Event::Answered(message) => message,
                _ => continue,
            };
            said.text = Some(beginning(&message.parts));
        }
        said
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The beginning of the text parts of a message, without line breaks.
fn beginning(parts: &[Part]) -> Box<str> {
    let texts = parts.iter().filter_map(|part| match &part.content {
        Content::Text(text) => Some(text.trim()),
        _ => None,
    });
    let mut whole = String::new();
    let mut left = BEGINNING;
    for text in texts.filter(|text| !text.is_empty()) {
        if left == 0 {
            break;
        }
        if !whole.is_empty() {
            whole.push(' ');
            left -= 1;
        }
        for letter in text.chars().take(left) {
            whole.push(if letter.is_control() { ' ' } else { letter });
            left -= 1;
        }
    }
    whole.into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{Message, Role};

    #[test]
    fn a_row_has_the_beginning_of_the_last_message() {
        let message = |parts| Arc::new(Message { role: Role::User, ..Message::agent(parts) });
        let accepted = |parts| Event::Accepted {
            message: message(parts),
            executor: "a".into(),
            metadata: None,
            trace: None,
        };
        let said = Said::of(&[
            accepted(vec![Part::text("first")]),
            Event::Answered(message(vec![Part::text("  yes\nand\u{1b}"), Part::text(""), Part::text("no")])),
        ]);
        assert_eq!((said.executor.as_deref(), said.text.as_deref()), (Some("a"), Some("yes and  no")));
        let said = Said::of(&[accepted(vec![Part::text("ä".repeat(BEGINNING - 1)), Part::text("more")])]);
        assert_eq!(said.text.map(|text| text.chars().count()), Some(BEGINNING));
        let said = Said::of(&[accepted(vec![Part::text("x".repeat(BEGINNING + 9))])]);
        assert_eq!(said.text.map(|text| text.len()), Some(BEGINNING));
        assert!(Said::of(&[Event::moved(State::Working)]).is_nothing());
    }
}
