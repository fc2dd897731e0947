//! A fake of the platform that workspaces register with, as far as a workspace sees it.
//!
//! It issues a token at the first registration and requires it from then on, sends the inbound secret with every response,
//! and records what workspaces report. It can misbehave, lose its registry, rotate the token, go down and come back.

mod team;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::gateway::{FakeGateway, Recorded};
use crate::port::free_port;
use crate::reply::Reply;
use crate::soon;

pub use team::Delegated;
use team::Team;

/// How the platform answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// Correctly.
    Well,
    /// With this HTTP status.
    Refuses(u16),
    /// 200, with a page of HTML.
    Html,
    /// 200, with an empty body.
    Empty,
    /// 200, with ten megabytes.
    Huge,
    /// Not at all.
    Hangs,
}

/// A running platform. Dropping it closes its port.
pub struct FakePlatform {
    state: Arc<Mutex<State>>,
    told: watch::Sender<usize>,
    server: Option<FakeGateway>,
    address: SocketAddr,
}

struct State {
    mood: Mood,
    token: Option<String>,
    tokens: usize,
    secret: String,
    registered: bool,
    generation: u64,
    peers: Value,
    instructions: String,
    registrations: Vec<Value>,
    heartbeats: Vec<Value>,
    /// The bodies of `/registry/update-card`.
    cards: Vec<Value>,
    /// Routes that it rejects, and the status.
    closed: BTreeMap<String, u16>,
    sent: Vec<Value>,
    notices: Vec<Value>,
    team: Team,
    /// Moods of routes, by a part of the path.
    moods: Vec<(String, Mood)>,
}

// === impl FakePlatform ===

impl FakePlatform {
    /// Starts a platform without workspaces.
    pub async fn start() -> Self {
        let state = Arc::new(Mutex::new(State {
            mood: Mood::Well,
            token: None,
            tokens: 0,
            secret: "inbound-secret-1".into(),
            registered: false,
            generation: 7,
            peers: json!([]),
            instructions: String::new(),
            registrations: Vec::new(),
            heartbeats: Vec::new(),
            cards: Vec::new(),
            closed: BTreeMap::new(),
            sent: Vec::new(),
            notices: Vec::new(),
            team: Team::default(),
            moods: Vec::new(),
        }));
        let told = watch::Sender::default();
        let server = serve(&format!("127.0.0.1:{}", free_port()), &state, &told).await;
        let address = server.address();
        Self { state, told, server: Some(server), address }
    }

    /// The value for `PLATFORM_URL`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes how it answers.
    pub fn be(&self, mood: Mood) {
        self.state().mood = mood;
    }

    /// Closes its port and all connections.
    pub fn go_down(&mut self) {
        self.server = None;
    }

    /// Comes back at the same address with all its state.
    pub async fn come_back(&mut self) {
        self.server = Some(serve(&self.address.to_string(), &self.state, &self.told).await);
    }

    /// Loses the registry but not the tokens.
    pub fn forget(&self) {
        self.state().registered = false;
    }

    /// Answers one route in this way, whatever the mood; `None` restores the route.
    pub fn close(&self, path: &str, status: impl Into<Option<u16>>) {
        let mut state = self.state();
        match status.into() {
            Some(status) => state.closed.insert(path.into(), status),
            None => state.closed.remove(path),
        };
    }

    /// Changes how it answers requests whose path contains this.
    pub fn be_at(&self, path: &str, mood: Mood) {
        let mut state = self.state();
        state.moods.retain(|(known, _)| known != path);
        state.moods.push((path.into(), mood));
    }

    /// Denies an ability of the workspace: `delegate`, `talk_to_user`, `broadcast`, `memory` or `requests`.
    pub fn deny(&self, ability: &str) {
        self.state().team.denied.insert(ability.into());
    }

    /// The delegations that it accepted.
    #[must_use]
    pub fn delegated(&self) -> Vec<Delegated> {
        self.state().team.delegated.clone()
    }

    /// Waits until it has accepted so many delegations. Returns the last one.
    pub async fn told_delegation(&self, times: usize) -> Delegated {
        self.until("a delegation", |state| state.team.delegated.get(times.checked_sub(1)?).cloned()).await
    }

    /// A peer answers a delegation.
    pub fn answer_delegation(&self, number: usize, text: &str) {
        self.end_delegation(number, "completed", text, "");
    }

