//! The tools for people: messages, requests, approvals; and what peers wrote.
//!
//! Nothing here waits for a person. The platform delivers a decision as an ordinary message.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::arguments::Arguments;
use super::files::{self, Attachment};
use super::refusal::Refusal;
use super::{TEXT, TeamTools, WITHIN, outgoing, text, untrusted};
use crate::platform::CallError;

/// The time that an upload may take.
const UPLOAD: Duration = Duration::from_secs(60);

/// Files of a message.
const FILES: usize = 10;

/// Bytes of a history in a result, and of one message in it.
const HISTORY: (usize, usize) = (64 << 10, 4 << 10);

/// Requests in a list.
const LISTED: usize = 50;

const LATER: &str =
    "go on with other work; the decision comes as a message, or ask with check_requests later";

impl TeamTools {
    pub(super) async fn send_message(&self, arguments: &Arguments) -> Result<String, Refusal> {
        let message = outgoing(arguments.required("message", TEXT)?);
        let mut body = json!({ "message": message });
        let paths = arguments.list("attachments", FILES)?.iter().map(path).collect::<Result<Vec<_>, _>>()?;
        if !paths.is_empty() {
            let uploaded = self.upload(paths).await?;
            if let Some(body) = body.as_object_mut() {
                body.insert("attachments".into(), uploaded);
            }
        }
        self.platform.post(&self.path("notify"), &body, WITHIN).await?;
        Ok(json!({ "status": "sent" }).to_string())
    }

    async fn upload(&self, paths: Vec<PathBuf>) -> Result<Value, Refusal> {
        let folders = self.config.files.clone();
        let read = tokio::task::spawn_blocking(move || files::read(&folders, &paths)).await;
        let read =
            read.map_err(|_| Refusal::failure("the files cannot be read", "send the message without them"))??;
        let count = read.len();
        let boundary = format!("talaria-{}", uuid::Uuid::new_v4().simple());
        let media_type = format!("multipart/form-data; boundary={boundary}");
        let body = multipart(&boundary, read);
        let answer =
            self.platform.post_as(&self.path("chat/uploads"), &media_type, body.into(), UPLOAD).await?;
        let uploaded = answer.get("files").and_then(Value::as_array).filter(|files| files.len() == count);
        let uploaded = uploaded.ok_or_else(|| {
            Refusal::failure(
                "the platform did not take all files; nothing was sent",
                "send the message without them",
            )
        })?;
        let shown = |file: &Value| {
            let known = ["uri", "name", "mimeType", "size"];
            Value::Object(
                known.into_iter().filter_map(|key| Some((key.to_owned(), file.get(key)?.clone()))).collect(),
            )
        };
        Ok(uploaded.iter().map(shown).collect())
    }

    pub(super) async fn create_approval(&self, arguments: &Arguments) -> Result<String, Refusal> {
        let action = arguments.required("action", 4096)?;
        let reason = arguments.text("reason", TEXT)?.unwrap_or_default();
        self.request("approval", action, reason, None).await
    }

    pub(super) async fn create_request(&self, arguments: &Arguments) -> Result<String, Refusal> {
        let missing = || Refusal::new("`kind` is missing", "give `task` or `approval` as `kind`");
        let kind = arguments.word("kind", &["task", "approval"])?.ok_or_else(missing)?;
        let title = arguments.required("title", 4096)?;
        let detail = arguments.text("detail", TEXT)?.unwrap_or_default();
        self.request(kind, title, detail, arguments.number("priority", 10)?).await
    }

    async fn request(
        &self,
        kind: &str,
        title: &str,
        detail: &str,
        priority: Option<u64>,
    ) -> Result<String, Refusal> {
        let (title, detail) = (outgoing(title), outgoing(detail));
        let mut body = json!({
            "kind": kind, "recipient_type": "user", "recipient_id": "", "title": title, "detail": detail,
        });
        if let (Some(priority), Some(body)) = (priority, body.as_object_mut()) {
            body.insert("priority".into(), json!(priority));
        }
        let id = match self.platform.post(&self.path("requests"), &body, WITHIN).await {
            Ok(answer) => text(&answer, "request_id").to_owned(),
            // Older platforms know approvals only.
            Err(CallError::Rejected { status: 404, .. }) if kind == "approval" => {
                let body = json!({ "action": title, "reason": detail });
                let answer = self.platform.post(&self.path("approvals"), &body, WITHIN).await?;
                text(&answer, "approval_id").to_owned()
            }
            Err(error) => return Err(error.into()),
        };
        Ok(json!({ "status": "pending", "request_id": id, "next_step": LATER }).to_string())
    }

