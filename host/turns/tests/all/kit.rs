//! An executor that does what its message says, and a service on it.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use talaria_store::Memory;
use talaria_turns::{
    Content, Emitted, Executor, Failure, FailureKind, FinalState, Incoming, Limits, Message, Metadata,
    NoExecutor, Outcome, Part, Principal, Role, Route, RouteQuery, Scope, Store, TooLarge, ToolProgress,
    ToolState, Turn, Turns, message_text,
};
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Scripted {
    pub(crate) go: Notify,
    pub(crate) runs: AtomicUsize,
    pub(crate) cancels: AtomicUsize,
    /// The checkpoints of the turns that were cancelled.
    pub(crate) cancelled_at: Mutex<Vec<Vec<u8>>>,
    /// The executor of the last turn, for each message that needed one.
    pub(crate) continued: Mutex<Vec<Option<String>>>,
    /// Whether a late result of each turn could reach its caller.
    pub(crate) async_delivery: Mutex<Vec<bool>>,
    /// The memory that it may have; 0 if there is no limit. It needs twice the size of a turn's messages.
    pub(crate) memory: AtomicUsize,
}

pub(crate) struct Only(pub(crate) Arc<Scripted>);

impl Route for Only {
    fn pick(&self, asked: &RouteQuery<'_>) -> Result<Arc<dyn Executor>, NoExecutor> {
        self.0.continued.lock().unwrap().push(asked.continues.map(str::to_owned));
        match asked.message.metadata.as_ref().and_then(|metadata| metadata.get("talaria/executor")) {
            None => Ok(Arc::clone(&self.0) as _),
            Some(name) => Err(NoExecutor::Refused(format!("no executor {name}"))),
        }
    }

    fn named(&self, name: &str) -> Option<Arc<dyn Executor>> {
        (name == "scripted").then(|| Arc::clone(&self.0) as _)
    }
}

