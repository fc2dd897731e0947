//! The terminal of `talaria send`: output, keyboard and Ctrl-C.
//!
//! Everything is injected, so that tests can provide a fake terminal. A thread reads the keyboard, and nothing waits for
//! that thread to end: a person who types nothing must not keep the command from exiting. Until the first wait for
//! Ctrl-C, which comes after the message was read, Ctrl-C ends the process as usual; from then on every wait watches for
//! it.

use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::render::Renderer;
use super::{Format, SendError};
use crate::error::ClientError;

/// The longest message read from standard input, in bytes: a book, and well below what servers accept.
const LONGEST_MESSAGE: u64 = 1024 * 1024;

/// The terminal that a session runs at.
pub(super) struct Terminal {
    /// Standard output and standard error.
    pub(super) renderer: Renderer,
    /// Standard input.
    pub(super) keyboard: Keyboard,
    /// Ctrl-C.
    pub(super) interrupts: Interrupts,
    /// The session's pauses and time limits.
    pub(super) pace: Pace,
}

/// Pauses and time limits of a session; tests shorten them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// The first pause before a cut stream is resumed, if not the client's own.
    pub(super) back_off: Option<Duration>,
    /// How long to wait for a cancelled task to end. 10 s: twice the grace period that Talaria gives an executor.
    pub(super) cancel: Duration,
}

/// Standard input.
pub(super) struct Keyboard {
    reader: Option<Box<dyn BufRead + Send>>,
    is_terminal: bool,
}

/// Ctrl-C, any number of times.
pub(super) struct Interrupts {
    presses: Pin<Box<dyn Stream<Item = ()>>>,
    pressed: bool,
}

// === impl Terminal ===

impl Terminal {
    /// The terminal of the process.
    pub(super) fn of_process(format: Format) -> Self {
        let keyboard = Keyboard::new(BufReader::new(io::stdin()), io::stdin().is_terminal());
        Self {
            renderer: Renderer::of_process(format),
            keyboard,
            interrupts: Interrupts::new(control_c()),
            pace: Pace::default(),
        }
    }

    /// Asks the person at the terminal. Returns `None` if standard input is not a terminal, at end of input, or on Ctrl-C.
    pub(super) async fn ask(&mut self, question: &str) -> Option<String> {
        if !self.keyboard.has_person() {
            return None;
        }
        self.renderer.prompt(question);
        loop {
            let line = tokio::select! {
                biased;
                () = self.interrupts.next() => None,
                line = self.keyboard.line() => line,
            };
            match line {
                Some(line) if line.is_empty() => self.renderer.prompt(""),
                Some(line) => return Some(line),
                None => {
                    // The cursor is still behind the prompt.
                    self.renderer.note("");
                    return None;
                }
            }
        }
    }
}

// === impl Pace ===

impl Default for Pace {
    fn default() -> Self {
        Self { back_off: None, cancel: Duration::from_secs(10) }
    }
}

// === impl Keyboard ===

impl Keyboard {
    pub(super) fn new(reader: impl BufRead + Send + 'static, is_terminal: bool) -> Self {
        Self { reader: Some(Box::new(reader)), is_terminal }
    }

    /// Whether there is a person to ask: standard input is a terminal and still open.
    pub(super) fn has_person(&self) -> bool {
        self.is_terminal && self.reader.is_some()
    }

    /// Reads standard input to its end: the message of `talaria send URL -`.
    pub(super) fn all(&mut self) -> Result<String, SendError> {
        let mut read = Vec::new();
        if let Some(reader) = &mut self.reader {
            let unreadable =
                |error: io::Error| SendError::Usage(format!("standard input cannot be read: {error}"));
            reader.take(LONGEST_MESSAGE + 1).read_to_end(&mut read).map_err(unreadable)?;
        }
        if read.len() as u64 > LONGEST_MESSAGE {
            let what = "the message on standard input is longer than 1 MiB; send less";
            return Err(SendError::Usage(what.into()));
        }
        String::from_utf8(read)
            .map_err(|_| SendError::Usage("the message on standard input is not UTF-8 text".into()))
    }

    /// Reads the next line and trims it; `None` at end of input. Invalid UTF-8 is replaced. Dropping the future gives up
    /// the keyboard.
    async fn line(&mut self) -> Option<String> {
        let mut reader = self.reader.take()?;
        let (typed, line) = oneshot::channel();
        let read = move || {
            let mut line = Vec::new();
            let ended = (&mut *reader).take(LONGEST_MESSAGE).read_until(b'\n', &mut line);
            let line = ended.is_ok_and(|length| length > 0).then_some(line);
            drop(typed.send((reader, line)));
        };
        std::thread::Builder::new().name("keyboard".into()).spawn(read).ok()?;
        let (reader, line) = line.await.ok()?;
        self.reader = Some(reader);
        Some(String::from_utf8_lossy(&line?).trim().to_owned())
    }
}

// === impl Interrupts ===

impl Interrupts {
    pub(super) fn new(presses: impl Stream<Item = ()> + 'static) -> Self {
        Self { presses: Box::pin(presses.fuse()), pressed: false }
    }

    /// Waits for Ctrl-C.
    pub(super) async fn next(&mut self) {
        match self.presses.next().await {
            Some(()) => self.pressed = true,
            None => std::future::pending().await,
        }
    }

    /// Whether Ctrl-C was pressed.
    pub(super) fn were_pressed(&self) -> bool {
        self.pressed
    }

    /// Waits for a future, or for Ctrl-C.
    pub(super) async fn or<T>(
        &mut self,
        wait: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, SendError> {
        tokio::select! {
            biased;
            () = self.next() => Err(SendError::Interrupted),
            result = wait => Ok(result?),
        }
    }
}

/// SIGINT, caught from the first wait on. If no handler can be installed, SIGINT ends the process as usual.
fn control_c() -> impl Stream<Item = ()> {
    stream::unfold(None, async |listener| {
        let mut listener = match listener {
            Some(listener) => listener,
            None => signal(SignalKind::interrupt()).ok()?,
        };
        listener.recv().await?;
        Some(((), Some(listener)))
    })
}
