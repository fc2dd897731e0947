//! What a person or a program sees of a conversation.
//!
//! The agent's words go to standard output, piece by piece as they come; everything about them goes to standard error, a
//! line a note. Where both are one terminal, a note never lands in the middle of the agent's line. A reader that goes away
//! is no failure, any other reason why the words cannot be written is, and is kept until the end: the turn goes on
//! anyway.
//!
//! Shared by the turn and by what watches over it, hence the cells; nothing is borrowed across an await.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::output::{Format, Printable};

/// Standard output and standard error.
pub(super) struct Screen {
    format: Format,
    sinks: RefCell<Sinks>,
}

/// Somewhere to write.
pub(super) struct Sink {
    /// Where.
    pub(super) writer: Box<dyn Write>,
    /// Whether a person looks at it.
    pub(super) is_terminal: bool,
}

struct Sinks {
    words: Sink,
    notes: Sink,
    /// The last line of words has no end yet.
    open: bool,
    failure: Option<io::Error>,
}

// === impl Screen ===

impl Screen {
    /// That of the process.
    pub(super) fn of_process(format: Format) -> Self {
        let words = Sink { is_terminal: io::stdout().is_terminal(), writer: Box::new(io::stdout()) };
        let notes = Sink { is_terminal: io::stderr().is_terminal(), writer: Box::new(io::stderr()) };
        Self::new(format, words, notes)
    }

    pub(super) fn new(format: Format, words: Sink, notes: Sink) -> Self {
        Self { format, sinks: RefCell::new(Sinks { words, notes, open: false, failure: None }) }
    }

    /// How results are printed.
    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Whether a person reads the notes as they come.
    pub(super) fn is_watched(&self) -> bool {
        self.sinks.borrow().notes.is_terminal
    }

    /// A line about what is going on.
    pub(super) fn note(&self, text: impl Display) {
        let mut sinks = self.sinks.borrow_mut();
        sinks.end_shared_line();
        let text = text.to_string();
        // There is nobody to tell when that fails.
        drop(sinks.notes.put(&text).and_then(|()| sinks.notes.put("\n")));
    }

    /// A question to the person, and where the answer is typed.
    pub(super) fn prompt(&self, question: &str) {
        let mut sinks = self.sinks.borrow_mut();
        sinks.end_shared_line();
        let end = if question.is_empty() || question.ends_with('\n') { "> " } else { "\n> " };
        drop(sinks.notes.put(question).and_then(|()| sinks.notes.put(end)));
    }

    /// More of the agent's words, where the last ones ended.
    pub(super) fn words(&self, text: &str) {
        if self.format == Format::Text && !text.is_empty() {
            let mut sinks = self.sinks.borrow_mut();
            sinks.say(text);
            sinks.open = !text.ends_with('\n');
        }
    }

    /// Ends the line that the agent's words are on, if one is open.
    pub(super) fn end_line(&self) {
        let mut sinks = self.sinks.borrow_mut();
        if std::mem::take(&mut sinks.open) {
            sinks.say("\n");
        }
    }

    /// An event, as a line of JSON.
    pub(super) fn event(&self, event: &impl Serialize) {
        if self.format == Format::Json {
            self.json(serde_json::to_string(event));
        }
    }

    /// A result in one piece: its text, or its JSON.
    pub(super) fn result(&self, result: &(impl Serialize + Display)) {
        match self.format {
            Format::Json => self.json(serde_json::to_string_pretty(result)),
            Format::Text => {
                let mut sinks = self.sinks.borrow_mut();
                sinks.say(&result.to_string());
                sinks.say("\n");
            }
        }
    }

    /// Why the agent's words could not be written, if that was so.
    pub(super) fn take_failure(&self) -> Option<io::Error> {
        self.sinks.borrow_mut().failure.take()
    }

    fn json(&self, json: serde_json::Result<String>) {
        let mut sinks = self.sinks.borrow_mut();
        match json {
            // JSON escapes most control characters by itself; the rest goes the way of all text.
            Ok(text) => {
                sinks.say(&text);
                sinks.say("\n");
            }
            Err(error) => sinks.failure = Some(error.into()),
        }
    }
}

// === impl Sinks ===

impl Sinks {
    fn say(&mut self, text: &str) {
        match self.words.put(text) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => self.failure = Some(error),
            _ => {}
        }
    }

    /// Where words and notes share a terminal, a note begins on a line of its own.
    fn end_shared_line(&mut self) {
        if self.words.is_terminal && self.notes.is_terminal && std::mem::take(&mut self.open) {
            self.say("\n");
        }
    }
}

// === impl Sink ===

impl Sink {
    fn put(&mut self, text: &str) -> io::Result<()> {
        match self.is_terminal {
            true => write!(self.writer, "{}", Printable(text))?,
            false => self.writer.write_all(text.as_bytes())?,
        }
        self.writer.flush()
    }
}
