//! The transcript: recent messages and events of all tasks, as lines, for people who watch the agent work.
//!
//! The lines are computed from the log of all tasks on each request, so the transcript is complete and as durable as the
//! store. A line has the number of its event; numbers only grow, and a reader passes the number after its last line. A new
//! reader, or one whose number is past the end because the store was replaced, gets the last [`RECENT`] appends. The pieces
//! of an answer become one line, at the end of their turn.
//!
//! Bounds: [`LINE`] characters per line, [`PAGE`] bytes per page, [`SCAN`] events read for a page. So a page may be short or
//! even empty while it says that there is more.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_redact::Redactor;
use talaria_turns::{Begin, Content, Event, Logged, Message, Part, REPLY, Store, StoreError};

/// The number of appends that a new reader gets.
const RECENT: usize = 5_000;

/// The maximum number of characters of a line's text.
const LINE: usize = 8 * 1024;

/// The maximum number of bytes of a page: the platform's proxy accepts 1 MiB.
const PAGE: usize = 900 << 10;

/// The maximum number of events read for a page: in total, and with one call to the store.
const SCAN: (usize, usize) = (20_000, 1_000);

/// The maximum number of a turn's events from which its answer is joined.
const PIECES: u64 = 4_096;

/// The transcript of a host.
pub struct Transcript {
    store: Arc<dyn Store>,
    /// Lines of an earlier process that the store does not have. Their numbers start at 1, below those of the store.
    before: Vec<Value>,
}

/// A page of the transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The lines.
    pub lines: Vec<Value>,
    /// The number to pass for the next page.
    pub cursor: u64,
    /// Whether there are more lines already.
    pub more: bool,
}

// === impl Transcript ===

impl Transcript {
    /// Creates the transcript of a store, preceded by the lines in `before`. Every line of the store is redacted.
    pub fn new(store: Arc<dyn Store>, before: Vec<Value>) -> Self {
        Self { store, before }
    }

