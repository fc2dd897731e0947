//! The import `events`: what a turn emits while it runs, and the questions that it asks its caller.
//!
//! Every string of an event is redacted. An event is limited in size, and so is the total of a turn. A
//! pending call fails when the turn is cancelled.

use std::sync::Arc;
use std::time::Duration;

use talaria_turns::{Artifact, Emitted, Message, Scope, ToolProgress, ToolState, TurnOver};
use wasmtime::Result;
use wasmtime::component::Resource;

use super::{Ctx, types, unless_cancelled};
use crate::contract::bindings::talaria::executor::events as wit;
use crate::convert;

/// The size of the largest event. A guest has to split larger results.
const MAX_EVENT: usize = 1 << 20;

/// An open question to the caller. Dropping it withdraws the question.
#[expect(unreachable_pub, reason = "the generated bindings export it again")]
pub struct Question(talaria_turns::Question);

fn rejected(kind: wit::ErrorKind, message: impl Into<String>) -> wit::Error {
    wit::Error { kind, message: message.into() }
}

impl wit::Host for Ctx {
    async fn emit(&mut self, event: wit::Event) -> Result<Result<(), wit::Error>> {
        Ok(self.say(event).await)
    }

    fn scrub(&mut self, text: String) -> Result<String> {
        // By shapes only: a guest must not find out whether it has guessed the value of a secret.
        Ok(talaria_redact::shapes(&text).into_owned())
    }

    async fn ask(&mut self, parts: Vec<types::Part>) -> Result<Result<types::Message, wit::Error>> {
        let asked = match self.put_to_caller(parts).await {
            Ok((scope, mut question)) => guarded(&scope, question.answer()).await,
            Err(error) => Err(error),
        };
        Ok(asked.map(|answer| convert::message(&answer)))
    }

    async fn pose(&mut self, parts: Vec<types::Part>) -> Result<Result<Resource<Question>, wit::Error>> {
        match self.put_to_caller(parts).await {
            Ok((_, question)) => Ok(Ok(self.table.push(Question(question))?)),
            Err(error) => Ok(Err(error)),
        }
    }
}

impl wit::HostQuestion for Ctx {
    async fn wait(
        &mut self,
        question: Resource<Question>,
        timeout_ms: u32,
    ) -> Result<Result<Option<types::Message>, wit::Error>> {
        let scope = self.scope().cloned();
        let question = self.table.get_mut(&question)?;
        let Some(scope) = scope else {
            return Ok(Err(rejected(wit::ErrorKind::Unsupported, "only a turn can ask")));
        };
        let limit = Duration::from_millis(timeout_ms.into());
        let answer = async {
            match tokio::time::timeout(limit, question.0.answer()).await {
                Ok(answer) => answer.map(Some),
                Err(_) => Ok(None),
            }
        };
        let answer: Result<Option<Arc<Message>>, wit::Error> = guarded(&scope, answer).await;
        Ok(answer.map(|answer| answer.map(|answer| convert::message(&answer))))
    }

    fn drop(&mut self, question: Resource<Question>) -> Result<()> {
        self.table.delete(question)?;
        Ok(())
    }
}

impl Ctx {
    async fn put_to_caller(
        &mut self,
        parts: Vec<types::Part>,
    ) -> Result<(Scope, talaria_turns::Question), wit::Error> {
        let bytes: usize = parts.iter().map(convert::part_size).sum();
        if bytes > MAX_EVENT {
            let message = format!("the question has {bytes} bytes; {MAX_EVENT} are the most");
            return Err(rejected(wit::ErrorKind::TooLarge, message));
        }
        if parts.is_empty() {
            return Err(rejected(wit::ErrorKind::Invalid, "the question must not be empty"));
        }
        let (Some(shared), Some(scope)) = (self.shared().cloned(), self.scope().cloned()) else {
            return Err(rejected(wit::ErrorKind::Unsupported, "only a turn can ask"));
        };
        // Text that the redactor still holds back must reach the caller before the question.
        self.flush().await;
        let parts =
            convert::parts(parts, &shared.replies).map_err(|why| rejected(wit::ErrorKind::Invalid, why))?;
        let question = guarded(&scope, scope.pose(parts)).await?;
        Ok((scope, question))
    }

