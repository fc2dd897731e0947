//! A scripted executor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::json;
use talaria_turns::{
    Artifact, Content, Emitted, Executor, Failure, FailureKind, FinalState, NoExecutor, Outcome, Part, Route,
    RouteQuery, Scope, TaskId, ToolProgress, ToolState, Turn, Usage, message_text,
};
use tokio::sync::{Semaphore, mpsc};

/// Obeys the first word of the message, or echoes the message.
pub(crate) struct Script {
    pub(crate) waiting: mpsc::UnboundedSender<TaskId>,
    /// A permit lets one waiting turn continue.
    pub(crate) go: Semaphore,
    /// The number of chunks that a flood has emitted.
    pub(crate) emitted: AtomicUsize,
}

pub(crate) struct OneRoute(pub(crate) Arc<Script>);

impl Route for OneRoute {
    fn pick(&self, asked: &RouteQuery<'_>) -> Result<Arc<dyn Executor>, NoExecutor> {
        match asked.message.metadata.as_ref().and_then(|metadata| metadata.get("talaria/executor")) {
            None => Ok(Arc::clone(&self.0) as Arc<dyn Executor>),
            Some(name) => Err(NoExecutor::Refused(format!("no executor {name}"))),
        }
    }

    fn named(&self, _: &str) -> Option<Arc<dyn Executor>> {
        Some(Arc::clone(&self.0) as Arc<dyn Executor>)
    }
}

fn artifact(id: &str, part: Part) -> Artifact {
    Artifact::new(id, vec![part])
}

impl Script {
    async fn wait(&self, turn: &Turn) {
        self.waiting.send(turn.task.clone()).unwrap();
        self.go.acquire().await.unwrap().forget();
    }

    /// Emits one of everything.
    async fn emit_everything(scope: &Scope) {
        let tool = ToolProgress {
            id: "c1".into(),
            name: "ls".into(),
            state: ToolState::Started,
            label: Some("listing".into()),
            metadata: None,
        };
        let piece = |text: &str, append, last| Emitted::Artifact {
            artifact: artifact("doc", Part::text(text)),
            append,
            last,
        };
        scope.emit(Emitted::Status("thinking".into())).await.unwrap();
        scope.emit(Emitted::Tool(tool)).await.unwrap();
        scope.emit(Emitted::Custom { name: "mood".into(), value: json!({ "good": true }) }).await.unwrap();
        scope.emit(Emitted::TextDelta("Hel".into())).await.unwrap();
        scope.checkpoint(b"here".to_vec()).await.unwrap();
        scope.emit(piece("one ", false, false)).await.unwrap();
        scope.emit(piece("two", true, true)).await.unwrap();
        scope.emit(Emitted::TextDelta("lo".into())).await.unwrap();
    }
}

#[async_trait]
impl Executor for Script {
    fn name(&self) -> &str {
        "script"
    }

    async fn execute(&self, turn: Turn, scope: Scope) -> Result<Outcome, Failure> {
        let text = message_text(&turn.message.parts);
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((&text, ""));
        let mut outcome = Outcome {
            state: FinalState::Completed,
            parts: vec![Part::text(format!("echo: {text}"))],
            usage: None,
            metadata: None,
        };
        match word {
            "wait" => self.wait(&turn).await,
            "fail" => {
                return Err(Failure::new(FailureKind::Upstream, "[agent unreachable] connection refused"));
            }
            "ask" => outcome.state = FinalState::InputRequired,
            "reject" => outcome.state = FinalState::Rejected,
            "question" => {
                let answer = scope.ask(vec![Part::text("which?")]).await.unwrap();
                outcome.parts = vec![Part::text(format!("answer: {}", message_text(&answer.parts)))];
            }
            "stuck" => {
                self.waiting.send(turn.task.clone()).unwrap();
                scope.cancelled().cancelled().await;
                return Err(Failure::new(FailureKind::Cancelled, "cancelled"));
            }
            "say" => {
                Self::emit_everything(&scope).await;
                if rest == "wait" {
                    self.wait(&turn).await;
                }
                outcome.parts = vec![Part::text("Hello")];
            }
            "blanks" => {
                for text in ["a ", "b "] {
                    scope.emit(Emitted::TextDelta(text.into())).await.unwrap();
                }
                outcome.parts = vec![Part::text("a b")];
            }
            "illustrate" => {
                scope.emit(Emitted::TextDelta("look".into())).await.unwrap();
                let image =
                    Part { media_type: Some("image/png".into()), ..Part::new(Content::Bytes(b"png".into())) };
                outcome.parts = vec![Part::text("look\n"), image];
            }
            "break" => {
                scope.emit(Emitted::TextDelta("half".into())).await.unwrap();
                return Err(Failure::new(FailureKind::Upstream, "broken"));
            }
            "leave-open" => {
                let artifact = artifact("doc", Part::text("one"));
                scope.emit(Emitted::Artifact { artifact, append: false, last: false }).await.unwrap();
                outcome.parts = vec![Part::text("done")];
            }
            "flood" => {
                let text = "x".repeat(1024);
                for _ in 0..rest.parse().unwrap() {
                    scope.emit(Emitted::TextDelta(text.clone())).await.unwrap();
                    self.emitted.fetch_add(1, Ordering::SeqCst);
                }
                outcome.parts = Vec::new();
            }
            "file" => {
                let file = Part {
                    media_type: Some("text/plain".into()),
                    ..Part::new(Content::Bytes(b"tck".into()))
                };
                let artifact = artifact("file", file);
                scope.emit(Emitted::Artifact { artifact, append: false, last: true }).await.unwrap();
            }
            "tenant" => {
                let metadata = turn.metadata.unwrap_or_default();
                outcome.parts = vec![Part::text(
                    metadata.get("talaria/tenant").and_then(|tenant| tenant.as_str()).unwrap_or("none"),
                )];
            }
            "modes" => {
                let metadata = turn.metadata.unwrap_or_default();
                let modes = metadata.get("talaria/output-modes").map_or("none".into(), ToString::to_string);
                outcome.parts = vec![Part::text(modes)];
            }
            "as-task" => outcome.metadata = json!({ "talaria/reply": "task" }).as_object().cloned(),
            "as-message" => outcome.metadata = json!({ "talaria/reply": "message" }).as_object().cloned(),
            "cost" => {
                outcome.usage = Some(Usage { input_tokens: 3, output_tokens: 5 });
                outcome.metadata =
                    json!({ "tool_trace": [{ "tool": "ls", "input": "." }] }).as_object().cloned();
            }
            _ => {}
        }
        Ok(outcome)
    }

    async fn cancel(&self, _: Turn) -> Result<(), Failure> {
        Ok(())
    }
}
