//! What was said and done lately, line by line, for those who look over the agent's shoulder.
//!
//! A line has a number that only grows, over restarts too: numbers begin at the milliseconds of the start, and a process
//! does not say a thousand things a second. A reader passes the number after the last line that it has. One that is
//! beyond all numbers belongs to a clock that was set back: its reader gets everything.
//!
//! What bounds it: [`LINES`] lines, each cut to [`LINE`] characters of text. It is not the log of the tasks, which is in
//! the store and complete.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use talaria_observe::Redactor;

/// Most lines that are kept.
const LINES: usize = 2_000;

/// Most characters of one line's text.
const LINE: usize = 8 * 1024;

/// Most bytes of one answer: the platform's proxy takes 1 MiB.
const ANSWER: usize = 900 << 10;

/// The lines.
#[derive(Debug)]
pub struct Transcript {
    redactor: Redactor,
    lines: Mutex<Lines>,
}

#[derive(Debug)]
struct Lines {
    kept: VecDeque<(u64, Value)>,
    next: u64,
}

/// Some of the lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The lines.
    pub lines: Vec<Value>,
    /// What to ask for next.
    pub cursor: u64,
    /// Whether there is more already.
    pub more: bool,
}

// === impl Transcript ===

impl Transcript {
    /// An empty one, or one that goes on after these lines, of which the last has the number before `cursor`.
    pub fn new(redactor: Redactor, before: Vec<Value>, cursor: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or_default();
        let first = cursor.saturating_sub(before.len() as u64);
        let kept = before.into_iter().enumerate().map(|(index, line)| (first + index as u64, line)).collect();
        Self { redactor, lines: Mutex::new(Lines { kept, next: cursor.max(now) }) }
    }

    /// Adds a line about a task. `text` is scrubbed and cut.
    pub fn say(&self, kind: &str, task: &str, context: &str, text: &str) {
        let text = self.redactor.redact(text);
        let cut: String = text.chars().take(LINE).collect();
        let at = talaria_turns::Timestamp::now().to_string();
        let line =
            json!({ "type": kind, "timestamp": at, "task_id": task, "context_id": context, "content": cut });
        let mut lines = self.lines();
        let number = lines.next;
        lines.next += 1;
        lines.kept.push_back((number, line));
        if lines.kept.len() > LINES {
            lines.kept.pop_front();
        }
    }

    /// At most `limit` lines from the number `since` on.
    pub fn read(&self, since: u64, limit: usize) -> Page {
        let lines = self.lines();
        let since = if since > lines.next { 0 } else { since };
        let mut page = Page { lines: Vec::new(), cursor: since, more: false };
        let mut bytes = 0;
        for (number, line) in lines.kept.iter().skip_while(|(number, _)| *number < since) {
            bytes += line.to_string().len();
            if page.lines.len() == limit || (bytes > ANSWER && !page.lines.is_empty()) {
                page.more = true;
                break;
            }
            page.lines.push(line.clone());
            page.cursor = number + 1;
        }
        page
    }

    /// The last lines, the number after them, and the conversation that they belong to.
    pub(crate) fn last(&self, most: usize) -> (Vec<Value>, u64, String) {
        let lines = self.lines();
        let skipped = lines.kept.len().saturating_sub(most);
        let last: Vec<_> = lines.kept.iter().skip(skipped).map(|(_, line)| line.clone()).collect();
        let context =
            last.last().and_then(|line| line.get("context_id")?.as_str()).unwrap_or_default().to_owned();
        (last, lines.kept.back().map_or(lines.next, |(number, _)| number + 1), context)
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(page: &Page) -> Vec<&str> {
        page.lines.iter().map(|line| line["content"].as_str().unwrap()).collect()
    }

    #[test]
    fn a_reader_gets_every_line_once_over_a_restart_too() {
        let transcript = Transcript::new(Redactor::default(), Vec::new(), 0);
        assert_eq!(transcript.read(0, 10), Page { lines: Vec::new(), cursor: 0, more: false });
        for text in ["one", "two", "OPENAI_API_KEY=abcdefgh12345678"] {
            transcript.say("user", "t", "c", text);
        }
        let first = transcript.read(0, 2);
        assert_eq!((texts(&first), first.more), (vec!["one", "two"], true));
        let rest = transcript.read(first.cursor, 2);
        assert_eq!((texts(&rest), rest.more), (vec!["OPENAI_API_KEY=[REDACTED:api_key]"], false));
        assert_eq!(transcript.read(rest.cursor, 2).lines, [Value::Null; 0]);

        let (last, cursor, context) = transcript.last(2);
        assert_eq!((last.len(), cursor, context.as_str()), (2, rest.cursor, "c"));
        let again = Transcript::new(Redactor::default(), last, cursor);
        again.say("user", "t", "c", "four");
        assert_eq!(texts(&again.read(rest.cursor, 10)), ["four"]);
        assert_eq!(again.read(0, 10).lines.len(), 3);
        assert_eq!(again.read(u64::MAX, 10).lines.len(), 3, "a clock was set back");
    }

    #[test]
    fn it_has_an_end() {
        let transcript = Transcript::new(Redactor::default(), Vec::new(), 0);
        for _ in 0..LINES + 5 {
            transcript.say("user", "t", "c", &"x".repeat(LINE + 1));
        }
        let page = transcript.read(0, 1_000);
        assert!(page.more && page.lines.len() < 200, "an answer has one too: {}", page.lines.len());
        assert_eq!(transcript.lines().kept.len(), LINES);
    }
}
