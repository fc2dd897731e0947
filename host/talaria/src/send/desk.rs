//! Where the person sits: the screen, the keyboard, and Ctrl-C.
//!
//! All of it is given, so that a test can sit there. The keyboard is read on a thread of its own, which nobody waits for:
//! a person who says nothing must not keep the command from ending. Ctrl-C ends the process as ever until it is
//! listened to for the first time, which is after the message was read; from then on every wait listens.

use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::output::Format;

use super::screen::Screen;
use super::{LONGEST_MESSAGE, SendError};

/// What the command has besides the agent.
pub(super) struct Desk {
    /// What is seen.
    pub(super) screen: Screen,
    /// What is typed.
    pub(super) keyboard: Keyboard,
    /// Ctrl-C.
    pub(super) interrupts: Interrupts,
    /// How long to wait for what.
    pub(super) pace: Pace,
}

/// How long to wait for what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Before a cut stream is taken up again the first time; doubled every time after. 250 ms: five of them take 8 s,
    /// which is a restart.
    pub(super) back_off: Duration,
    /// For the end of a task that was cancelled. 10 s: twice the grace that Talaria gives an executor.
    pub(super) cancel: Duration,
}

/// Standard input.
pub(super) struct Keyboard {
    reader: Option<Box<dyn BufRead + std::marker::Send>>,
    is_terminal: bool,
}

/// Ctrl-C, as often as it is pressed.
pub(super) struct Interrupts {
    presses: Pin<Box<dyn Stream<Item = ()>>>,
    pressed: bool,
}

// === impl Desk ===

impl Desk {
    /// That of the process.
    pub(super) fn of_process(format: Format) -> Self {
        let keyboard = Keyboard::new(BufReader::new(io::stdin()), io::stdin().is_terminal());
        Self {
            screen: Screen::of_process(format),
            keyboard,
            interrupts: Interrupts::new(control_c()),
            pace: Pace::default(),
        }
    }

    /// Asks the person. `None` if there is none, or none who answers: end of input, or Ctrl-C.
    pub(super) async fn ask(&mut self, question: &str) -> Option<String> {
        if !self.keyboard.has_person() {
            return None;
        }
        self.screen.prompt(question);
        loop {
            let line = tokio::select! {
                biased;
                () = self.interrupts.next() => None,
                line = self.keyboard.line() => line,
            };
            match line {
                Some(line) if line.is_empty() => self.screen.prompt(""),
                Some(line) => return Some(line),
                None => {
                    // The cursor stands behind the prompt.
                    self.screen.note("");
                    return None;
                }
            }
        }
    }
}

// === impl Pace ===

impl Default for Pace {
    fn default() -> Self {
        Self { back_off: Duration::from_millis(250), cancel: Duration::from_secs(10) }
    }
}

// === impl Keyboard ===

impl Keyboard {
    pub(super) fn new(reader: impl BufRead + std::marker::Send + 'static, is_terminal: bool) -> Self {
        Self { reader: Some(Box::new(reader)), is_terminal }
    }

    /// Whether somebody sits there to be asked.
    pub(super) fn has_person(&self) -> bool {
        self.is_terminal && self.reader.is_some()
    }

    /// Everything up to the end of input: the message of `-`.
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

    /// The next line, without its end and the blanks around; `None` at the end of input. A line that is no UTF-8 is
    /// taken as far as it is. Giving up on the wait gives up the keyboard.
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

    /// Whether it was pressed.
    pub(super) fn were_pressed(&self) -> bool {
        self.pressed
    }

    /// Waits for something, or for Ctrl-C.
    pub(super) async fn or<T>(
        &mut self,
        wait: impl Future<Output = Result<T, SendError>>,
    ) -> Result<T, SendError> {
        tokio::select! {
            biased;
            () = self.next() => Err(SendError::Interrupted),
            result = wait => result,
        }
    }
}

/// SIGINT, from the first time that it is waited for. Where it cannot be listened to it ends the process, as ever.
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
