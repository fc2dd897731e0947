//! A fake terminal: the test provides the input, reads the output and presses Ctrl-C.

use std::io::{self, Cursor, Write};
use std::time::Duration;

use futures_util::stream;
use tokio::sync::{mpsc, watch};

use crate::card::Protocol;
use crate::send::render::{Renderer, Sink};
use crate::send::terminal::{Interrupts, Keyboard, Pace, Terminal};
use crate::send::{Format, SendOptions, session};

/// The terminal of a test.
pub(super) struct FakeTerminal {
    pub(super) terminal: Terminal,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    /// Presses Ctrl-C.
    pub(super) press: mpsc::UnboundedSender<()>,
    format: Format,
}

/// Everything written to a stream.
#[derive(Clone)]
pub(super) struct Output(watch::Sender<String>);

impl FakeTerminal {
    /// No stream is a terminal; standard input holds `from a pipe`.
    pub(super) fn new(format: Format) -> Self {
        let (stdout, stderr) = (Output::empty(), Output::empty());
        let (press, presses) = mpsc::unbounded_channel();
        let presses = stream::unfold(presses, async |mut presses| {
            let () = presses.recv().await?;
            Some(((), presses))
        });
        let terminal = Terminal {
            renderer: Renderer::new(format, stdout.sink(false), stderr.sink(false)),
            keyboard: Keyboard::new(Cursor::new("from a pipe"), false),
            interrupts: Interrupts::new(presses),
            pace: Pace { back_off: Some(Duration::from_millis(1)), cancel: Duration::from_secs(10) },
        };
        Self { terminal, stdout, stderr, press, format }
    }

    /// Standard input is a terminal at which a person types this.
    pub(super) fn typing(mut self, text: &'static str) -> Self {
        self.terminal.keyboard = Keyboard::new(Cursor::new(text), true);
        self
    }

    /// Runs a session. Returns the exit code.
    pub(super) async fn send(&mut self, url: &str, flags: &str) -> u8 {
        session(&options(url, flags, self.format), &env, &mut self.terminal).await
    }
}

impl Output {
    fn empty() -> Self {
        Self(watch::Sender::default())
    }

    pub(super) fn sink(&self, is_terminal: bool) -> Sink {
        Sink { writer: Box::new(self.clone()), is_terminal }
    }

    pub(super) fn text(&self) -> String {
        self.0.borrow().clone()
    }

    /// Waits until the text was written.
    pub(super) async fn until(&self, part: &str) {
        drop(self.0.subscribe().wait_for(|text| text.contains(part)).await.expect("the stream is open"));
    }
}

impl Write for Output {
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

/// The options of `talaria send URL FLAGS`.
pub(super) fn options(url: &str, flags: &str, format: Format) -> SendOptions {
    let mut flags = flags.split_whitespace().map(str::to_owned);
    let mut options = SendOptions {
        url: url.into(),
        text: flags.next().expect("a message"),
        protocol: None,
        context: None,
        task: None,
        token_env: None,
        timeout: Duration::from_secs(600),
        stream: false,
        format,
    };
    while let Some(flag) = flags.next() {
        match flag.as_str() {
            "--stream" => options.stream = true,
            "--context" => options.context = flags.next(),
            "--task" => options.task = flags.next(),
            "--token-env" => options.token_env = flags.next(),
            "--timeout" => {
                let limit = flags.next().expect("a duration");
                options.timeout = humantime::parse_duration(&limit).expect("a duration");
            }
            "--protocol" => {
                let newest = flags.next().as_deref() == Some("1.0");
                options.protocol = Some(if newest { Protocol::V1_0 } else { Protocol::V0_3 });
            }
            other => panic!("unknown flag {other}"),
        }
    }
    options
}