    /// Returns at most `limit` lines, starting with the number `since`.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn read(&self, since: u64, limit: usize) -> Result<Page, StoreError> {
        let (since, mut begin) = self.begin(since).await?;
        let mut page = Page { lines: Vec::new(), cursor: since, more: false };
        let mut room = Room { lines: limit, bytes: PAGE };
        for (number, line) in (1..).zip(&self.before).filter(|(number, _)| *number >= since) {
            if !room.takes(line) {
                return Ok(Page { more: true, ..page });
            }
            page.lines.push(line.clone());
            page.cursor = number + 1;
        }
        for _ in 0..SCAN.0 / SCAN.1 {
            let events = self.store.log(begin, SCAN.1).await?;
            for logged in &events {
                if let Some(line) = self.line(logged).await? {
                    if !room.takes(&line) {
                        return Ok(Page { more: true, ..page });
                    }
                    page.lines.push(line);
                }
                page.cursor = logged.number + 1;
            }
            if events.len() < SCAN.1 {
                return Ok(page);
            }
            begin = Begin::At(page.cursor);
        }
        Ok(Page { more: true, ..page })
    }

    /// Returns the last lines, and the context of the very last one.
    pub(crate) async fn last(&self, most: usize) -> Result<(Vec<Value>, String), StoreError> {
        let (mut lines, mut begin) = (self.before.clone(), Begin::Last(most.saturating_mul(4)));
        loop {
            let events = self.store.log(begin, SCAN.1).await?;
            let Some(last) = events.last() else { break };
            begin = Begin::At(last.number + 1);
            for logged in &events {
                lines.extend(self.line(logged).await?);
            }
            lines.drain(..lines.len().saturating_sub(most));
        }
        let context = lines.last().and_then(|line| line.get("context_id")?.as_str());
        let context = context.unwrap_or_default().to_owned();
        Ok((lines, context))
    }

    /// Returns the number from which a reader that asks for `since` continues, and the position of that number in the store.
    async fn begin(&self, since: u64) -> Result<(u64, Begin), StoreError> {
        let last = self.store.log(Begin::Last(1), usize::MAX).await?;
        let last = last.last().map_or(self.before.len() as u64, |last| last.number);
        Ok(match since {
            0 => (0, Begin::Last(RECENT)),
            beyond if beyond > last + 1 => (0, Begin::Last(RECENT)),
            since => (since, Begin::At(since)),
        })
    }

    async fn line(&self, logged: &Logged) -> Result<Option<Value>, StoreError> {
        let (kind, text) = match &*logged.entry.event {
            Event::Accepted { message, .. } | Event::Answered(message) => ("user", text(message)),
            Event::Status { status, ends_turn, .. } => {
                let answer = if *ends_turn { self.answer(logged).await? } else { String::new() };
                let said = status.message.as_deref().map(text).unwrap_or_default();
                match (answer.is_empty(), said.is_empty()) {
                    (true, true) => ("status", status.state.to_string()),
                    (true, false) => (if *ends_turn { "assistant" } else { "status" }, said),
                    (false, true) => ("assistant", answer),
                    (false, false) => ("assistant", format!("{answer}\n\n{said}")),
                }
            }
            Event::Artifact { artifact, append: false, .. } if artifact.id != REPLY => {
                ("artifact", parts(&artifact.parts))
            }
            Event::Late(artifact) => ("assistant", parts(&artifact.parts)),
            Event::Note { name, value } => ("event", format!("{name} {value}")),
            // The pieces appear in the line that ends their turn; the whole answer would only repeat them.
            Event::Artifact { .. } | Event::Whole(_) | Event::Checkpoint(_) => return Ok(None),
        };
        let cut: String = Redactor::process().all(&text).chars().take(LINE).collect();
        let line = json!({
            "type": kind,
            "timestamp": logged.at.to_string(),
            "task_id": logged.key.task.as_str(),
            "context_id": logged.context.as_str(),
            "content": cut,
        });
        Ok((!cut.is_empty()).then_some(line))
    }

    /// Joins the pieces of the answer of the turn that this status ends.
    async fn answer(&self, end: &Logged) -> Result<String, StoreError> {
        let last = end.entry.sequence.saturating_sub(1);
        let first = last.saturating_sub(PIECES);
        let limit = usize::try_from(last - first).unwrap_or_default();
        let mut events = Vec::new();
        // Large events come in several pages.
        while events.len() < limit {
            let next =
                match self.store.events(&end.key, first + events.len() as u64, limit - events.len()).await {
                    // The task was deleted in the meantime.
                    Err(StoreError::NotFound) => return Ok(String::new()),
                    next => next?,
                };
            if next.is_empty() {
                break;
            }
            events.extend(next);
        }
        let turn = events.iter().rev().take_while(|entry| !ends_turn(&entry.event)).count();
        let mut answer = String::new();
        for entry in events.iter().skip(events.len() - turn) {
            if let Event::Artifact { artifact, .. } = &*entry.event
                && artifact.id == REPLY
                && answer.len() <= 4 * LINE
            {
                answer.push_str(&parts(&artifact.parts));
            }
        }
        Ok(answer)
    }
}

/// The room that is left on a page.
struct Room {
    lines: usize,
    bytes: usize,
}

impl Room {
    /// Uses up the room for a line; returns false if it does not fit. The first line always fits, since lines are bounded.
    fn takes(&mut self, line: &Value) -> bool {
        let bytes = line.to_string().len();
        let fits = self.lines > 0 && bytes <= self.bytes;
        if fits {
            (self.lines, self.bytes) = (self.lines - 1, self.bytes - bytes);
        }
        fits
    }
}

fn ends_turn(event: &Event) -> bool {
    matches!(event, Event::Status { ends_turn: true, .. })
}

fn text(message: &Message) -> String {
    parts(&message.parts)
}