    /// A delegation fails.
    pub fn fail_delegation(&self, number: usize, error: &str) {
        self.end_delegation(number, "failed", "", error);
    }

    /// A delegation waits in the queue of a busy peer.
    pub fn queue_delegation(&self, number: usize) {
        self.end_delegation(number, "queued", "", "");
    }

    fn end_delegation(&self, number: usize, status: &'static str, text: &str, error: &str) {
        let mut state = self.state();
        let one = state.team.delegated.get_mut(number - 1).expect("there are so many delegations");
        one.become_(status, text, error);
    }

    /// What it was asked to remember.
    #[must_use]
    pub fn memories(&self) -> Vec<Value> {
        self.state().team.memories.clone()
    }

    /// Adds to its memory.
    pub fn remember(&self, memory: Value) {
        self.state().team.memories.push(memory);
    }

    /// The requests to people, and the approvals.
    #[must_use]
    pub fn requests(&self) -> Vec<Value> {
        self.state().team.requests.clone()
    }

    /// The bodies of uploads.
    #[must_use]
    pub fn uploads(&self) -> Vec<String> {
        self.state().team.uploads.clone()
    }

    /// Waits until workspaces sent so many messages through its proxy. Returns them.
    pub async fn messages(&self, times: usize) -> Vec<Value> {
        self.until("messages through the proxy", |state| {
            (state.sent.len() >= times).then(|| state.sent.clone())
        })
        .await
    }

    /// Rotates the token. Returns the new one, for the test to store where the platform would.
    #[must_use]
    pub fn rotate(&self) -> String {
        let mut state = self.state();
        state.tokens += 1;
        let token = format!("workspace-token-{}", state.tokens);
        state.token = Some(token.clone());
        token
    }

    /// Changes the inbound secret, which the next response carries.
    pub fn set_secret(&self, secret: &str) {
        self.state().secret = secret.into();
    }

    /// Sets the peers and the instructions that it reports.
    pub fn set_surroundings(&self, peers: Value, instructions: &str) {
        let mut state = self.state();
        (state.peers, state.instructions) = (peers, instructions.into());
    }

    /// The current token.
    #[must_use]
    pub fn token(&self) -> Option<String> {
        self.state().token.clone()
    }

    /// The accepted registrations.
    #[must_use]
    pub fn registrations(&self) -> Vec<Value> {
        self.state().registrations.clone()
    }

    /// The accepted heartbeats.
    #[must_use]
    pub fn heartbeats(&self) -> Vec<Value> {
        self.state().heartbeats.clone()
    }

    /// The card updates after registrations.
    #[must_use]
    pub fn cards(&self) -> Vec<Value> {
        self.state().cards.clone()
    }

    /// The messages that workspaces sent through its proxy.
    #[must_use]
    pub fn sent(&self) -> Vec<Value> {
        self.state().sent.clone()
    }

    /// Waits for a heartbeat, from number `from` on, that satisfies the condition. Returns it and the next number.
    pub async fn heartbeat(&self, from: usize, what: &str, is: impl Fn(&Value) -> bool) -> (Value, usize) {
        self.until(what, |state| {
            let found = state.heartbeats.iter().enumerate().skip(from).find(|(_, beat)| is(beat));
            found.map(|(index, beat)| (beat.clone(), index + 1))
        })
        .await
    }

    /// Waits until that many registrations were accepted.
    pub async fn registered(&self, times: usize) {
        self.until("a registration", |state| (state.registrations.len() >= times).then_some(())).await;
    }

    /// Waits for that many card updates. Returns the last one.
    pub async fn told_card(&self, times: usize) -> Value {
        self.until("a new card", |state| state.cards.get(times.checked_sub(1)?).cloned()).await
    }

    /// Waits for notices to people. Returns them.
    pub async fn notices(&self) -> Vec<Value> {
        self.until("a notice", |state| (!state.notices.is_empty()).then(|| state.notices.clone())).await
    }

    /// Waits for the first message that a workspace sends through its proxy.
    pub async fn message(&self) -> Value {
        self.until("a message through the proxy", |state| state.sent.first().cloned()).await
    }

