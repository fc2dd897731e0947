//! The session of `talaria send`: sends a message to any A2A agent and prints the reply.
//!
//! The session reads the agent's card, picks the newest version that both sides speak over JSON-RPC, sends, and waits.
//! Only the reply's text goes to standard output (as JSON: the result as it arrived, or one event per line while
//! streaming); state and ids go to standard error. An error is one sentence that ends with the way out. The exit code
//! says whom it concerns: 1 the agent, 64 the caller, 130 means Ctrl-C.
//!
//! If the agent asks for input and standard input is a terminal, the person there answers, and the session continues
//! until the agent asks no more. Ctrl-C cancels the task if its id is known, and then waits a bounded time for its end; a
//! second Ctrl-C stops waiting.

mod explain;
mod follow;
mod render;
mod terminal;
mod transcript;

use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};

use crate::agent::{Agent, AgentOptions, Client};
use crate::answer::{Answer, TurnStatus};
use crate::card::Protocol;
use crate::error::ClientError;
use crate::request::{Delivery, Message};

use self::explain::{explain, next_step};
use self::follow::{Follower, RunningTask};
use self::render::Renderer;
use self::terminal::{Interrupts, Pace, Terminal};
use self::transcript::Transcript;

/// After this long without a reply, a person is told that the session is waiting.
const PATIENCE: Duration = Duration::from_secs(1);
/// Exit code for a command line that cannot be used: `EX_USAGE` of sysexits.h.
const EXIT_USAGE: u8 = 64;
/// Exit code after Ctrl-C, by the convention of shells: 128 plus the signal's number.
const EXIT_INTERRUPTED: u8 = 130;

/// What to send, to whom, and how to print the reply.
#[derive(Debug, Clone)]
pub struct SendOptions {
    /// The agent's address.
    pub url: String,
    /// The message; `-` reads it from standard input.
    pub text: String,
    /// The protocol version to speak; `None` picks the newest that the agent offers.
    pub protocol: Option<Protocol>,
    /// The context to continue.
    pub context: Option<String>,
    /// The task to continue.
    pub task: Option<String>,
    /// The environment variable that holds the token.
    pub token_env: Option<String>,
    /// Time limit for each turn.
    pub timeout: Duration,
    /// Whether to stream the reply.
    pub stream: bool,
    /// The output format.
    pub format: Format,
}

/// How the reply is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As text.
    Text,
    /// As JSON: one document, or one event per line while streaming.
    Json,
}

/// Why there is no reply, with the way out.
#[derive(Debug, thiserror::Error)]
enum SendError {
    /// The command line cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The call failed.
    #[error("{}", explain(.0))]
    Client(#[from] ClientError),
    /// The person pressed Ctrl-C.
    #[error("stopped waiting; the turn may still go on")]
    Interrupted,
}

/// The end of a turn.
struct TurnEnd {
    status: TurnStatus,
    /// The agent's question, if it wants input.
    question: String,
    /// The answer, unless it was printed while it arrived.
    answer: Option<Answer>,
}

/// Runs a session at the terminal of the process. Returns the exit code.
pub async fn run(options: &SendOptions, env: &dyn Fn(&str) -> Option<String>) -> u8 {
    Box::pin(session(options, env, &mut Terminal::of_process(options.format))).await
}

/// Runs a session at any terminal.
async fn session(options: &SendOptions, env: &dyn Fn(&str) -> Option<String>, terminal: &mut Terminal) -> u8 {
    let code = match converse(options, env, terminal).await {
        Ok(status) => {
            terminal.renderer.note(status.summary());
            if let Some(next) = next_step(&status, &options.url) {
                terminal.renderer.note(next);
            }
            u8::from(!status.is_reply())
        }
        Err(error) => {
            // A program that reads standard output gets a document even if the session fails.
            let document = Document(json!({ "error": error.document() }));
            match (terminal.renderer.format(), options.stream) {
                (Format::Json, true) => terminal.renderer.event(&document),
                (Format::Json, false) => terminal.renderer.result(&document),
                (Format::Text, _) => {}
            }
            match error {
                SendError::Interrupted => terminal.renderer.note(&error),
                _ => terminal.renderer.note(format!("error: {error}")),
            }
            error.exit_code()
        }
    };
    if let Some(error) = terminal.renderer.take_failure() {
        terminal.renderer.note(format!("error: the reply cannot be printed: {error}"));
        return code.max(1);
    }
    if terminal.interrupts.were_pressed() { EXIT_INTERRUPTED } else { code }
}

/// Sends the message, and then the person's answers for as long as the agent asks.
async fn converse(
    options: &SendOptions,
    env: &dyn Fn(&str) -> Option<String>,
    terminal: &mut Terminal,
) -> Result<TurnStatus, SendError> {
    let agent = Agent::new(options.agent(env)?)?;
    let text = if options.text == "-" { terminal.keyboard.all()? } else { options.text.clone() };
    let card = terminal.interrupts.or(agent.card()).await?;
    let client = agent.client(card.interface(options.protocol)?);
    if options.stream && !card.may_stream() {
        return Err(ClientError::NoStreaming.into());
    }
    let mut message =
        Message { context: options.context.clone(), task: options.task.clone(), ..Message::new(text) };
    let mut transcript = Transcript::default();
    loop {
        let turn = turn(options.stream, &client, &message, &mut transcript, terminal);
        let end = Box::pin(turn).await?;
        let asks = end.status.wants_input() && !terminal.interrupts.were_pressed();
        if asks && terminal.keyboard.has_person() {
            if let Some(text) = terminal.ask(&end.question).await {
                message =
                    Message { context: end.status.context, task: end.status.task, ..Message::new(text) };
                continue;
            }
        } else if asks && end.answer.is_none() {
            terminal.renderer.text(&end.question);
            terminal.renderer.end_line();
        }
        if let Some(answer) = &end.answer {
            terminal.renderer.result(answer);
        }
        return Ok(end.status);
    }
}

/// Sends one message and waits for the end of the turn.
async fn turn(
    stream: bool,
    client: &Client,
    message: &Message,
    transcript: &mut Transcript,
    terminal: &mut Terminal,
) -> Result<TurnEnd, SendError> {
    let Terminal { renderer, interrupts, pace, .. } = terminal;
    let running = RunningTask::new(message.task.clone());
    let cancel = CancelOnInterrupt { client, renderer, running: &running, pace: *pace };
    if stream {
        let mut events = client.stream(message);
        if let Some(back_off) = pace.back_off {
            events = events.back_off(back_off);
        }
        let follower = Follower::new(renderer, &running, transcript, message);
        return cancel.watch(follower.follow(events), interrupts).await;
    }
    let reply = async {
        let answer = client.send(message, Delivery::Whole).await?;
        Ok(TurnEnd { status: answer.status.clone(), question: answer.question.clone(), answer: Some(answer) })
    };
    cancel.watch(patiently(reply, renderer, message.task.is_some()), interrupts).await
}

/// Waits for a reply, and tells a person that the session is waiting if it takes long.
async fn patiently<T>(reply: impl Future<Output = T>, renderer: &Renderer, cancels: bool) -> T {
    let mut reply = std::pin::pin!(reply);
    if renderer.is_watched() {
        match tokio::time::timeout(PATIENCE, reply.as_mut()).await {
            Ok(result) => return result,
            Err(_) if cancels => renderer.note("waiting for the reply… (Ctrl-C to cancel the task)"),
            Err(_) => renderer.note("waiting for the reply… (Ctrl-C to stop waiting; the turn goes on)"),
        }
    }
    reply.await
}

/// Handles Ctrl-C during a turn.
struct CancelOnInterrupt<'a> {
    client: &'a Client,
    renderer: &'a Renderer,
    running: &'a RunningTask,
    pace: Pace,
}

