//! The plugin-callback executor, against a plugin that behaves like hermes-agent's.

mod approvals;
mod chats;
mod errors;
mod notices;
mod request;
mod resumed;
mod stopped;
mod thousand;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_engine::Limits;
use talaria_fakes::FakePlugin;
use talaria_rig::{MailHost, Rig};
use talaria_turns::{Content, Emitted, Failure, Message, Outcome, Part, Role, Turn, TurnSignal};
use tokio::sync::mpsc;

/// The secret that plugin and bridge share; the executor may name it but never sees it.
const SECRET: &str = "MOLECULE_A2A_PLATFORM_SHARED_SECRET";

/// The executor, pointed at this plugin, with the grant that its settings imply and the deadline of the product. Its
/// chats are named as the Python bridge named them, so that turns of the rig's one context have chats of their own.
async fn rig(plugin: &FakePlugin, mail: &MailHost) -> Rig {
    Rig::new("plugin-callback")
        .await
        .setting("inbound_url", plugin.inbound_url())
        .setting("health_url", plugin.health_url())
        .setting("chat_id", json!(["task", "session", "context", "message"]))
        .limits(Limits { deadline: Duration::from_secs(1_860), ..Limits::default() })
        .callbacks(mail.callbacks())
}

/// A turn with this metadata in its message.
fn with_metadata(turn: Turn, metadata: Value) -> Turn {
    let message = Message { metadata: metadata.as_object().cloned(), ..(*turn.message).clone() };
    Turn { message: Arc::new(message), ..turn }
}

/// A turn under way: its signals and its end.
struct Running {
    said: mpsc::Receiver<TurnSignal>,
    end: tokio::task::JoinHandle<Result<Outcome, Failure>>,
}

impl Running {
    #[expect(clippy::disallowed_methods, reason = "in a test nothing drains")]
    fn begin(rig: &Rig, turn: Turn) -> Self {
        let (running, said) = rig.begin(turn);
        Self { said, end: tokio::spawn(running) }
    }

    /// Waits for the next signal; checkpoints are acknowledged on the way.
    async fn next(&mut self) -> TurnSignal {
        loop {
            match talaria_fakes::soon("the turn says something", self.said.recv()).await.unwrap() {
                TurnSignal::Checkpoint { kept, .. } => drop(kept.send(Ok(()))),
                said => return said,
            }
        }
    }

    async fn status(&mut self) -> String {
        let said = self.next().await;
        let TurnSignal::Emitted(emitted) = said else { panic!("not a status: {said:?}") };
        match *emitted {
            Emitted::Status(text) => text,
            said => panic!("not a status: {said:?}"),
        }
    }

    /// Waits for the next question; returns its text and the sender for the answer.
    async fn question(&mut self) -> (String, tokio::sync::oneshot::Sender<Arc<Message>>) {
        match self.next().await {
            TurnSignal::Ask { parts, answer } => (text(&parts), answer),
            said => panic!("not a question: {said:?}"),
        }
    }

    /// Waits for the end; checkpoints are acknowledged on the way, other signals dropped.
    async fn end(mut self) -> Result<String, Failure> {
        let outcome = talaria_fakes::soon("the turn ends", async {
            loop {
                tokio::select! {
                    Some(said) = self.said.recv() => if let TurnSignal::Checkpoint { kept, .. } = said {
                        let _ = kept.send(Ok(()));
                    },
                    end = &mut self.end => return end.unwrap(),
                }
            }
        });
        outcome.await.map(|outcome| text(&outcome.parts))
    }
}

fn text(parts: &[Part]) -> String {
    match parts.first().map(|part| &part.content) {
        Some(Content::Text(text)) => text.clone(),
        other => panic!("not a text: {other:?}"),
    }
}

fn says(text: &str) -> Arc<Message> {
    Arc::new(Message { role: Role::User, ..Message::agent(vec![Part::text(text)]) })
}
