//! `talaria send`: a message to any A2A agent, and its reply.
//!
//! It reads the agent's card, picks the newest version that both sides speak over JSON-RPC, sends, and waits. The reply's
//! text is the only thing on standard output (`--output json`: the result as it came, or with `--stream` one event a
//! line); state and ids go to standard error. Every answer has a bound in time and size. What went wrong is one sentence
//! with the way out, and the exit code says whose turn it is: 1 the agent's, 64 the caller's, 130 nobody's any more.
//!
//! An agent that asks gets an answer from the person at the terminal, if there is one, and the conversation goes on until
//! it asks no more. Ctrl-C cancels the task if its id is known, and then waits a little for its end; the second one
//! waits for nothing.
//!
//! A card may name any address as the agent's. The message goes there, since that is what a card is for; a token does
//! not: it is sent only to where the caller pointed.
//!
//! The HTTP client is `egress`, with a grant for the addresses in question, because only that crate may hold one.

mod agent;
mod answer;
mod card;
mod desk;
mod request;
mod screen;
mod stream;
mod transcript;
mod update;

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::{EXIT_USAGE, Send};
use crate::output::Format;

use agent::Agent;
use answer::{Answer, Standing};
use card::Interface;
use desk::{Desk, Interrupts, Pace};
use request::{About, Delivery, Outgoing};
use screen::Screen;
use stream::{Follower, TaskSeen};
use transcript::Transcript;

/// The longest message from standard input: a book, and well below what servers take.
const LONGEST_MESSAGE: u64 = 1024 * 1024;
/// After this long without a reply a person wants to know what is going on.
const PATIENCE: Duration = Duration::from_secs(1);
/// Ended by Ctrl-C, as shells count it: 128 and the signal's number.
const EXIT_INTERRUPTED: u8 = 130;

/// Why there is no reply, with the way out.
#[derive(Debug, thiserror::Error)]
enum SendError {
    /// The command line cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The agent cannot be reached, or does not answer as one.
    #[error("{0}")]
    Agent(String),
    /// The agent answered with an error.
    #[error("the agent refused: {message} ({code}){}", hint(*.code))]
    Refused {
        /// JSON-RPC's number for it.
        code: i64,
        /// The agent's words.
        message: String,
        /// The whole error object.
        error: Value,
    },
    /// Ctrl-C.
    #[error("stopped waiting; the turn may still go on")]
    Interrupted,
}

/// What the agent has said by the end of its turn.
struct Reply {
    standing: Standing,
    /// What it asks, where it asks.
    question: String,
    /// What is still to be shown: all of it, unless it was shown as it came.
    answer: Option<Answer>,
}

/// Sends, prints the reply, and says how it went.
pub(crate) async fn run(args: &Send, format: Format, env: &dyn Fn(&str) -> Option<String>) -> ExitCode {
    ExitCode::from(Box::pin(session(args, env, &mut Desk::of_process(format))).await)
}

/// The same at any desk.
async fn session(args: &Send, env: &dyn Fn(&str) -> Option<String>, desk: &mut Desk) -> u8 {
    let code = match converse(args, env, desk).await {
        Ok(standing) => {
            desk.screen.note(standing.summary());
            if let Some(next) = standing.next_step(&args.url) {
                desk.screen.note(next);
            }
            u8::from(!standing.is_reply())
        }
        Err(error) => {
            // A program reads a document, whatever happens.
            let document = Document(json!({ "error": error.document() }));
            match (desk.screen.format(), args.stream) {
                (Format::Json, true) => desk.screen.event(&document),
                (Format::Json, false) => desk.screen.result(&document),
                (Format::Text, _) => {}
            }
            match error {
                SendError::Interrupted => desk.screen.note(&error),
                _ => desk.screen.note(format!("error: {error}")),
            }
            error.exit_code()
        }
    };
    if let Some(error) = desk.screen.take_failure() {
        desk.screen.note(format!("error: the reply cannot be printed: {error}"));
        return code.max(1);
    }
    if desk.interrupts.were_pressed() { EXIT_INTERRUPTED } else { code }
}

