//! A fake model provider behind a real gateway: an OpenAI-compatible API whose model obeys the user's text.
//!
//! A text is `NAME: COMMAND`. [`Provider::turn`] makes up the name, so that a provider that several tests share can tell
//! their requests apart, whatever the gateway adds around the text. Commands:
//!
//! | command | the model |
//! |---|---|
//! | `say WORDS` | says the words |
//! | `history` | says what came before: a JSON array of the earlier texts, user's and assistant's |
//! | `look` | says how many images came with the text |
//! | `count N` | says `1 2 … N`, a piece each 50 ms |
//! | `talk` | says `tick ` every 50 ms, forever |
//! | `wait` | says nothing until [`Provider::release`] |
//! | `run COMMAND` | calls the tool `terminal` with it, then says `the tool said: …` |
//! | `call TOOL ARGUMENTS && …` | calls these tools one after the other, with arguments in JSON, then says `the tool said: …` |
//! | `fail STATUS` | answers with that status and a text that has [`PROVIDER_KEY`] in it |
//! | `nothing` | ends without having said anything |
//! | `long N` | says N times `0123456789` |
//!
//! Anything else, such as the gateway's request for a title, gets `ok`. A request without [`PROVIDER_KEY`] gets a 401.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::gateway::{FakeGateway, Recorded};
use crate::reply::{PROVIDER_KEY, Reply, Stream};
use crate::soon;

/// The pause between pieces: long enough to act in between, short enough not to slow the tests down.
const PACE: Duration = Duration::from_millis(50);

/// A running provider. Dropping it closes its port and all its connections.
pub struct Provider {
    server: FakeGateway,
    turns: watch::Sender<Turns>,
}

/// Texts by name.
type Turns = BTreeMap<String, Turn>;

/// The state of one text.
#[derive(Debug, Default, Clone)]
struct Turn {
    asked: usize,
    /// The number of answers that are still being written.
    open: usize,
    release: Arc<Notify>,
}

/// Counts an answer while it is being written.
struct Open {
    name: String,
    turns: watch::Sender<Turns>,
}

// === impl Provider ===

impl Provider {
    /// Starts a provider.
    pub async fn start() -> Self {
        let turns = watch::Sender::<Turns>::default();
        let book = turns.clone();
        let server = FakeGateway::start(move |request| answer(request, &book)).await;
        Self { server, turns }
    }

    /// The base URL for gateways: `http://127.0.0.1:PORT/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        self.server.base_url()
    }

    /// The requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.server.requests()
    }

    /// Returns a unique name and a text with it.
    #[must_use]
    pub fn turn(command: &str) -> (String, String) {
        static TURNS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("turn-{}-{}", std::process::id(), TURNS.fetch_add(1, Ordering::Relaxed));
        (format!("{name}: {command}"), name)
    }

    /// How often a text reached the model.
    #[must_use]
    pub fn times(&self, name: &str) -> usize {
        self.turns.borrow().get(name).map_or(0, |turn| turn.asked)
    }

    /// The addresses of the images that came with a text.
    #[must_use]
    pub fn images(&self, name: &str) -> Vec<String> {
        let named = |message: &Value| command(&text(message)).is_some_and(|(found, _)| found == name);
        let requests = self.requests();
        let bodies = requests.iter().filter(|request| request.method == "POST").map(Recorded::json);
        let messages =
            |body: Value| body.get("messages").and_then(Value::as_array).cloned().unwrap_or_default();
        bodies.flat_map(messages).find(named).as_ref().map(images).unwrap_or_default()
    }

    /// Waits until a text reaches the model.
    pub async fn asked(&self, name: &str) {
        self.wait(&format!("the model was not asked for {name}"), |turns| turns.contains_key(name)).await;
    }

    /// Waits until no answer to a text is being written: it is complete, or the gateway disconnected.
    pub async fn let_go(&self, name: &str) {
        self.wait(&format!("the answer to {name} is still taken"), |turns| {
            turns.get(name).is_some_and(|turn| turn.open == 0)
        })
        .await;
    }

    /// Releases the answer to a `wait`.
    pub fn release(&self, name: &str) {
        if let Some(turn) = self.turns.borrow().get(name) {
            turn.release.notify_one();
        }
    }

    async fn wait(&self, what: &str, until: impl FnMut(&Turns) -> bool) {
        let mut turns = self.turns.subscribe();
        soon(what, turns.wait_for(until)).await.expect("the provider is up");
    }
}

// === impl Open ===

impl Open {
    fn new(name: &str, turns: &watch::Sender<Turns>) -> Self {
        turns.send_modify(|turns| turns.entry(name.to_owned()).or_default().open += 1);
        Self { name: name.to_owned(), turns: turns.clone() }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.turns.send_modify(|turns| {
            if let Some(turn) = turns.get_mut(&self.name) {
                turn.open -= 1;
            }
        });
    }
}

// === answering ===