    async fn say(&mut self, event: wit::Event) -> Result<(), wit::Error> {
        let bytes = size(&event);
        if bytes > MAX_EVENT {
            return Err(rejected(
                wit::ErrorKind::TooLarge,
                format!("the event has {bytes} bytes; {MAX_EVENT} are the most"),
            ));
        }
        if self.emitted.saturating_add(bytes) > self.limits.emit_bytes {
            return Err(rejected(
                wit::ErrorKind::TooLarge,
                format!(
                    "the turn has emitted {} bytes; {} are the most",
                    self.emitted, self.limits.emit_bytes
                ),
            ));
        }
        let (Some(shared), Some(scope)) = (self.shared().cloned(), self.scope().cloned()) else {
            return Err(rejected(wit::ErrorKind::Unsupported, "only a turn can emit"));
        };
        let emitted = match event {
            wit::Event::TextDelta(text) => {
                let deltas = self.deltas.get_or_insert_with(|| shared.replies.stream());
                Emitted::TextDelta(deltas.push(&text))
            }
            wit::Event::Artifact(artifact) => convert_artifact(artifact, &shared.replies)
                .map_err(|why| rejected(wit::ErrorKind::Invalid, why))?,
            wit::Event::Status(text) => Emitted::Status(shared.replies.text(text)),
            wit::Event::ToolProgress(tool) => Emitted::Tool(
                convert_tool(tool, &shared.replies).map_err(|why| rejected(wit::ErrorKind::Invalid, why))?,
            ),
            wit::Event::Custom(custom) => Emitted::Custom {
                name: shared.replies.text(custom.name),
                value: convert::json("value", &custom.value, &shared.replies)
                    .map_err(|why| rejected(wit::ErrorKind::Invalid, why))?,
            },
        };
        self.emitted += bytes;
        if matches!(&emitted, Emitted::TextDelta(text) if text.is_empty()) {
            return Ok(());
        }
        guarded(&scope, scope.emit(emitted)).await
    }
}

/// Awaits `call`, and fails if the turn is cancelled meanwhile.
async fn guarded<T>(scope: &Scope, call: impl Future<Output = Result<T, TurnOver>>) -> Result<T, wit::Error> {
    let cancelled = |why: String| rejected(wit::ErrorKind::Cancelled, why);
    match unless_cancelled(Some(scope), call).await {
        Some(result) => result.map_err(|over| cancelled(over.to_string())),
        None => Err(cancelled("the turn was cancelled".into())),
    }
}

fn size(event: &wit::Event) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    match event {
        wit::Event::TextDelta(delta) => delta.len(),
        wit::Event::Status(status) => status.len(),
        wit::Event::Artifact(artifact) => {
            let own = artifact.id.len()
                + text(&artifact.name)
                + text(&artifact.description)
                + text(&artifact.metadata);
            own + artifact.parts.iter().map(convert::part_size).sum::<usize>()
        }
        wit::Event::ToolProgress(tool) => {
            tool.id.len() + tool.name.len() + text(&tool.label) + text(&tool.metadata)
        }
        wit::Event::Custom(custom) => custom.name.len() + custom.value.len(),
    }
}

fn convert_artifact(
    artifact: wit::Artifact,
    replies: &talaria_redact::ReplyRedactor,
) -> Result<Emitted, String> {
    if artifact.id.is_empty() {
        return Err("artifact.id must not be empty".into());
    }
    if artifact.parts.is_empty() {
        return Err("artifact.parts must not be empty".into());
    }
    Ok(Emitted::Artifact {
        append: artifact.append,
        last: artifact.last,
        artifact: Artifact {
            id: replies.text(artifact.id),
            name: artifact.name.map(|name| replies.text(name)),
            description: artifact.description.map(|text| replies.text(text)),
            parts: convert::parts(artifact.parts, replies)?,
            metadata: convert::metadata("artifact.metadata", artifact.metadata, replies)?,
            extensions: Vec::new(),
        },
    })
}

fn convert_tool(
    tool: wit::ToolProgress,
    replies: &talaria_redact::ReplyRedactor,
) -> Result<ToolProgress, String> {
    Ok(ToolProgress {
        id: replies.text(tool.id),
        name: replies.text(tool.name),
        state: match tool.state {
            wit::ToolState::Started => ToolState::Started,
            wit::ToolState::Completed => ToolState::Completed,
            wit::ToolState::Failed => ToolState::Failed,
        },
        label: tool.label.map(|label| replies.text(label)),
        metadata: convert::metadata("metadata", tool.metadata, replies)?,
    })
}
