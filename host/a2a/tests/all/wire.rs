//! The four protocols of the server: two versions in two bindings.

use serde_json::{Value, json};

use crate::kit::{Answer, Host, fresh, message, message_03};
use crate::sse::{Frame, Sse};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Rpc,
    Rest,
    OldRpc,
    OldRest,
}

/// A request, independent of the protocol.
#[derive(Debug, Clone)]
pub(crate) enum Ask<'a> {
    Send(Value),
    Stream(Value),
    Get(&'a str),
    Cancel(&'a str),
    Subscribe(&'a str),
    Card,
    PushConfigs(&'a str),
}

/// An encoded request.
pub(crate) struct Prepared {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: String,
}

pub(crate) const ALL: [Wire; 4] = [Wire::Rpc, Wire::Rest, Wire::OldRpc, Wire::OldRest];

impl Wire {
    pub(crate) fn is_old(self) -> bool {
        matches!(self, Self::OldRpc | Self::OldRest)
    }

    pub(crate) fn is_rest(self) -> bool {
        matches!(self, Self::Rest | Self::OldRest)
    }

    /// Returns a message with one text.
    pub(crate) fn message(self, text: &str) -> Value {
        match self {
            Self::Rpc | Self::Rest => message(text),
            Self::OldRpc => message_03(text),
            Self::OldRest => {
                json!({ "messageId": fresh(), "role": "ROLE_USER", "content": [{ "text": text }] })
            }
        }
    }

    pub(crate) fn params(self, text: &str) -> Value {
        json!({ "message": self.message(text) })
    }

    pub(crate) fn prepare(self, ask: &Ask<'_>) -> Prepared {
        let (rpc, old, method, path, params) = match ask {
            Ask::Send(params) => {
                ("SendMessage", "message/send", "POST", "/message:send".into(), params.clone())
            }
            Ask::Stream(params) => {
                ("SendStreamingMessage", "message/stream", "POST", "/message:stream".into(), params.clone())
            }
            Ask::Get(id) => ("GetTask", "tasks/get", "GET", format!("/tasks/{id}"), json!({ "id": id })),
            Ask::Cancel(id) => {
                ("CancelTask", "tasks/cancel", "POST", format!("/tasks/{id}:cancel"), json!({ "id": id }))
            }
            Ask::Subscribe(id) => (
                "SubscribeToTask",
                "tasks/resubscribe",
                "POST",
                format!("/tasks/{id}:subscribe"),
                json!({ "id": id }),
            ),
            Ask::Card => {
                let path = if self.is_old() { "/card" } else { "/extendedAgentCard" };
                ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard", "GET", path.into(), json!({}))
            }
            Ask::PushConfigs(id) => (
                "ListTaskPushNotificationConfigs",
                "tasks/pushNotificationConfig/list",
                "GET",
                format!("/tasks/{id}/pushNotificationConfigs"),
                json!({ "id": id }),
            ),
        };
        let mut headers = vec![("content-type", "application/json")];
        if !self.is_old() {
            headers.push(("A2A-Version", "1.0"));
        }
        if self.is_rest() {
            let path = if self.is_old() { format!("/v1{path}") } else { path };
            let body = if method == "GET" { String::new() } else { params.to_string() };
            return Prepared { method, path, headers, body };
        }
        let name = if self.is_old() { old } else { rpc };
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": name, "params": params }).to_string();
        Prepared { method: "POST", path: "/".into(), headers, body }
    }

    pub(crate) async fn ask_as(self, host: &Host, more: &[(&str, &str)], ask: &Ask<'_>) -> Answer {
        let Prepared { method, path, headers, body } = self.prepare(ask);
        let mut all: Vec<(&str, &str)> = headers;
        all.extend(more);
        host.request(method, &path, &all, body.as_bytes()).await
    }

    pub(crate) async fn ask(self, host: &Host, ask: &Ask<'_>) -> Answer {
        self.ask_as(host, &[], ask).await
    }

    /// Sends a request that must succeed, and returns its result.
    pub(crate) async fn get(self, host: &Host, ask: &Ask<'_>) -> Value {
        let answer = self.ask(host, ask).await;
        assert_eq!(answer.status, 200, "{self:?} {ask:?}: {answer:?}");
        let body = answer.json();
        if self.is_rest() { body } else { body["result"].clone() }
    }

    /// Opens a stream; returns the answer if it is not a stream.
    pub(crate) async fn open(self, host: &Host, more: &[(&str, &str)], ask: &Ask<'_>) -> Result<Sse, Answer> {
        let Prepared { method, path, headers, body } = self.prepare(ask);
        let mut all: Vec<(&str, &str)> = headers;
        all.extend(more);
        Sse::open(host, method, &path, &all, body.as_bytes()).await
    }

    pub(crate) async fn stream(self, host: &Host, text: &str) -> Sse {
        self.open(host, &[], &Ask::Stream(self.params(text)))
            .await
            .unwrap_or_else(|answer| panic!("{answer:?}"))
    }

    pub(crate) async fn subscribe(self, host: &Host, id: &str, after: Option<u64>) -> Result<Sse, Answer> {
        let after = after.map(|after| after.to_string());
        let headers: Vec<_> = after.as_deref().map(|after| ("Last-Event-ID", after)).into_iter().collect();
        self.open(host, &headers, &Ask::Subscribe(id)).await
    }

    /// Returns the HTTP status, the code, the reason and the field of an error.
    pub(crate) fn error(self, answer: &Answer) -> (u16, i64, String, String) {
        let body = answer.json();
        let error = &body["error"];
        assert!(!error["message"].as_str().unwrap_or_default().is_empty(), "{self:?} {body}");
        let details = if self.is_rest() { &error["details"] } else { &error["data"] };
        let info = &details[0];
        assert_eq!(info["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{self:?} {body}");
        if self.is_rest() {
            assert_eq!(error["code"], answer.status, "{body}");
            assert!(error["status"].is_string(), "{body}");
        }
        let field = details
            .as_array()
            .unwrap()
            .iter()
            .find_map(|detail| detail["fieldViolations"][0]["field"].as_str());
        let reason = info["reason"].as_str().unwrap().to_owned();
        (answer.status, error["code"].as_i64().unwrap(), reason, field.unwrap_or_default().to_owned())
    }

    /// Returns the reason of an error.
    pub(crate) fn reason(self, answer: &Answer) -> String {
        self.error(answer).2
    }

    /// Returns the content of a frame without its envelope.
    pub(crate) fn inner(self, frame: &Frame) -> Value {
        let data = frame.data.clone().unwrap_or_else(|| panic!("no data: {frame:?}"));
        if self.is_rest() {
            return data;
        }
        assert_eq!((&data["jsonrpc"], &data["id"]), (&json!("2.0"), &json!(1)), "{data}");
        data["result"].clone()
    }

    /// Summarizes a frame. The summary is the same in every protocol, except for `final`, which only 0.3 has.
    pub(crate) fn brief(self, frame: &Frame) -> String {
        let data = self.inner(frame);
        let (kind, thing) = match self {
            Self::OldRpc => (data["kind"].as_str().unwrap().to_owned(), data.clone()),
            _ => {
                let (kind, thing) = data.as_object().unwrap().iter().next().unwrap();
                (kind.clone(), thing.clone())
            }
        };
        match &*kind {
            "task" => format!("task {}", state(&thing["status"])),
            "message" => format!("message {:?}", self.text(&thing)),
            "status-update" | "statusUpdate" => {
                let note = thing["metadata"]
                    .as_object()
                    .and_then(|all| all.keys().find(|key| key.starts_with("talaria/")));
                let is_chunk = thing["status"]["message"]["metadata"]["talaria/chunk"] == true;
                let mut brief = match note {
                    Some(note) => format!("note {note}"),
                    None if is_chunk => "chunk".into(),
                    None => format!("status {}", state(&thing["status"])),
                };
                if thing["status"]["message"].is_object() {
                    brief += &format!(" {:?}", self.text(&thing["status"]["message"]));
                }
                if thing["final"] == true {
                    brief += " final";
                }
                brief
            }
            "artifact-update" | "artifactUpdate" => {
                let mut brief = format!(
                    "artifact {} {:?}",
                    thing["artifact"]["artifactId"].as_str().unwrap(),
                    thing["artifact"]["parts"][0]["text"].as_str().unwrap_or("?")
                );
                for flag in ["append", "lastChunk"] {
                    if thing[flag] == true {
                        brief += &format!(" {flag}");
                    }
                }
                if thing["metadata"]["talaria/chunk"] == true {
                    brief += " chunk";
                }
                brief
            }
            other => panic!("unknown kind {other}: {data}"),
        }
    }

    pub(crate) fn text(self, message: &Value) -> String {
        let parts = if self == Self::OldRest { "content" } else { "parts" };
        message[parts][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {message}")).to_owned()
    }
}

/// Returns the state of a status as 0.3 spells it.
pub(crate) fn state(status: &Value) -> String {
    let state = status["state"].as_str().unwrap();
    state.trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-").replace("cancelled", "canceled")
}
