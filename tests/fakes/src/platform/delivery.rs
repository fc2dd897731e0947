//! How messages reach the bridges of hosted workspaces: for delegations, and through the proxy.
//!
//! A delegation is sent in the background, as `message/send` of A2A 0.3 with its id as the id of the message. If the bridge
//! cannot be reached, it is sent once more, after a pause. The answer is the first part of kind `text`, or else the whole body,
//! **whatever it says**: a bridge that reports the failure of its agent in a message has completed the delegation.
//! A platform that goes down forgets what it was sending.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use talaria_egress::{Access, ErrorKind, Pattern, Request};
use tokio::sync::oneshot;

use super::delegations::{Delegated, End};
use super::hosted::Queued;
use super::{Platform, State, refuse};
use crate::reply::Reply;

/// The pause before the second attempt to send a delegation. The real platform waits 8 s.
const AGAIN: Duration = Duration::from_millis(200);

/// Something to do after a request was answered.
#[derive(Debug)]
pub(super) enum Errand {
    /// Sends the delegation of this number.
    Delegation(usize),
    /// Passes a message on and answers with the answer.
    Proxy { caller: String, target: String, body: Value, reply: oneshot::Sender<Reply> },
    /// Sends what waits for this workspace.
    Queue(String),
}

/// Why a message was not answered.
#[derive(Debug)]
struct Undelivered {
    status: u16,
    error: String,
}

/// What becomes of a message.
enum Way {
    /// The platform answers it.
    Here(u16, Value),
    /// A bridge answers it.
    Bridge { url: String, secret: Option<String> },
}

// === impl Platform ===

impl Platform {
    /// Does it in the background.
    pub(super) fn run(self: &Arc<Self>, errand: Errand) {
        let platform = Arc::clone(self);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.spawn(async move {
            match errand {
                Errand::Delegation(number) => platform.send_delegation(number).await,
                Errand::Proxy { caller, target, body, reply } => {
                    let answer = match platform.pass_on(&caller, &target, &body, None).await {
                        Ok((status, body)) => Reply::status(status, "application/json", body),
                        Err(Undelivered { status, error }) => refuse(status, &error),
                    };
                    let _ = reply.send(answer);
                }
                Errand::Queue(workspace) => platform.send_queue(&workspace).await,
            }
            platform.told.send_modify(|told| *told += 1);
        });
    }

    /// Forgets everything that it does in the background.
    pub(super) fn stop(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }

    async fn send_delegation(&self, number: usize) {
        let delegated = self.state().team.log.delegated.get(number - 1).cloned();
        let Delegated { id, source, body, .. } = delegated.expect("it was just made");
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let target = text("target_id");
        let message = json!({
            "role": "user", "messageId": id, "parts": [{ "kind": "text", "text": text("task") }],
            "metadata": { "delegation_id": id },
        });
        let body = json!({ "method": "message/send", "params": { "message": message } });
        let mut answer = self.pass_on(&source, target, &body, Some(&id)).await;
        if matches!(answer, Err(Undelivered { status: 502, .. })) {
            tokio::time::sleep(AGAIN).await;
            answer = self.pass_on(&source, target, &body, Some(&id)).await;
        }
        let end = match answer {
            Err(Undelivered { error, .. }) => End::Failed(error),
            Ok((202, _)) => End::Queued,
            Ok((_, body)) => End::Completed(text_of(&body)),
        };
        self.state().team.log.end(&id, end);
    }

    /// Sends the queue of a workspace, in order.
    async fn send_queue(&self, workspace: &str) {
        loop {
            let next = {
                let mut state = self.state();
                let found = state.hosted.find(workspace).filter(|workspace| !workspace.is_busy);
                found.and_then(|workspace| workspace.queue.pop_front())
            };
            let Some(Queued { caller, body, delegation }) = next else { return };
            let answer = self.pass_on(&caller, workspace, &body, delegation.as_deref()).await;
            let Some(id) = delegation else { continue };
            let end = match answer {
                Err(Undelivered { error, .. }) => End::Failed(error),
                // It is busy again, and the message is at the end of the queue.
                Ok((202, _)) => continue,
                Ok((_, body)) => End::Completed(text_of(&body)),
            };
            self.state().team.log.end(&id, end);
            self.told.send_modify(|told| *told += 1);
        }
    }