/// Message and reply, as long as the agent asks and somebody answers.
async fn converse(
    args: &Send,
    env: &dyn Fn(&str) -> Option<String>,
    desk: &mut Desk,
) -> Result<Standing, SendError> {
    let agent = Agent::new(args, env)?;
    let text = if args.text == "-" { desk.keyboard.all()? } else { args.text.clone() };
    let card = desk.interrupts.or(agent.card()).await?;
    let interface = card.interface(args.protocol).map_err(SendError::Agent)?;
    if args.stream && !card.may_stream() {
        let what =
            "the agent does not stream, as its card says; leave out --stream, the reply comes in one piece";
        return Err(SendError::Agent(what.into()));
    }
    let mut outgoing = Outgoing { text, context: args.context.clone(), task: args.task.clone() };
    let mut transcript = Transcript::default();
    loop {
        let reply = turn(args.stream, &agent, &interface, &outgoing, &mut transcript, desk).await?;
        let asks = reply.standing.asks() && !desk.interrupts.were_pressed();
        if asks && desk.keyboard.has_person() {
            if let Some(text) = desk.ask(&reply.question).await {
                outgoing = Outgoing { text, context: reply.standing.context, task: reply.standing.task };
                continue;
            }
        } else if asks && reply.answer.is_none() {
            desk.screen.words(&reply.question);
            desk.screen.end_line();
        }
        if let Some(answer) = &reply.answer {
            desk.screen.result(answer);
        }
        return Ok(reply.standing);
    }
}

/// One message and what becomes of it.
async fn turn(
    stream: bool,
    agent: &Agent,
    interface: &Interface,
    outgoing: &Outgoing,
    transcript: &mut Transcript,
    desk: &mut Desk,
) -> Result<Reply, SendError> {
    let Desk { screen, interrupts, pace, .. } = desk;
    let seen = TaskSeen::new(outgoing.task.clone());
    let cancel = Cancel { agent, interface, screen, seen: &seen, pace: *pace };
    if stream {
        let back_off = pace.back_off;
        let mut follower = Follower { agent, interface, screen, seen: &seen, transcript, back_off };
        let (standing, question) = cancel.watch(follower.follow(outgoing), interrupts).await?;
        return Ok(Reply { standing, question, answer: None });
    }
    let envelope = request::send(interface, outgoing, Delivery::Whole);
    let reply = patiently(agent.call(interface, &envelope, agent.timeout), screen, outgoing.task.is_some());
    let answer = Answer::read(cancel.watch(reply, interrupts).await?)
        .ok_or_else(|| SendError::Agent("the agent's result is neither a message nor a task".into()))?;
    Ok(Reply { standing: answer.standing.clone(), question: answer.question.clone(), answer: Some(answer) })
}

/// Tells a person that something is going on.
async fn patiently<T>(reply: impl Future<Output = T>, screen: &Screen, cancels: bool) -> T {
    let mut reply = std::pin::pin!(reply);
    if screen.is_watched() {
        match tokio::time::timeout(PATIENCE, reply.as_mut()).await {
            Ok(result) => return result,
            Err(_) if cancels => screen.note("waiting for the reply… (Ctrl-C to cancel the task)"),
            Err(_) => screen.note("waiting for the reply… (Ctrl-C to stop waiting; the turn goes on)"),
        }
    }
    reply.await
}

/// What Ctrl-C does to a turn.
struct Cancel<'a> {
    agent: &'a Agent,
    interface: &'a Interface,
    screen: &'a Screen,
    seen: &'a TaskSeen,
    pace: Pace,
}

// === impl Cancel ===

impl Cancel<'_> {
    /// Waits for a turn. Ctrl-C cancels its task, if it is known, and waits on for a while; otherwise it ends the wait.
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
        let task = self.seen.task().ok_or(SendError::Interrupted)?;
        self.screen.note("cancelling… (Ctrl-C again to stop waiting)");
        let envelope = request::about(self.interface, &task, About::Cancel);
        let mut cancel = std::pin::pin!(self.agent.call(self.interface, &envelope, self.agent.timeout));
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
                        self.screen.note(format!("not cancelled: {error}"));
                    }
                }
                () = limit.as_mut() => {
                    let limit = humantime::format_duration(self.pace.cancel);
                    self.screen.note(format!("task {task} has not ended within {limit}"));
                    return Err(SendError::Interrupted);
                }
            }
        }
    }
}

// === impl SendError ===

impl SendError {
    fn document(&self) -> Value {
        match self {
            Self::Refused { error, .. } => error.clone(),
            _ => json!({ "message": self.to_string() }),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => EXIT_USAGE,
            Self::Interrupted => EXIT_INTERRUPTED,
            Self::Agent(_) | Self::Refused { .. } => 1,
        }
    }
}

/// The way out of an A2A error, where there is one.
fn hint(code: i64) -> &'static str {
    match code {
        -32001 => "; give the id of a task of yours, or leave out --task",
        -32004 => {
            "; a task that is over takes no message: leave out --task and keep --context; \
             an agent that does not stream takes none with --stream"
        }
        -32008 => "; the agent requires a protocol extension that `talaria send` does not know",
        -32009 | -32601 => "; try the other version with --protocol",
        _ => "",
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

#[cfg(test)]
mod tests;