    async fn until<T>(&self, what: &str, found: impl Fn(&State) -> Option<T>) -> T {
        let mut told = self.told.subscribe();
        soon(what, async {
            loop {
                if let Some(found) = found(&self.state()) {
                    return found;
                }
                told.changed().await.expect("it lives as long as this");
            }
        })
        .await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

async fn serve(address: &str, state: &Arc<Mutex<State>>, told: &watch::Sender<usize>) -> FakeGateway {
    let (state, told) = (Arc::clone(state), told.clone());
    let script = move |request: &Recorded| {
        let reply = state.lock().unwrap().answer(request);
        told.send_modify(|told| *told += 1);
        reply
    };
    FakeGateway::start_at(address, script).await
}

// === impl State ===

impl State {
    fn answer(&mut self, request: &Recorded) -> Reply {
        let of_route = self.moods.iter().find(|(path, _)| request.path.contains(path.as_str()));
        match of_route.map_or(self.mood, |(_, mood)| *mood) {
            Mood::Well => {}
            Mood::Refuses(status) => return refuse(status, "in no mood"),
            Mood::Html => return Reply::status(200, "text/html", "<html>a captive portal</html>"),
            Mood::Empty => return Reply::status(200, "application/json", ""),
            Mood::Huge => {
                return Reply::status(200, "application/json", format!("\"{}\"", "x".repeat(10 << 20)));
            }
            Mood::Hangs => return Reply::hang(),
        }
        let allowed = match &self.token {
            None => true,
            Some(token) => request.header("authorization") == Some(&format!("Bearer {token}")),
        };
        if !allowed {
            return refuse(401, "invalid workspace token");
        }
        if let Some(status) = self.closed.get(&request.path) {
            return refuse(*status, "not here");
        }
        if let Some(reply) = self.team.answer(request) {
            return reply;
        }
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/registry/register") => self.register(request.json()),
            ("POST", "/registry/heartbeat") => self.heartbeat(request.json()),
            ("POST", "/registry/update-card") => self.update_card(&request.json()),
            ("GET", path) if path.ends_with("/peers") => Reply::json(&self.peers),
            ("GET", path) if path.ends_with("/instructions/resolve") => {
                Reply::json(&json!({ "instructions": self.instructions }))
            }
            ("GET", path) if path.ends_with("/shared-context") => Reply::json(&json!([])),
            ("POST", path) if path.ends_with("/notify") => {
                self.notices.push(request.json());
                Reply::json(&json!({ "status": "sent" }))
            }
            ("POST", path) if path.ends_with("/a2a") => {
                self.sent.push(request.json());
                Reply::json(&json!({ "result": { "parts": [] } }))
            }
            _ => refuse(404, "no such route"),
        }
    }

    fn register(&mut self, body: Value) -> Reply {
        let text = |name: &str| body.get(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if !text("id") || !text("url") || !body.pointer("/agent_card/name").is_some_and(Value::is_string) {
            return refuse(400, "id, url and agent_card are required");
        }
        self.registrations.push(body);
        self.registered = true;
        let mut answer = json!({ "status": "registered", "platform_inbound_secret": self.secret });
        if self.token.is_none() {
            self.tokens += 1;
            let token = format!("workspace-token-{}", self.tokens);
            answer.as_object_mut().unwrap().insert("auth_token".into(), json!(token));
            self.token = Some(token);
        }
        Reply::json(&answer)
    }

    fn update_card(&mut self, body: &Value) -> Reply {
        match (self.registered, body.get("workspace_id"), body.get("agent_card")) {
            (false, ..) => refuse(404, "workspace not found"),
            (true, Some(Value::String(_)), Some(card @ Value::Object(_))) => {
                self.cards.push(card.clone());
                Reply::json(&json!({ "status": "updated" }))
            }
            _ => refuse(400, "workspace_id and agent_card are required"),
        }
    }

    fn heartbeat(&mut self, body: Value) -> Reply {
        if !self.registered && !body.get("agent_card").is_some_and(Value::is_object) {
            return refuse(404, "workspace not found");
        }
        self.heartbeats.push(body);
        let (generation, secret) = (self.generation, &self.secret);
        Reply::json(&json!({ "status": "ok", "generation": generation, "platform_inbound_secret": secret }))
    }
}

fn refuse(status: u16, error: &str) -> Reply {
    Reply::status(status, "application/json", json!({ "error": error }).to_string())
}