fn answer(request: &Recorded, turns: &watch::Sender<Turns>) -> Reply {
    if request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")) != Some(PROVIDER_KEY) {
        let error = json!({ "error": { "message": "no such key", "code": "invalid_api_key" } });
        return Reply::status(401, "application/json", error.to_string());
    }
    if request.method == "GET" {
        return Reply::json(
            &json!({ "object": "list", "data": [{ "id": "fake-model", "object": "model" }] }),
        );
    }
    let body = request.json();
    let script = Script { streamed: body.get("stream") == Some(&Value::Bool(true)), body: Stream::new() };
    let messages = body.get("messages").and_then(Value::as_array).cloned().unwrap_or_default();
    let at = messages.iter().rposition(|message| is(message, "user")).unwrap_or_default();
    let (before, now) = messages.split_at(at);
    let Some((name, command)) = now.first().and_then(|message| command(&text(message))) else {
        return script.say("ok");
    };
    let open = Open::new(&name, turns);
    let mut release = Arc::default();
    turns.send_modify(|turns| {
        let turn = turns.entry(name.clone()).or_default();
        turn.asked += 1;
        release = Arc::clone(&turn.release);
    });
    let (verb, rest) = command.split_once(' ').unwrap_or((&command, ""));
    let many = || rest.parse::<usize>().unwrap_or_else(|_| panic!("not a number: {command}"));
    match verb {
        "say" => script.say(rest),
        "history" => script.say(&history(before)),
        "look" => script.say(&format!("{} images", now.first().map_or(0, |message| images(message).len()))),
        "long" => script.say(&"0123456789".repeat(many())),
        "nothing" => script.say(""),
        "wait" => script.body.wait(&release).delta("released").hold(open).finish("stop").into(),
        "talk" => script.body.delta("tick ").delta_every(PACE, "tick ").hold(open).into(),
        "count" => {
            let said = |body: Stream, n| body.delta(&format!("{n} ")).pause(PACE);
            (1..=many()).fold(script.body, said).hold(open).finish("stop").into()
        }
        "run" => match now.iter().find(|message| is(message, "tool")) {
            Some(result) => script.say(&format!("the tool said: {}", text(result))),
            None => script.call(1, "terminal", &json!({ "command": rest })),
        },
        "call" => {
            let results: Vec<_> = now.iter().filter(|message| is(message, "tool")).map(text).collect();
            match rest.split(" && ").nth(results.len()) {
                None => script.say(&format!("the tool said: {}", results.join("\n"))),
                Some(next) => {
                    let (tool, arguments) = next.split_once(' ').expect("a tool and its arguments");
                    let arguments = serde_json::from_str(arguments).expect("arguments in JSON");
                    script.call(results.len() + 1, tool, &arguments)
                }
            }
        }
        "fail" => {
            let error = json!({ "error": { "message": format!("no such account {PROVIDER_KEY}") } });
            Reply::status(many().try_into().expect("a status"), "application/json", error.to_string())
        }
        _ => panic!("no such command: {command}"),
    }
}

/// Answers in the requested form. Answers that take time are always streamed, since gateways request that.
struct Script {
    streamed: bool,
    body: Stream,
}

impl Script {
    fn say(self, text: &str) -> Reply {
        if !self.streamed {
            return Reply::completion(text);
        }
        if text.is_empty() {
            return self.body.finish("stop").into();
        }
        self.body.delta(text).finish("stop").into()
    }

    /// Calls a tool. Each call of a turn needs an id of its own: gateways keep one result for an id.
    fn call(self, number: usize, tool: &str, arguments: &Value) -> Reply {
        let id = format!("call_{number}");
        if self.streamed {
            return self.body.tool_call(&id, tool, &arguments.to_string()).finish("tool_calls").into();
        }
        let function = json!({ "name": tool, "arguments": arguments.to_string() });
        let call = json!({ "id": id, "type": "function", "function": function });
        let message = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
        Reply::json(
            &json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "tool_calls" }] }),
        )
    }
}

/// Splits a user's text into name and command.
fn command(text: &str) -> Option<(String, String)> {
    let (_, text) = text.rsplit_once("turn-")?;
    let (name, command) = text.split_once(": ")?;
    let command = command.lines().next().unwrap_or_default().trim_end();
    Some((format!("turn-{name}"), command.to_owned()))
}

fn is(message: &Value, role: &str) -> bool {
    message.get("role").and_then(Value::as_str) == Some(role)
}

/// Returns a message's text, in either of its forms.
fn text(message: &Value) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
        }
        _ => String::new(),
    }
}

/// Returns the user's and the assistant's texts as a JSON array.
fn history(messages: &[Value]) -> String {
    let said = messages.iter().filter(|message| is(message, "user") || is(message, "assistant"));
    Value::from_iter(said.map(text)).to_string()
}

/// Returns the addresses of a message's images.
fn images(message: &Value) -> Vec<String> {
    let parts = message.get("content").and_then(Value::as_array).into_iter().flatten();
    let address = |part: &Value| Some(part.get("image_url")?.get("url")?.as_str()?.to_owned());
    parts.filter_map(address).collect()
}