fn parts(parts: &[Part]) -> String {
    let text = |part: &Part| match &part.content {
        Content::Text(text) => text.clone(),
        Content::Data(data) => data.to_string(),
        Content::Uri(uri) => uri.clone(),
        Content::Bytes(bytes) => format!("[{} bytes]", bytes.len()),
    };
    parts.iter().map(text).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use talaria_store::Memory;
    use talaria_turns::{Artifact, ContextId, Principal, State, TaskId, TaskKey};

    use super::*;

    const SECRET: &str = "a-token-of-the-platform";

    fn key() -> TaskKey {
        TaskKey { owner: Principal::anyone(), task: TaskId::fresh() }
    }

    fn accepted(text: &str) -> Event {
        let message = Message { role: talaria_turns::Role::User, ..Message::agent(vec![Part::text(text)]) };
        Event::Accepted { message: message.into(), executor: "it".into(), metadata: None, trace: None }
    }

    fn piece(text: &str) -> Event {
        let artifact = Artifact::new(REPLY, vec![Part::text(text)]).into();
        Event::Artifact { artifact, append: true, last: false }
    }

    fn texts(page: &Page) -> Vec<&str> {
        page.lines.iter().map(|line| line["content"].as_str().unwrap()).collect()
    }

    #[tokio::test]
    async fn a_reader_gets_each_line_once() {
        Redactor::process().learn([SECRET]);
        let store = Arc::new(Memory::new(100));
        let transcript = Transcript::new(Arc::clone(&store) as _, Vec::new());
        let nothing = transcript.read(0, 10).await.unwrap();
        assert_eq!(nothing, Page { lines: Vec::new(), cursor: 0, more: false });
        let (first, second) = (key(), key());
        store.create(&first, &ContextId::fresh(), &[accepted("one")]).await.unwrap();
        store.create(&second, &ContextId::fresh(), &[accepted(&format!("two {SECRET}"))]).await.unwrap();
        store.append(&first, 1, &[Event::moved(State::Working), piece("thr")]).await.unwrap();
        store.append(&second, 1, &[piece("another"), piece("'s")]).await.unwrap();
        store.append(&first, 3, &[piece("ee")]).await.unwrap();
        store.append(&first, 4, &[Event::ended(State::Completed, vec![], None)]).await.unwrap();
        let failed = vec![Part::text("OPENAI_API_KEY=abcdefgh12345678")];
        store.append(&second, 3, &[Event::ended(State::Failed, failed, None)]).await.unwrap();

        let all = transcript.read(0, 100).await.unwrap();
        let expected = [
            "one",
            "two [REDACTED:secret]",
            "working",
            "three",
            "another's\n\nOPENAI_API_KEY=[REDACTED:api_key]",
        ];
        assert_eq!((texts(&all), all.more), (expected.to_vec(), false));
        let kinds: Vec<_> = all.lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["user", "user", "status", "assistant", "assistant"]);
        let (mut since, mut one_by_one) = (0, Vec::new());
        loop {
            let page = transcript.read(since, 1).await.unwrap();
            one_by_one.extend(page.lines);
            since = page.cursor;
            if !page.more {
                break;
            }
        }
        assert_eq!(one_by_one, all.lines);
        assert_eq!(
            transcript.read(since, 10).await.unwrap().lines,
            [Value::Null; 0],
            "there are no new lines"
        );
        assert_eq!(
            transcript.read(1 << 50, 10).await.unwrap().lines,
            all.lines,
            "the number is from another store"
        );
        let (last, context) = transcript.last(2).await.unwrap();
        assert_eq!(last, all.lines[3..]);
        assert_eq!(context, all.lines[4]["context_id"].as_str().unwrap());
    }

    #[tokio::test]
    async fn lines_of_an_earlier_process_come_first() {
        let store = Arc::new(Memory::new(100));
        let before = ["a", "b"].map(|text| json!({ "type": "user", "content": text }));
        let transcript = Transcript::new(Arc::clone(&store) as _, before.to_vec());
        store.create(&key(), &ContextId::fresh(), &[accepted("c"), accepted("d")]).await.unwrap();
        let (mut since, mut seen) = (0, Vec::new());
        for text in ["a", "b", "c", "d"] {
            let page = transcript.read(since, 1).await.unwrap();
            assert_eq!((texts(&page), page.more), (vec![text], text != "d"));
            since = page.cursor;
            seen.extend(page.lines);
        }
        assert_eq!(transcript.last(3).await.unwrap().0, seen[1..]);
    }

    #[tokio::test]
    async fn a_page_is_bounded_in_bytes_and_a_line_in_characters() {
        let store = Arc::new(Memory::new(1_000));
        let transcript = Transcript::new(Arc::clone(&store) as _, Vec::new());
        for _ in 0..200 {
            store.create(&key(), &ContextId::fresh(), &[accepted(&"é\"".repeat(LINE))]).await.unwrap();
        }
        let (mut since, mut lines, mut more) = (0, 0, true);
        while more {
            let page = transcript.read(since, 1_000).await.unwrap();
            assert!(json!(page.lines).to_string().len() <= 1 << 20);
            assert!(page.lines.iter().all(|line| line["content"].as_str().unwrap().chars().count() == LINE));
            assert!(!page.lines.is_empty());
            (since, more, lines) = (page.cursor, page.more, lines + page.lines.len());
        }
        assert_eq!(lines, 200);
    }
}