    /// Passes a message on to a workspace. Returns the status and the body of the answer.
    async fn pass_on(
        &self,
        caller: &str,
        target: &str,
        body: &Value,
        delegation: Option<&str>,
    ) -> Result<(u16, Bytes), Undelivered> {
        // The guard must not live across an await.
        let way = self.state().way(caller, target, body, delegation)?;
        let (url, secret) = match way {
            Way::Here(status, answer) => return Ok((status, answer.to_string().into())),
            Way::Bridge { url, secret } => (url, secret),
        };
        let mut envelope = json!({ "jsonrpc": "2.0", "id": "1" });
        if let (Some(envelope), Some(body)) = (envelope.as_object_mut(), body.as_object()) {
            envelope.extend(body.clone());
        }
        let response = self.call(&url, secret, &envelope).await?;
        let answer: Value = serde_json::from_slice(&response.1).unwrap_or_default();
        self.state().team.log.message(caller, target, body, &answer);
        match response {
            (200..300, body) if body.is_empty() => {
                Err(Undelivered { status: 502, error: "agent returned empty response body".into() })
            }
            (200..300, _) => Ok(response),
            (status, _) => {
                let error = answer.get("error").and_then(Value::as_str).unwrap_or("the agent refused it");
                Err(Undelivered { status, error: error.into() })
            }
        }
    }

    async fn call(
        &self,
        url: &str,
        secret: Option<String>,
        body: &Value,
    ) -> Result<(u16, Bytes), Undelivered> {
        let pattern: Pattern = format!("POST {}/*", url.trim_end_matches('/')).parse().expect("a URL");
        let access = Access { patterns: vec![pattern], ..Access::default() };
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        headers.extend(secret.map(|secret| ("authorization".to_owned(), format!("Bearer {secret}"))));
        let request = Request {
            method: "POST".into(),
            url: format!("{}/", url.trim_end_matches('/')),
            headers,
            body: body.to_string().into(),
            ..Request::default()
        };
        let response = self.egress.fetch(&access, request).await.map_err(|error| match error.kind() {
            ErrorKind::Connect | ErrorKind::Dns => {
                Undelivered { status: 502, error: "failed to reach workspace agent".into() }
            }
            // The message may have arrived, so it is not sent again.
            _ => Undelivered { status: 503, error: "workspace agent dropped the connection".into() },
        })?;
        Ok((response.status, response.body))
    }
}

// === impl State ===

impl State {
    fn way(
        &mut self,
        caller: &str,
        target: &str,
        body: &Value,
        delegation: Option<&str>,
    ) -> Result<Way, Undelivered> {
        if !self.hosted.can_communicate(caller, target) {
            let error = "access denied: workspaces cannot communicate per hierarchy rules";
            return Err(Undelivered { status: 403, error: error.into() });
        }
        let secret = self.sends_secret.then(|| self.secret.clone());
        let Some(workspace) = self.hosted.find(target) else {
            return Err(Undelivered { status: 404, error: "workspace not found".into() });
        };
        if workspace.polls {
            let method = body.get("method");
            let receipt = json!({ "status": "queued", "delivery_mode": "poll", "method": method });
            return Ok(Way::Here(200, receipt));
        }
        if workspace.is_busy {
            let delegation = delegation.map(str::to_owned);
            workspace.queue.push_back(Queued { caller: caller.into(), body: body.clone(), delegation });
            let depth = workspace.queue.len();
            let message = "workspace agent busy — request queued";
            let receipt = json!({ "queued": true, "queue_id": format!("q-{depth}"), "queue_depth": depth, "message": message });
            return Ok(Way::Here(202, receipt));
        }
        match &workspace.url {
            Some(url) => Ok(Way::Bridge { url: url.clone(), secret }),
            None => Err(Undelivered { status: 503, error: "workspace not available".into() }),
        }
    }
}

/// The text of an answer: the first part of kind `text` of the message, or of an artifact; else the whole body.
fn text_of(body: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let first = |parts: &Value| {
        let is_text = |part: &&Value| part.get("kind").is_some_and(|kind| kind == "text");
        let mut texts = parts.as_array()?.iter().filter(is_text);
        texts.find_map(|part| part.get("text")?.as_str()).map(str::to_owned)
    };
    let of_message = answer.pointer("/result/parts").and_then(first);
    let of_artifacts = || {
        let artifacts = answer.pointer("/result/artifacts")?.as_array()?;
        artifacts.iter().find_map(|artifact| artifact.get("parts").and_then(first))
    };
    of_message.or_else(of_artifacts).unwrap_or_else(|| String::from_utf8_lossy(body).into_owned())
}