// === impl CancelOnInterrupt ===

impl CancelOnInterrupt<'_> {
    /// Waits for a turn. Ctrl-C cancels the task if its id is known and waits a bounded time for its end; if the id is
    /// unknown, Ctrl-C stops waiting.
    async fn watch<T>(
        &self,
        turn: impl Future<Output = Result<T, SendError>>,
        interrupts: &mut Interrupts,
    ) -> Result<T, SendError> {
        let mut turn = std::pin::pin!(turn);
        tokio::select! {
            biased;
            () = interrupts.next() => {}
            result = turn.as_mut() => return result,
        }
        let task = self.running.id().ok_or(SendError::Interrupted)?;
        self.renderer.note("cancelling… (Ctrl-C again to stop waiting)");
        let mut cancel = std::pin::pin!(self.client.cancel_task(&task));
        let mut limit = std::pin::pin!(tokio::time::sleep(self.pace.cancel));
        let mut answered = false;
        loop {
            tokio::select! {
                biased;
                () = interrupts.next() => return Err(SendError::Interrupted),
                result = turn.as_mut() => return result,
                result = cancel.as_mut(), if !answered => {
                    answered = true;
                    if let Err(error) = result {
                        self.renderer.note(format!("not cancelled: {}", explain(&error)));
                    }
                }
                () = limit.as_mut() => {
                    let limit = humantime::format_duration(self.pace.cancel);
                    self.renderer.note(format!("task {task} has not ended within {limit}"));
                    return Err(SendError::Interrupted);
                }
            }
        }
    }
}

// === impl SendOptions ===

impl SendOptions {
    /// Returns the agent to call, with the token from the environment.
    fn agent(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<AgentOptions, SendError> {
        let token = match &self.token_env {
            Some(name) => {
                let unset = || {
                    SendError::Usage(format!("the environment variable `{name}` of --token-env is not set"))
                };
                Some(env(name).filter(|token| !token.is_empty()).map(SecretString::from).ok_or_else(unset)?)
            }
            None => None,
        };
        Ok(AgentOptions { url: self.url.clone(), token, timeout: self.timeout })
    }
}

// === impl SendError ===

impl SendError {
    fn document(&self) -> Value {
        match self {
            Self::Client(ClientError::Rejected { error, .. }) => error.clone(),
            _ => json!({ "message": self.to_string() }),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Client(ClientError::InvalidInput(_)) => EXIT_USAGE,
            Self::Interrupted => EXIT_INTERRUPTED,
            Self::Client(_) => 1,
        }
    }
}

/// A JSON document that is printed as it is.
#[derive(serde::Serialize)]
#[serde(transparent)]
struct Document(Value);

impl std::fmt::Display for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Access to the session's pure parts for the fuzz targets.
#[cfg(fuzzing)]
pub(crate) mod fuzz {
    pub use super::explain::next_step;
    pub use super::transcript::{Piece, Transcript};
}

#[cfg(test)]
mod tests;
