//! Printing a session for a person or a program.
//!
//! The agent's text goes to standard output, piece by piece as it arrives; notes about it go to standard error, one per
//! line. If both are the same terminal, a note never lands in the middle of the agent's line. A closed pipe is not a
//! failure. Any other failed write is one; it is kept until the end, because the turn runs on regardless.
//!
//! The turn and the code that watches for Ctrl-C both print, hence the cell; no borrow crosses an await.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::Format;
use crate::printable::Printable;

/// Standard output and standard error.
pub(super) struct Renderer {
    format: Format,
    sinks: RefCell<Sinks>,
}

/// A stream to write to.
pub(super) struct Sink {
    /// The stream.
    pub(super) writer: Box<dyn Write>,
    /// Whether the stream is a terminal.
    pub(super) is_terminal: bool,
}

struct Sinks {
    /// Standard output: the agent's text.
    text: Sink,
    /// Standard error.
    notes: Sink,
    /// Whether the last line of text has no end yet.
    open: bool,
    failure: Option<io::Error>,
}

// === impl Renderer ===

impl Renderer {
    /// Prints to the standard streams of the process.
    pub(super) fn of_process(format: Format) -> Self {
        let text = Sink { is_terminal: io::stdout().is_terminal(), writer: Box::new(io::stdout()) };
        let notes = Sink { is_terminal: io::stderr().is_terminal(), writer: Box::new(io::stderr()) };
        Self::new(format, text, notes)
    }

    pub(super) fn new(format: Format, text: Sink, notes: Sink) -> Self {
        Self { format, sinks: RefCell::new(Sinks { text, notes, open: false, failure: None }) }
    }

    /// The output format.
    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Whether standard error is a terminal, so that a person reads the notes as they appear.
    pub(super) fn is_watched(&self) -> bool {
        self.sinks.borrow().notes.is_terminal
    }

    /// Prints a line about the session.
    pub(super) fn note(&self, text: impl Display) {
        let mut sinks = self.sinks.borrow_mut();
        sinks.end_shared_line();
        let text = text.to_string();
        // A failure to write to standard error cannot be reported.
        drop(sinks.notes.put(&text).and_then(|()| sinks.notes.put("\n")));
    }

    /// Prints a question and a prompt.
    pub(super) fn prompt(&self, question: &str) {
        let mut sinks = self.sinks.borrow_mut();
        sinks.end_shared_line();
        let end = if question.is_empty() || question.ends_with('\n') { "> " } else { "\n> " };
        drop(sinks.notes.put(question).and_then(|()| sinks.notes.put(end)));
    }

    /// Prints more of the agent's text, right after the previous piece.
    pub(super) fn text(&self, text: &str) {
        if self.format == Format::Text && !text.is_empty() {
            let mut sinks = self.sinks.borrow_mut();
            sinks.write(text);
            sinks.open = !text.ends_with('\n');
        }
    }

    /// Ends the current line of the agent's text, if there is one.
    pub(super) fn end_line(&self) {
        let mut sinks = self.sinks.borrow_mut();
        if std::mem::take(&mut sinks.open) {
            sinks.write("\n");
        }
    }

    /// Prints an event as a line of JSON, if the format is JSON.
    pub(super) fn event(&self, event: &impl Serialize) {
        if self.format == Format::Json {
            self.json(serde_json::to_string(event));
        }
    }

    /// Prints a whole result, as text or as JSON.
    pub(super) fn result(&self, result: &(impl Serialize + Display)) {
        match self.format {
            Format::Json => self.json(serde_json::to_string_pretty(result)),
            Format::Text => {
                let mut sinks = self.sinks.borrow_mut();
                sinks.write(&result.to_string());
                sinks.write("\n");
            }
        }
    }

    /// Takes the error of the last failed write to standard output, if one failed.
    pub(super) fn take_failure(&self) -> Option<io::Error> {
        self.sinks.borrow_mut().failure.take()
    }

    fn json(&self, json: serde_json::Result<String>) {
        let mut sinks = self.sinks.borrow_mut();
        match json {
            // JSON escapes most control characters; `Sink::put` replaces the rest.
            Ok(text) => {
                sinks.write(&text);
                sinks.write("\n");
            }
            Err(error) => sinks.failure = Some(error.into()),
        }
    }
}

// === impl Sinks ===

impl Sinks {
    fn write(&mut self, text: &str) {
        match self.text.put(text) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => self.failure = Some(error),
            _ => {}
        }
    }

    /// Ends the agent's line before a note, if both go to the same terminal.
    fn end_shared_line(&mut self) {
        if self.text.is_terminal && self.notes.is_terminal && std::mem::take(&mut self.open) {
            self.write("\n");
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
