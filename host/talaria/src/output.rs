//! The output of commands: a result is a value that prints as text or as JSON, and only results go to standard output.
//!
//! Notes for people (progress, ids, warnings) go to standard error. A reader that closes the pipe (`| head`) is not an
//! error. Text from elsewhere is printed to a terminal without control characters, which could move the cursor, set the
//! title or retype a command; a pipe gets it unchanged.
//!
//! Where the log is JSON, notes are events of it, so that every line can be parsed.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use talaria_client::Printable;

/// How a result is printed: for people, or for programs as one JSON document.
// No comments on the values: clap would make a paragraph of each in every help.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

/// The result of a command: `Display` is its text, `Serialize` its JSON.
pub(crate) trait Report: Serialize + Display {}

impl<T: Serialize + Display> Report for T {}

/// Prints a result on standard output.
pub(crate) fn print(format: Format, report: &impl Report) -> io::Result<()> {
    let stdout = io::stdout();
    let terminal = stdout.is_terminal();
    write(&mut stdout.lock(), terminal, format, report)
}

/// Prints a result as one line of JSON, for results that follow each other.
pub(crate) fn line(value: &serde_json::Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{value}").and_then(|()| out.flush())
}

/// Whether notes are events of the log.
static EVENTS: AtomicBool = AtomicBool::new(false);

/// Makes every further note an event of the log.
pub(crate) fn notes_are_events() {
    EVENTS.store(true, Ordering::Relaxed);
}

/// Prints a note for people on standard error. A failure to print is ignored.
pub(crate) fn note(text: impl Display) {
    if EVENTS.load(Ordering::Relaxed) {
        return tracing::info!("{text}");
    }
    let stderr = io::stderr();
    let text = text.to_string();
    drop(match stderr.is_terminal() {
        true => writeln!(stderr.lock(), "{}", Printable(&text)),
        false => writeln!(stderr.lock(), "{text}"),
    });
}

fn write(out: &mut impl Write, terminal: bool, format: Format, report: &impl Report) -> io::Result<()> {
    let written = match format {
        Format::Json => {
            // JSON escapes control characters by itself.
            let text = serde_json::to_string_pretty(report)?;
            writeln!(out, "{text}")
        }
        Format::Text if terminal => writeln!(out, "{}", Printable(&report.to_string())),
        Format::Text => writeln!(out, "{report}"),
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Serialize)]
    struct Said(String);

    impl Display for Said {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "said: {}", self.0)
        }
    }

    fn printed(terminal: bool, format: Format, text: &str) -> String {
        let mut out = Vec::new();
        write(&mut out, terminal, format, &Said(text.into())).expect("memory can be written");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_result_is_text_or_json() {
        assert_eq!(printed(false, Format::Text, "hi"), "said: hi\n");
        assert_eq!(printed(false, Format::Json, "hi"), "\"hi\"\n");
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let hostile = "a\tb\n\u{1b}]0;title\u{7}é\u{9b}2J";
        assert_eq!(printed(true, Format::Text, hostile), "said: a\tb\n\u{fffd}]0;title\u{fffd}é\u{fffd}2J\n");
        assert_eq!(printed(false, Format::Text, hostile), format!("said: {hostile}\n"));
        assert_eq!(printed(true, Format::Json, "\u{1b}"), "\"\\u001b\"\n");
    }

    #[test]
    fn a_reader_that_goes_away_is_no_failure() {
        struct Gone(io::ErrorKind);
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let report = Said(String::new());
        assert!(write(&mut Gone(io::ErrorKind::BrokenPipe), false, Format::Text, &report).is_ok());
        assert!(write(&mut Gone(io::ErrorKind::StorageFull), false, Format::Text, &report).is_err());
    }
}
