//! A fake of the platform that workspaces register with, as far as a workspace sees it.
//!
//! It issues a token at the first registration and requires it from then on, sends the inbound secret with every response,
//! and records what workspaces report. It can misbehave, lose its registry, rotate the token, go down and come back.
//!
//! As it starts, it serves one workspace, and the test plays the others. [`FakePlatform::host`] adds workspaces that have
//! bridges of their own; then messages and delegations reach those.

mod answers;
mod delegations;
mod delivery;
mod hosted;
mod team;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use talaria_egress::{Config, Egress};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::gateway::{FakeGateway, Recorded};
use crate::port::free_port;
use crate::reply::Reply;
use crate::soon;

pub use delegations::Delegated;
use delivery::Errand;
use hosted::Hosted;
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
    /// It does what it is asked, and nobody hears its answer.
    Mute,
}

/// A running platform. Dropping it closes its port.
pub struct FakePlatform {
    platform: Arc<Platform>,
    server: Option<FakeGateway>,
    address: SocketAddr,
}

/// The platform without its port.
struct Platform {
    state: Mutex<State>,
    told: watch::Sender<usize>,
    egress: Egress,
    /// What it does in the background.
    running: Mutex<JoinSet<()>>,
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
    hosted: Hosted,
    /// Whether its messages to workspaces carry the inbound secret.
    sends_secret: bool,
    /// What is to be done once the request is answered.
    errands: Vec<Errand>,
    /// Moods of routes, by a part of the path.
    moods: Vec<(String, Mood)>,
}

// === impl FakePlatform ===

impl FakePlatform {
    /// Starts a platform without workspaces.
    pub async fn start() -> Self {
        let state = Mutex::new(State {
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
            hosted: Hosted::default(),
            sends_secret: false,
            errands: Vec::new(),
            moods: Vec::new(),
        });
        let (told, egress, running) =
            (watch::Sender::default(), Egress::new(Config::default()), Mutex::default());
        let platform = Arc::new(Platform { state, told, egress, running });
        let server = serve(&format!("127.0.0.1:{}", free_port()), &platform).await;
        let address = server.address();
        Self { platform, server: Some(server), address }
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

    /// Closes its port and all connections, and forgets the messages that it was sending.
    pub fn go_down(&mut self) {
        self.server = None;
        self.platform.stop();
    }

    /// Comes back at the same address with all its state.
    pub async fn come_back(&mut self) {
        self.server = Some(serve(&self.address.to_string(), &self.platform).await);
    }

    /// Loses the registry but not the tokens.
    pub fn forget(&self) {
        let mut state = self.state();
        state.registered = false;
        state.hosted.forget();
    }

    /// Authenticates itself to the bridges of hosted workspaces from now on.
    pub fn send_secret(&self) {
        self.state().sends_secret = true;
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
        let mut told = self.platform.told.subscribe();
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
        self.platform.state()
    }
}

impl Drop for FakePlatform {
    fn drop(&mut self) {
        // What runs in the background holds a reference to the platform, so it must be ended here.
        self.platform.stop();
    }
}

// === impl Platform ===

impl Platform {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn answer(self: &Arc<Self>, request: &Recorded) -> Reply {
        let (reply, errands, is_mute) = {
            let mut state = self.state();
            let reply = state.answer(request);
            (reply, std::mem::take(&mut state.errands), state.mood_at(&request.path) == Mood::Mute)
        };
        errands.into_iter().for_each(|errand| self.run(errand));
        self.told.send_modify(|told| *told += 1);
        if is_mute { Reply::hang() } else { reply }
    }
}

async fn serve(address: &str, platform: &Arc<Platform>) -> FakeGateway {
    let platform = Arc::clone(platform);
    FakeGateway::start_at(address, move |request: &Recorded| platform.answer(request)).await
}

fn refuse(status: u16, error: &str) -> Reply {
    Reply::status(status, "application/json", json!({ "error": error }).to_string())
}

#[cfg(test)]
mod tests;