    pub(super) async fn check_requests(&self, arguments: &Arguments) -> Result<String, Refusal> {
        let status = arguments.text("status", 40)?.unwrap_or_default();
        let path = self.path(&format!("requests?status={}", utf8_percent_encode(status, NON_ALPHANUMERIC)));
        let answer = match self.platform.get(&path, WITHIN).await {
            Err(CallError::Rejected { status: 404, .. }) => {
                self.platform.get(&self.path("approvals"), WITHIN).await?
            }
            answer => answer?,
        };
        let rows = answer.as_array().or_else(|| answer.get("requests")?.as_array());
        let is = |row: &&Value| status.is_empty() || text(row, "status").eq_ignore_ascii_case(status);
        let show = |row: &Value| {
            let title = [text(row, "title"), text(row, "action")].into_iter().find(|text| !text.is_empty());
            json!({
                "request_id": untrusted::line(text(row, "id"), 128),
                "title": untrusted::line(title.unwrap_or_default(), 200),
                "status": untrusted::line(text(row, "status"), 40),
                "decided_by": untrusted::line(text(row, "decided_by"), 80),
            })
        };
        let shown: Vec<_> = rows.into_iter().flatten().filter(is).take(LISTED).map(show).collect();
        Ok(json!({ "count": shown.len(), "requests": shown }).to_string())
    }

    pub(super) async fn chat_history(&self, arguments: &Arguments) -> Result<String, Refusal> {
        let peer = self.peer(arguments.required("peer_id", 200)?).await?;
        let limit = arguments.number("limit", 500)?.unwrap_or(20).max(1);
        let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        let mut path = self.path(&format!("activity?peer_id={}&limit={limit}", encode(&peer.id)));
        if let Some(before) = arguments.text("before_ts", 40)? {
            path.push_str(&format!("&before_ts={}", encode(before)));
        }
        let answer = self.platform.get(&path, WITHIN).await?;
        let mut rows: Vec<&Value> = answer.as_array().into_iter().flatten().collect();
        // Newest first on the wire.
        rows.reverse();
        let (mut lines, mut left_out) = (String::new(), 0);
        for row in rows {
            let own = text(row, "source_id") == self.assembly.places().id;
            let author = if own { "you".to_owned() } else { untrusted::line(&peer.name, 80) };
            let line =
                format!("[{}] {author}: {}\n", untrusted::line(text(row, "created_at"), 40), content(row));
            match lines.len() + line.len() <= HISTORY.0 {
                true => lines.push_str(&line),
                false => left_out += 1,
            }
        }
        if lines.is_empty() {
            return Ok("There are no messages.".into());
        }
        if left_out > 0 {
            lines.push_str(&format!("({left_out} more; ask for fewer, with limit and before_ts)\n"));
        }
        Ok(untrusted::wrap(&peer.name, lines.trim_end()))
    }

    pub(super) async fn broadcast(&self, arguments: &Arguments) -> Result<String, Refusal> {
        let message = outgoing(arguments.required("message", 4096)?);
        let answer =
            self.platform.post(&self.path("broadcast"), &json!({ "message": message }), WITHIN).await?;
        let delivered = answer.get("delivered").and_then(Value::as_u64).unwrap_or_default();
        Ok(json!({ "status": "sent", "delivered": delivered }).to_string())
    }
}

/// The path in an item of `attachments`: a text, or an object with `uri` or `path`.
fn path(item: &Value) -> Result<PathBuf, Refusal> {
    let path = item.as_str().or_else(|| item.get("path")?.as_str()).or_else(|| item.get("uri")?.as_str());
    let path = path.map(|path| path.strip_prefix("file://").unwrap_or(path));
    path.filter(|path| !path.is_empty() && path.len() <= 4096).map(PathBuf::from).ok_or_else(|| {
        Refusal::new("an item of `attachments` is not a path", "give absolute paths of files as texts")
    })
}

/// The text of a message in a row of the activity.
fn content(row: &Value) -> String {
    let parts = |pointer: &str| {
        let parts = row.pointer(pointer)?.as_array()?;
        let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
        Some(texts.join("\n")).filter(|text| !text.is_empty())
    };
    let found = parts("/request_body/params/message/parts").or_else(|| parts("/response_body/result/parts"));
    let found = found.or_else(|| Some(row.pointer("/response_body/text")?.as_str()?.to_owned()));
    let found = found.unwrap_or_else(|| text(row, "summary").to_owned());
    let end = found.floor_char_boundary(HISTORY.1.min(found.len()));
    let shown = found.get(..end).unwrap_or_default();
    if end < found.len() { format!("{shown} […]") } else { shown.to_owned() }
}

fn multipart(boundary: &str, files: Vec<Attachment>) -> Vec<u8> {
    let mut body = Vec::new();
    for Attachment { name, bytes } in files {
        let head = format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"files\"; filename=\"{name}\"\r\n\
             content-type: application/octet-stream\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}
