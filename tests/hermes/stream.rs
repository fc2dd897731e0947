//! Reads a stream of a bridge.

use std::time::Duration;

use serde_json::{Value, json};
use talaria_egress::{Access, Config, Egress, Exchange, Request};
use talaria_fakes::soon;

use crate::bridge::{Bridge, message};

/// A turn whose events are read one by one.
pub(crate) struct Stream {
    exchange: Exchange,
    /// The task's id, after the first event.
    pub(crate) task: String,
    /// The context's id.
    pub(crate) context: String,
    /// The answer so far.
    pub(crate) text: String,
    /// The tools that were reported, each by its name and state.
    pub(crate) tools: Vec<(String, String)>,
    /// The last state of the task.
    pub(crate) state: String,
    /// The text of that state.
    pub(crate) status: String,
    /// The number of pieces of the answer.
    pub(crate) pieces: usize,
}

impl Stream {
    /// Sends a text and opens its stream.
    pub(crate) async fn send(bridge: &Bridge, text: &str) -> Self {
        Self::open(bridge, message(text)).await
    }

    /// The same with any parameters.
    pub(crate) async fn open(bridge: &Bridge, params: Value) -> Self {
        let url = bridge.url();
        let access = Access { patterns: vec![format!("POST {url}/*").parse().unwrap()], ..Access::default() };
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params });
        let request = Request {
            method: "POST".into(),
            url: format!("{url}/"),
            headers: vec![
                ("content-type".into(), "application/json".into()),
                ("a2a-version".into(), "1.0".into()),
            ],
            body: body.to_string().into(),
            timeout: Some(Duration::from_secs(300)),
            ..Request::default()
        };
        let exchange = Egress::new(Config::default()).open(&access, request).await.unwrap();
        let mut stream = Self {
            exchange,
            task: String::new(),
            context: String::new(),
            text: String::new(),
            tools: Vec::new(),
            state: String::new(),
            status: String::new(),
            pieces: 0,
        };
        assert!(stream.next().await, "a stream begins with its task");
        stream
    }

    /// Reads the next event; returns false at the end.
    pub(crate) async fn next(&mut self) -> bool {
        let event = soon("the next event of the stream", self.exchange.next_event()).await.unwrap();
        let Some(event) = event else { return false };
        let result = serde_json::from_str::<Value>(&event.data).unwrap()["result"].take();
        if result["task"].is_object() {
            self.task = string(&result["task"]["id"]);
            self.context = string(&result["task"]["contextId"]);
            self.state = string(&result["task"]["status"]["state"]);
        } else if result["artifactUpdate"].is_object() {
            let update = &result["artifactUpdate"];
            if update["append"] != true {
                self.text.clear();
            }
            self.text += &string(&update["artifact"]["parts"][0]["text"]);
            self.pieces = self.pieces.max(1);
        } else if result["statusUpdate"].is_object() {
            let update = &result["statusUpdate"];
            self.state = string(&update["status"]["state"]);
            let (message, line) = (&update["status"]["message"], &update["metadata"]["talaria/status"]);
            let said = string(&message["parts"][0]["text"]);
            if message["metadata"]["talaria/chunk"] == true {
                self.pieces += 1;
                self.text += &said;
            } else {
                self.status = if line.is_string() { string(line) } else { said };
            }
            let tool = &update["metadata"]["talaria/tool-progress"];
            if tool.is_object() {
                self.tools.push((string(&tool["name"]), string(&tool["state"])));
            }
        } else {
            panic!("not an event: {}", event.data);
        }
        true
    }

    /// Reads until a condition holds.
    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        while !holds(self) {
            let more = self.next().await;
            assert!(more, "the stream ended ({}, {:?}) before {what}", self.state, self.status);
        }
    }

    /// Reads to the end.
    pub(crate) async fn end(mut self) -> Self {
        while self.next().await {}
        self
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
