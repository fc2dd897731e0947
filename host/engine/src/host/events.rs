//! The import `events`: what a turn emits while it runs, and the questions that it asks its caller.
//!
//! Every string of an event is redacted. An event is limited in size, and the budget of the turn limits them
//! all together. A pending call fails when the turn is cancelled.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use talaria_redact::ReplyRedactor;
use talaria_turns::{Artifact, Emitted, Message, Scope, ToolProgress, ToolState, TurnOver};
use wasmtime::Result;
use wasmtime::component::Resource;

use super::{Ctx, Purpose, types, unless_cancelled};
use crate::contract::bindings::talaria::executor::events as wit;
use crate::convert;
use crate::size::{ENTRY, Size};

/// The size of the largest event. A guest has to split larger results.
const MAX_EVENT: usize = 1 << 20;

/// The entries of a question in the task's log: that it was asked, and that the task went on.
const QUESTION: u32 = 2;

/// The artifacts that one turn may make. For each piece, the task is searched for the artifact that it belongs to, and that
/// work is not charged to the guest.
const MAX_ARTIFACTS: usize = 1_000;

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
        Ok(match talaria_redact::shapes(&text) {
            Cow::Owned(scrubbed) => scrubbed,
            Cow::Borrowed(_) => text,
        })
    }

    async fn ask(&mut self, parts: Vec<types::Part>) -> Result<Result<types::Message, wit::Error>> {
        let asked = match self.put_to_caller(parts).await {
            Ok((scope, mut question)) => guarded(&scope, question.answer()).await,
            Err(error) => Err(error),
        };
        Ok(asked.map(|answer| self.message(&answer)))
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
        Ok(answer.map(|answer| answer.map(|answer| self.message(&answer))))
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
        if parts.is_empty() {
            return Err(rejected(wit::ErrorKind::Invalid, "the question must not be empty"));
        }
        let (Some(shared), Some(scope)) = (self.shared().cloned(), self.scope().cloned()) else {
            return Err(rejected(wit::ErrorKind::Unsupported, "only a turn can ask"));
        };
        self.admit_event("question", QUESTION, Size::of(QUESTION as usize * ENTRY).parts(&parts))?;
        // Text that the redactor still holds back must reach the caller before the question.
        self.flush().await;
        let parts =
            convert::parts(parts, &shared.replies).map_err(|why| rejected(wit::ErrorKind::Invalid, why))?;
        let question = guarded(&scope, scope.pose(parts)).await?;
        Ok((scope, question))
    }

    fn admit_event(&mut self, what: &str, entries: u32, size: Size) -> Result<(), wit::Error> {
        if size.bytes > MAX_EVENT {
            let message = format!("the {what} has {} bytes; {MAX_EVENT} are the most", size.bytes);
            return Err(rejected(wit::ErrorKind::TooLarge, message));
        }
        self.charge(entries, size).map_err(|why| rejected(wit::ErrorKind::TooLarge, why))
    }

    fn admit_artifact(&mut self, id: &str) -> Result<(), wit::Error> {
        if self.artifacts.contains(id) {
            return Ok(());
        }
        if self.artifacts.len() >= MAX_ARTIFACTS {
            let message =
                format!("the turn has made {MAX_ARTIFACTS} artifacts, the most; append to one of them");
            return Err(rejected(wit::ErrorKind::TooLarge, message));
        }
        self.artifacts.insert(id.to_owned());
        Ok(())
    }

    async fn say(&mut self, event: wit::Event) -> Result<(), wit::Error> {
        let only_a_turn = || rejected(wit::ErrorKind::Unsupported, "only a turn can emit");
        let Purpose::Execute { shared, .. } = &self.purpose else { return Err(only_a_turn()) };
        let shared = Arc::clone(shared);
        if let wit::Event::Artifact(artifact) = &event {
            self.admit_artifact(&artifact.id)?;
        }
        self.admit_event("event", 1, Size::event(&event))?;
        let redacted = self.redact(event, &shared.replies)?;
        let scope = self.scope().ok_or_else(only_a_turn)?;
        for emitted in redacted.into_iter().flatten() {
            guarded(scope, scope.emit(emitted)).await?;
        }
        Ok(())
    }

    /// Converts an event. Nothing is to be emitted if all of its text is held back; a piece of an artifact may release
    /// the text of another one before it.
    fn redact(
        &mut self,
        event: wit::Event,
        replies: &ReplyRedactor,
    ) -> Result<[Option<Emitted>; 2], wit::Error> {
        let invalid = |why: String| rejected(wit::ErrorKind::Invalid, why);
        let emitted = match event {
            wit::Event::TextDelta(text) => {
                let text = self.deltas.get_or_insert_with(|| replies.stream()).push(&text);
                if text.is_empty() {
                    return Ok([None, None]);
                }
                Emitted::TextDelta(text)
            }
            wit::Event::Artifact(artifact) => {
                let (append, last) = (artifact.append, artifact.last);
                let artifact = convert_artifact(artifact, replies).map_err(invalid)?;
                return Ok(self.pieces.push(artifact, append, last, replies));
            }
            wit::Event::Status(text) => Emitted::Status(replies.text(text)),
            wit::Event::ToolProgress(tool) => Emitted::Tool(convert_tool(tool, replies).map_err(invalid)?),
            wit::Event::Custom(custom) => Emitted::Custom {
                name: replies.text(custom.name),
                value: convert::json("value", &custom.value, replies).map_err(invalid)?,
            },
        };
        Ok([None, Some(emitted)])
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

fn convert_artifact(artifact: wit::Artifact, replies: &ReplyRedactor) -> Result<Artifact, String> {
    if artifact.id.is_empty() {
        return Err("artifact.id must not be empty".into());
    }
    if artifact.parts.is_empty() {
        return Err("artifact.parts must not be empty".into());
    }
    Ok(Artifact {
        id: replies.text(artifact.id),
        name: artifact.name.map(|name| replies.text(name)),
        description: artifact.description.map(|text| replies.text(text)),
        parts: convert::piece_parts(artifact.parts, replies)?,
        metadata: convert::metadata("artifact.metadata", artifact.metadata, replies)?,
        extensions: Vec::new(),
    })
}

fn convert_tool(tool: wit::ToolProgress, replies: &ReplyRedactor) -> Result<ToolProgress, String> {
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
