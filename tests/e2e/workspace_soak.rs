//! A workspace through an hour of failures: the platform, the gateway and the bridge fail in turn, under a load of messages.
//!
//! The bridge is the real one with a faster clock, and its gateway is a process that it supervises. The hour is measured by the
//! uptimes in the heartbeats, over all restarts. Afterwards everything works, every accepted turn has ended, and the workspace has
//! sent its own prompts.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_fakes::{FakePlatform, Mood, free_port, soon};

use crate::bridge::{Bridge, Start};
use crate::clock::Clock;
use crate::gateway;
use crate::traffic::Traffic;

const HOUR: u64 = 3600;

/// The duration of a failure: longer than a heartbeat, so that some are lost.
const TROUBLE: Duration = Duration::from_secs(45);

/// The duration without messages, in which only the timer causes heartbeats.
const QUIET: Duration = Duration::from_secs(150);

/// The pause between two heartbeats, in seconds.
const BEAT: u64 = 30;

/// The pause between two idle prompts, in seconds.
const IDLE: u64 = 600;

const FIRST_PROMPT: &str = "say hello";
const IDLE_PROMPT: &str = "anything to do?";

/// A failure while the bridge is running.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    /// The platform answers with this.
    Moody(Mood),
    /// The platform refuses connections.
    PlatformDown,
    /// The token is renewed, and the bridge can read the new one only later.
    TokenRotated,
    /// The platform has lost the registration.
    Forgotten,
    /// The gateway is killed.
    GatewayKilled,
}

const TROUBLES: [Trouble; 10] = [
    Trouble::PlatformDown,
    Trouble::GatewayKilled,
    Trouble::Moody(Mood::Html),
    Trouble::TokenRotated,
    Trouble::Moody(Mood::Hangs),
    Trouble::Forgotten,
    Trouble::Moody(Mood::Refuses(409)),
    Trouble::GatewayKilled,
    Trouble::Moody(Mood::Empty),
    Trouble::Moody(Mood::Refuses(500)),
];

struct Soak {
    root: tempfile::TempDir,
    clock: Clock,
    port: u16,
    platform: FakePlatform,
    traffic: Traffic,
    bridge: Option<Bridge>,
    /// The number of turns that are not part of the traffic.
    said: usize,
    /// How long the platform was not available.
    sick: Duration,
    starts: usize,
    gateways_killed: usize,
}

