//! A person at a desk: what is typed is given, what is seen is kept, Ctrl-C is pressed when the test says so.

use std::io::{self, Cursor, Write};
use std::time::Duration;

use clap::Parser;
use futures_util::stream;
use tokio::sync::{mpsc, watch};

use super::super::desk::{Desk, Interrupts, Keyboard, Pace};
use super::super::screen::{Screen, Sink};
use super::super::session;
use crate::cli::{Cli, Command, Send};
use crate::output::Format;

/// Where a test sits.
pub(super) struct Seat {
    pub(super) desk: Desk,
    /// Standard output.
    pub(super) words: Paper,
    /// Standard error.
    pub(super) notes: Paper,
    /// Ctrl-C.
    pub(super) press: mpsc::UnboundedSender<()>,
}

/// What was written.
#[derive(Clone)]
pub(super) struct Paper(watch::Sender<String>);

impl Seat {
    /// A pipe on all sides; `from a pipe` comes in.
    pub(super) fn new(format: Format) -> Self {
        let (words, notes) = (Paper::blank(), Paper::blank());
        let (press, presses) = mpsc::unbounded_channel();
        let presses = stream::unfold(presses, async |mut presses| {
            let () = presses.recv().await?;
            Some(((), presses))
        });
        let desk = Desk {
            screen: Screen::new(format, words.sink(false), notes.sink(false)),
            keyboard: Keyboard::new(Cursor::new("from a pipe"), false),
            interrupts: Interrupts::new(presses),
            pace: Pace { back_off: Duration::from_millis(1), cancel: Duration::from_secs(10) },
        };
        Self { desk, words, notes, press }
    }

    /// Somebody who types this.
    pub(super) fn typing(mut self, text: &'static str) -> Self {
        self.desk.keyboard = Keyboard::new(Cursor::new(text), true);
        self
    }

    /// Sends; the exit code.
    pub(super) async fn send(&mut self, url: &str, flags: &str) -> u8 {
        session(&arguments(url, flags), &env, &mut self.desk).await
    }
}

impl Paper {
    fn blank() -> Self {
        Self(watch::Sender::default())
    }

    pub(super) fn sink(&self, is_terminal: bool) -> Sink {
        Sink { writer: Box::new(self.clone()), is_terminal }
    }

    pub(super) fn text(&self) -> String {
        self.0.borrow().clone()
    }

    /// Waits until this was written.
    pub(super) async fn until(&self, part: &str) {
        drop(self.0.subscribe().wait_for(|text| text.contains(part)).await.expect("the paper is here"));
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        self.0.send_modify(|written| written.push_str(text));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn env(name: &str) -> Option<String> {
    (name == "TOKEN_OF_TEST").then(|| "hunter2".to_owned())
}

pub(super) fn arguments(url: &str, flags: &str) -> Send {
    let line = ["talaria", "send", url].into_iter().chain(flags.split_whitespace());
    match Cli::try_parse_from(line).expect("valid flags").command {
        Command::Send(send) => send,
        other => panic!("not send: {other:?}"),
    }
}