#[async_trait]
impl Executor for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn execute(&self, turn: Turn, scope: Scope) -> Result<Outcome, Failure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        self.async_delivery.lock().unwrap().push(turn.async_delivery);
        let done = |parts| Outcome { state: FinalState::Completed, parts, usage: None, metadata: None };
        match message_text(&turn.message.parts).as_str() {
            "wait" => {
                self.go.notified().await;
                Ok(done(vec![Part::text("waited")]))
            }
            "hear of a cancel first" => {
                scope.cancelled().cancel();
                Err(Failure::new(FailureKind::Cancelled, "cancelled"))
            }
            "panic" => panic!("as asked"),
            "fail" => Err(Failure::new(FailureKind::Upstream, "[upstream] broken")),
            "ask" => Ok(Outcome {
                state: FinalState::InputRequired,
                parts: vec![Part::text("which?")],
                usage: None,
                metadata: None,
            }),
            "leave work and ask" => {
                scope.checkpoint(b"work".to_vec()).await.unwrap();
                Ok(Outcome {
                    state: FinalState::InputRequired,
                    parts: vec![Part::text("which?")],
                    usage: None,
                    metadata: None,
                })
            }
            "checkpoint?" => {
                let at = turn.checkpoint.map(|at| String::from_utf8_lossy(&at).into_owned());
                Ok(done(vec![Part::text(at.unwrap_or_else(|| "none".into()))]))
            }
            "stream" => {
                for delta in ["Hel", "lo"] {
                    scope.emit(Emitted::TextDelta(delta.into())).await.unwrap();
                }
                Ok(done(vec![Part::text("Hello")]))
            }
            "stream blanks" => {
                for delta in ["\n Hel", "lo \n"] {
                    scope.emit(Emitted::TextDelta(delta.into())).await.unwrap();
                }
                Ok(done(vec![Part::text("\n Hello \n")]))
            }
            "contradict" => {
                scope.emit(Emitted::TextDelta("wrong".into())).await.unwrap();
                Ok(done(vec![Part::text("right")]))
            }
            "use tools" => {
                for call in 0..50 {
                    for state in [ToolState::Started, ToolState::Completed] {
                        let label = Some(format!("{call} {}", "x".repeat(300)));
                        let tool =
                            ToolProgress { id: "c".into(), name: "ls".into(), state, label, metadata: None };
                        scope.emit(Emitted::Tool(tool)).await.unwrap();
                    }
                }
                Ok(done(vec![Part::text("done")]))
            }
            "history" => Ok(done(vec![Part::text(turn.history.len().to_string())])),
            "what was said?" => {
                let said = scope.history(10, 10_000).await.unwrap();
                let lines: Vec<String> = said.iter().map(|message| message_text(&message.parts)).collect();
                Ok(done(vec![Part::text(lines.join("; "))]))
            }
            "remember" => {
                scope.set_state("k", Some(b"v".as_slice().into())).await.unwrap();
                Ok(done(vec![]))
            }
            "recall" => {
                let value = scope.state("k").await.unwrap();
                Ok(done(vec![Part::text(
                    value.map_or("nothing".into(), |v| String::from_utf8_lossy(&v).into_owned()),
                )]))
            }
            "question" => {
                let answer = scope.ask(vec![Part::text("which?")]).await.map_err(over)?;
                Ok(done(vec![Part::text(format!("you said {}", message_text(&answer.parts)))]))
            }
            "approval" => {
                let answer = scope.ask(approval()).await.map_err(over)?;
                Ok(done(vec![Part::text(format!("you said {}", message_text(&answer.parts)))]))
            }
            "approval at the end" => Ok(Outcome {
                state: FinalState::InputRequired,
                parts: approval(),
                usage: None,
                metadata: None,
            }),
            "checkpoint" => {
                if let Some(checkpoint) = turn.checkpoint {
                    let at = String::from_utf8_lossy(&checkpoint).into_owned();
                    return Ok(done(vec![Part::text(format!("resumed at {at}"))]));
                }
                scope.checkpoint(b"one".to_vec()).await.unwrap();
                std::future::pending().await
            }
            "ask again" => {
                if turn.checkpoint.is_none() {
                    scope.checkpoint(b"one".to_vec()).await.unwrap();
                }
                let answer = scope.ask(vec![Part::text("which?")]).await.map_err(over)?;
                Ok(done(vec![Part::text(format!("you said {}", message_text(&answer.parts)))]))
            }
            // Asks, and withdraws the question when told to, whether it was answered or not; then asks another.
            "changes its mind" => {
                let question = scope.pose(vec![Part::text("which?")]).await.map_err(over)?;
                self.go.notified().await;
                drop(question);
                self.go.notified().await;
                let answer = scope.ask(vec![Part::text("or rather?")]).await.map_err(over)?;
                Ok(done(vec![Part::text(format!("you said {}", message_text(&answer.parts)))]))
            }
            "two questions" => {
                if turn.checkpoint.is_none() {
                    scope.checkpoint(b"zero".to_vec()).await.unwrap();
                    scope.ask(vec![Part::text("first?")]).await.map_err(over)?;
                    scope.checkpoint(b"one".to_vec()).await.unwrap();
                }
                let answer = scope.ask(vec![Part::text("second?")]).await.map_err(over)?;
                Ok(done(vec![Part::text(format!("you said {}", message_text(&answer.parts)))]))
            }
            "flood" => {
                for _ in 0..1_000 {
                    scope.emit(Emitted::TextDelta("x".into())).await.unwrap();
                }
                Ok(done(vec![]))
            }
            "never" => std::future::pending().await,
            "until cancelled" => {
                scope.cancelled().cancelled().await;
                Err(Failure::new(FailureKind::Cancelled, "noticed"))
            }
            text => Ok(done(vec![Part::text(text)])),
        }
    }

    async fn cancel(&self, turn: Turn) -> Result<(), Failure> {
        self.cancelled_at.lock().unwrap().extend(turn.checkpoint);
        self.cancels.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn memory(&self, bytes: usize) -> Result<usize, TooLarge> {
        let (needs, limit) = (2 * bytes, self.memory.load(Ordering::SeqCst));
        if limit == 0 || needs <= limit {
            return Ok(needs);
        }
        let (executor, fix) = ("scripted".to_owned(), Some("scripted.memory".to_owned()));
        Err(TooLarge { executor, bytes, limit: limit / 2, fix })
    }
}

/// The question of an executor that wants something approved.
fn approval() -> Vec<Part> {
    let data = serde_json::json!({ "approval": { "command": "rm", "choices": ["once", "deny"] } });
    vec![Part::text("May I?"), Part::new(Content::Data(data))]
}

fn over(over: talaria_turns::TurnOver) -> Failure {
    Failure::new(FailureKind::Cancelled, over.to_string())
}

pub(crate) fn service(limits: Limits) -> (Turns, Arc<Scripted>) {
    on(Arc::new(Memory::new(100)), limits)
}

/// A service on a store that may have been another's.
pub(crate) fn on(store: Arc<dyn Store>, limits: Limits) -> (Turns, Arc<Scripted>) {
    let executor = Arc::new(Scripted::default());
    (Turns::new(store, Arc::new(Only(Arc::clone(&executor))), limits), executor)
}

pub(crate) fn message(text: &str) -> Incoming {
    Incoming {
        principal: Principal::anyone(),
        message: Message { role: Role::User, ..Message::agent(vec![Part::text(text)]) }.into(),
        task: None,
        context: None,
        streaming: false,
        async_delivery: false,
        metadata: None,
        push: None,
        trace: None,
    }
}

pub(crate) fn choosing(name: &str) -> Option<Metadata> {
    let mut metadata = Metadata::new();
    metadata.insert("talaria/executor".into(), name.into());
    Some(metadata)
}

/// The text of a message.
pub(crate) fn text(message: Option<impl Borrow<Message>>) -> String {
    talaria_turns::message_text(&message.expect("a message").borrow().parts)
}