// Waiting for the bridge blocks a thread.
#[tokio::test(flavor = "multi_thread")]
async fn everything_works_after_an_hour_of_failures_and_every_turn_has_ended() {
    let mut soak = Soak::new().await;
    // The platform starts later than the workspace.
    soak.platform.go_down();
    soak.start();
    Clock::pass(TROUBLE).await;
    assert!(!soak.configs().join(".initial_prompt_done").exists());
    soak.platform.come_back().await;
    assert_eq!(soak.platform.message().await["params"]["message"]["parts"][0]["text"], FIRST_PROMPT);
    while soak.lived() < HOUR {
        soak.traffic.go(soak.bridge().url());
        for trouble in TROUBLES {
            soak.suffer(trouble).await;
        }
        soak.be_quiet().await;
        soak.traffic.go(soak.bridge().url());
        soak.traffic.is_under_way().await;
        // Every other start happens without the platform, or without the gateway too.
        soak.die(soak.starts % 2 == 1, soak.starts % 3 == 1).await;
    }
    soak.traffic.rest().await;

    let from = soak.platform.heartbeats().len();
    assert_eq!(soak.say("an ordinary turn").await, gateway::ANSWER);
    let well = |beat: &Value| beat["active_tasks"] == 0 && beat.get("runtime_state").is_none();
    soak.platform.heartbeat(from, "a heartbeat after all that", well).await;
    let times = soak.platform.registrations().len();
    assert!(times >= soak.starts, "every start registers: {times}");
    soak.platform.forget();
    soak.platform.registered(times + 1).await;
    let token = fs::read_to_string(soak.configs().join(".auth_token")).unwrap();
    assert_eq!(soak.platform.token(), Some(token), "the last token that the platform issued");
    soak.check_heartbeats();
    soak.check_prompts();

    let bridge = soak.bridge.take().unwrap();
    soon("every turn ends", async {
        while !tasks(&bridge).await.iter().all(is_over) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let totals = soak.traffic.settle(&tasks(&bridge).await, soak.said);
    let real = soak.clock.now() / crate::clock::FACTOR;
    eprintln!(
        "{} s lived in {real:?}: {} starts, {} gateways killed, {times} registrations, {} heartbeats, {totals:?}",
        soak.lived(),
        soak.starts,
        soak.gateways_killed,
        soak.platform.heartbeats().len()
    );
    let gateway = soak.gateway().unwrap();
    bridge.terminate();
    assert_eq!(bridge.end().0, Some(0), "{}", soak.log());
    assert!(!is_alive(&gateway), "the gateway ends with the bridge");
}

// === impl Soak ===

impl Soak {
    async fn new() -> Self {
        let clock = Clock::start();
        let root = tempfile::tempdir().unwrap();
        for name in ["configs", "bridge", "home"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        let config = format!(
            "name: Soak\ninitial_prompt: {FIRST_PROMPT}\nidle_prompt: {IDLE_PROMPT}\nidle_interval_seconds: {IDLE}\n"
        );
        fs::write(root.path().join("configs/config.yaml"), config).unwrap();
        fs::write(root.path().join("gateway.py"), gateway::SCRIPT).unwrap();
        let port = free_port();
        let (platform, traffic) = (FakePlatform::start().await, Traffic::new());
        Self {
            root,
            clock,
            port,
            platform,
            traffic,
            bridge: None,
            said: 0,
            sick: Duration::ZERO,
            starts: 0,
            gateways_killed: 0,
        }
    }

    fn configs(&self) -> PathBuf {
        self.root.path().join("configs")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.root.path().join("log")).unwrap_or_default()
    }

    fn bridge(&self) -> &Bridge {
        self.bridge.as_ref().unwrap()
    }

    /// Starts a bridge with its gateway. On a busy machine this takes long by the clock of the bridge.
    fn start(&mut self) {
        let root = self.root.path();
        let config = format!(
            "[gateway]\ncommand = \"python3 {0}/gateway.py\"\nhome = \"{0}/home\"\nport = {1}\nwait = \"10m\"\n",
            root.display(),
            self.port
        );
        let at = root.join("bridge");
        let start = Start::new(&at)
            .config(&config)
            .env("WORKSPACE_ID", "ws-1")
            .env("WORKSPACE_CONFIG_PATH", &self.configs().to_string_lossy())
            .env("PLATFORM_URL", &self.platform.url())
            .log(&root.join("log"));
        self.bridge = Some(self.clock.drive(start).up());
        self.starts += 1;
    }

    async fn say(&mut self, text: &str) -> String {
        self.said += 1;
        self.bridge().say(text).await
    }

    /// Causes a failure for a while, and returns when it is over and the bridge has noticed.
    async fn suffer(&mut self, trouble: Trouble) {
        let (began, registrations) = (self.clock.now(), self.platform.registrations().len());
        match trouble {
            Trouble::Moody(mood) => {
                self.platform.be(mood);
                Clock::pass(TROUBLE).await;
                self.platform.be(Mood::Well);
            }
            Trouble::PlatformDown => {
                self.platform.go_down();
                Clock::pass(TROUBLE).await;
                self.platform.come_back().await;
            }
            Trouble::TokenRotated => {
                let token = self.platform.rotate();
                Clock::pass(TROUBLE).await;
                fs::write(self.configs().join(".auth_token"), token).unwrap();
            }
            Trouble::Forgotten => {
                self.platform.forget();
                self.platform.registered(registrations + 1).await;
                return;
            }
            Trouble::GatewayKilled => return self.kill_gateway_and_wait().await,
        }
        self.sick += self.clock.now() - began;
        let from = self.platform.heartbeats().len();
        self.platform.heartbeat(from, &format!("a heartbeat after {trouble:?}"), |_| true).await;
    }

    /// Returns the process id of the gateway, from the bridge's pid file.
    fn gateway(&self) -> Option<String> {
        let note = fs::read_to_string(self.root.path().join("home/.talaria-gateway")).ok()?;
        note.split(' ').next().map(str::to_owned)
    }

    fn kill_gateway(&mut self) -> Option<String> {
        let gateway = self.gateway()?;
        self.gateways_killed += 1;
        Command::new("kill").args(["-KILL", &gateway]).status().unwrap().success().then_some(gateway)
    }

    async fn kill_gateway_and_wait(&mut self) {
        let killed = self.kill_gateway().expect("a gateway that runs");
        soon("another gateway", async {
            while self.gateway().is_none_or(|now| now == killed)
                || self.say("are you back").await != gateway::ANSWER
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    /// Sends no messages; heartbeats and idle prompts continue.
    async fn be_quiet(&mut self) {
        self.traffic.rest().await;
        let (beats, prompts) = (self.platform.heartbeats().len(), self.idle_prompts().len());
        Clock::pass(QUIET).await;
        let beats = self.platform.heartbeats().len() - beats;
        assert!(beats as u64 * BEAT * 2 >= QUIET.as_secs(), "{beats} heartbeats in {QUIET:?}");
        soon("an idle prompt", async {
            while self.idle_prompts().len() == prompts {
                Clock::pass(Duration::from_secs(1)).await;
            }
        })
        .await;
    }

    /// Kills the bridge while turns are running, and starts it again.
    async fn die(&mut self, without_platform: bool, without_gateway: bool) {
        if without_gateway {
            self.kill_gateway();
        }
        if without_platform {
            self.platform.go_down();
        }
        let began = self.clock.now();
        Clock::kill(self.bridge.take().unwrap());
        self.start();
        if without_platform {
            self.traffic.go(self.bridge().url());
            Clock::pass(TROUBLE).await;
            self.sick += self.clock.now() - began;
            self.platform.come_back().await;
        }
        let from = self.platform.heartbeats().len();
        self.platform.heartbeat(from, "a heartbeat after a start", |_| true).await;
    }

    /// Returns the total uptime of the bridge in seconds, as reported in its heartbeats.
    fn lived(&self) -> u64 {
        let heartbeats = self.platform.heartbeats();
        let ages: Vec<_> = heartbeats.iter().map(|beat| beat["uptime_seconds"].as_u64().unwrap()).collect();
        let ends = ages.windows(2).filter(|pair| pair[1] < pair[0]).map(|pair| pair[0]);
        ends.sum::<u64>() + ages.last().copied().unwrap_or_default()
    }

    /// Checks that heartbeats arrived in at least half of the time in which they could.
    fn check_heartbeats(&self) {
        let mut heard = BTreeSet::new();
        let (mut life, mut before) = (0, 0);
        for beat in self.platform.heartbeats() {
            let age = beat["uptime_seconds"].as_u64().unwrap();
            life += u64::from(age < before);
            before = age;
            heard.insert((life, age / BEAT));
        }
        let well = self.lived().saturating_sub(self.sick.as_secs());
        let heard = heard.len() as u64 * BEAT;
        assert!(
            heard * 2 >= well,
            "heartbeats in {heard} s of the {well} s in which the platform was available"
        );
    }

    /// Returns the ids of the idle prompts; a prompt whose answer was lost is repeated with the same id.
    fn idle_prompts(&self) -> BTreeSet<String> {
        let message = |sent: &Value| sent["params"]["message"].clone();
        let sent = self.platform.sent().iter().map(message).collect::<Vec<_>>();
        let idle = sent.iter().filter(|message| message["parts"][0]["text"] == IDLE_PROMPT);
        idle.map(|message| message["messageId"].as_str().unwrap().to_owned()).collect()
    }

    /// Checks that the initial prompt was sent once over all restarts, and idle prompts whenever there was nothing to do.
    fn check_prompts(&self) {
        let all = self.platform.sent();
        let first = all.iter().filter(|sent| sent["params"]["message"]["parts"][0]["text"] == FIRST_PROMPT);
        assert_eq!(first.count(), 1, "{all:?}");
        let idle = self.idle_prompts().len();
        assert!(idle >= self.starts - 1, "one after each start: {idle}");
        assert!(idle as u64 * IDLE <= self.lived() + IDLE, "not more often than every {IDLE} s: {idle}");
    }
}

impl Drop for Soak {
    /// Ends the gateway that a bridge leaves behind if the test fails.
    fn drop(&mut self) {
        if let Some(bridge) = self.bridge.take() {
            Clock::kill(bridge);
            self.kill_gateway();
            let log = self.log();
            let from = log.len().saturating_sub(16 << 10);
            eprintln!("the end of the bridge's log:\n{}", log.get(from..).unwrap_or(&log));
        }
    }
}

fn is_alive(id: &str) -> bool {
    fs::metadata(PathBuf::from("/proc").join(id)).is_ok()
}

/// Returns every task of the bridge, over all pages.
async fn tasks(bridge: &Bridge) -> Vec<Value> {
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let page = json!({ "pageSize": 100, "pageToken": token, "historyLength": 10 });
        let page = bridge.call("ListTasks", page).await;
        all.extend(page["result"]["tasks"].as_array().cloned().unwrap_or_default());
        token = page["result"]["nextPageToken"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            return all;
        }
    }
}

fn is_over(task: &Value) -> bool {
    let state = task["status"]["state"].as_str().unwrap_or_default();
    ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"]
        .contains(&state)
}
