//! Registration and heartbeats, with a platform that works, fails and goes down.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use talaria_fakes::{FakePlatform, Mood, soon};
use talaria_turns::TaskId;
use talaria_workspace::{Activity, Assembly, Host, Keys, Manifest, Places, PlatformSession, Status, Timing};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A host with a given status, which records the secrets that it admits.
#[derive(Default)]
struct FakeHost {
    status: Mutex<Option<Status>>,
    admitted: Mutex<Vec<String>>,
    /// The interval that its file asks for.
    beat: Option<Duration>,
}

impl Host for FakeHost {
    fn status(&self) -> Option<Status> {
        self.status.lock().unwrap().clone()
    }

    fn admit(&self, secret: &SecretString) {
        self.admitted.lock().unwrap().push(secret.expose_secret().to_owned());
    }

    fn beat(&self) -> Option<Duration> {
        self.beat
    }
}

/// A workspace with a session, which ends on drop.
struct Workspace {
    host: Arc<FakeHost>,
    activity: Arc<Activity>,
    assembly: Arc<Assembly>,
    tracker: TaskTracker,
    shutdown: CancellationToken,
    card: watch::Sender<Value>,
}

impl Workspace {
    async fn start(platform: &FakePlatform, folder: &Path) -> Self {
        Self::start_every(platform, folder, Duration::from_millis(40), None).await
    }

    /// Begins with one interval between heartbeats; the file may ask for another.
    async fn start_every(
        platform: &FakePlatform,
        folder: &Path,
        first: Duration,
        beat: Option<Duration>,
    ) -> Self {
        let places = Places {
            id: "ws-1".into(),
            folder: folder.to_owned(),
            shared_plugins: folder.join("none"),
            model: None,
        };
        let assembly = Arc::new(Assembly::new(places, Manifest::default()));
        assembly.set_tools(true);
        let (host, activity) =
            (Arc::new(FakeHost { beat, ..FakeHost::default() }), Arc::new(Activity::default()));
        let (tracker, shutdown) = (TaskTracker::new(), CancellationToken::new());
        let card = watch::Sender::new(json!({ "name": "Researcher", "skills": [] }));
        let session = PlatformSession {
            egress: talaria_egress::Config::default(),
            platform_url: platform.url(),
            url: "http://ws-1:8000".into(),
            card: card.subscribe(),
            parent: None,
            timing: Timing {
                beat: first,
                least: Duration::from_millis(5),
                timeout: Duration::from_millis(500),
                refresh: Duration::from_millis(20),
            },
        };
        let keys = Keys::open(folder, None);
        let wait = Duration::from_secs(30);
        let threads = (&tracker, shutdown.clone());
        session
            .start(&assembly, &keys, Arc::clone(&activity), Arc::clone(&host) as _, threads, wait)
            .await
            .unwrap();
        Self { host, activity, assembly, tracker, shutdown, card }
    }

    /// Changes the card to one with this skill. Returns the card.
    fn learn(&self, skill: &str) -> Value {
        let card = json!({ "name": "Researcher", "skills": [{ "id": skill }] });
        self.card.send_replace(card.clone());
        card
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.tracker.close();
        soon("the heartbeats end", self.tracker.wait()).await;
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn any(_: &Value) -> bool {
    true
}

#[tokio::test]
async fn the_token_of_the_first_registration_survives_a_restart() {
    let (platform, folder) = (FakePlatform::start().await, tempfile::tempdir().unwrap());
    let workspace = Workspace::start(&platform, folder.path()).await;
    let expected = json!({ "id": "ws-1", "url": "http://ws-1:8000", "agent_card": { "name": "Researcher", "skills": [] } });
    assert_eq!(platform.registrations(), [expected]);
    for (file, text) in
        [(".auth_token", "workspace-token-1"), (".platform_inbound_secret", "inbound-secret-1")]
    {
        let path = folder.path().join(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600, "{file}");
    }
    assert_eq!(*workspace.host.admitted.lock().unwrap(), ["inbound-secret-1"]);
    let (beat, _) = platform.heartbeat(0, "a heartbeat", any).await;
    assert_eq!(beat["workspace_id"], "ws-1");
    for (key, value) in [
        ("error_rate", json!(0.0)),
        ("sample_error", json!("")),
        ("active_tasks", json!(0)),
        ("current_task", json!("")),
        ("uptime_seconds", json!(0)),
    ] {
        assert_eq!(beat[key], value, "{key}");
    }
    for absent in ["runtime_state", "runtime_metadata", "agent_card"] {
        assert!(beat.get(absent).is_none(), "{absent}: {beat}");
    }
    let (_, _) =
        platform.heartbeat(1, "the observed generation", |beat| beat["observed_generation"] == 7).await;
    workspace.stop().await;

    // After a restart the token is read from its file; the platform does not issue another.
    let again = Workspace::start(&platform, folder.path()).await;
    platform.registered(2).await;
    assert_eq!(platform.token().as_deref(), Some("workspace-token-1"));
    again.stop().await;
}

#[tokio::test]
async fn turns_and_the_executors_status_are_reported_at_once() {
    let (platform, folder) = (FakePlatform::start().await, tempfile::tempdir().unwrap());
    let workspace = Workspace::start(&platform, folder.path()).await;
    let task = TaskId::fresh();
    workspace.activity.begin(&task, "find papers");
    let (beat, at) =
        platform.heartbeat(0, "a heartbeat during the turn", |beat| beat["active_tasks"] == 1).await;
    assert_eq!(beat["current_task"], "find papers");
    workspace.activity.end(&task, Some("[hermes-agent unreachable] no"));
    let (beat, at) = platform.heartbeat(at, "the failure", |beat| beat["error_rate"] == 1.0).await;
    assert_eq!(
        (&beat["sample_error"], &beat["active_tasks"]),
        (&json!("[hermes-agent unreachable] no"), &json!(0))
    );
    let (_, at) = platform
        .heartbeat(at, "reset counters", |beat| beat["error_rate"] == 0.0 && beat["sample_error"] == "")
        .await;

    let status = Status {
        executor: "hermes-runs".into(),
        capabilities: vec![("heartbeat", false), ("session", true)],
        idle_timeout_seconds: Some(900),
        wedged: None,
        note: Some("plugin-callback is not ready: down; hermes-runs takes its turns".into()),
    };
    *workspace.host.status.lock().unwrap() = Some(status.clone());
    let (beat, at) =
        platform.heartbeat(at, "capabilities", |beat| beat.get("runtime_metadata").is_some()).await;
    let metadata = json!({ "capabilities": { "heartbeat": false, "session": true }, "executor": "hermes-runs", "idle_timeout_seconds": 900 });
    assert_eq!(beat["runtime_metadata"], metadata);
    assert!(beat["sample_error"].as_str().unwrap().contains("takes its turns"), "{beat}");
    assert!(beat.get("runtime_state").is_none());

    let wedged =
        Status { idle_timeout_seconds: Some(0), wedged: Some("the gateway is down".into()), ..status };
    *workspace.host.status.lock().unwrap() = Some(wedged);
    let (beat, _) =
        platform.heartbeat(at, "the wedged state", |beat| beat["runtime_state"] == "wedged").await;
    assert_eq!(beat["sample_error"], "the gateway is down");
    assert!(beat["runtime_metadata"].get("idle_timeout_seconds").is_none(), "sent only if positive: {beat}");
    workspace.stop().await;
}

#[tokio::test]
async fn a_rotated_token_is_read_from_its_file() {
    let (platform, folder) = (FakePlatform::start().await, tempfile::tempdir().unwrap());
    let workspace = Workspace::start(&platform, folder.path()).await;
    let before = platform.heartbeat(0, "a heartbeat", any).await.1;
    // The new token is valid before the platform writes the file: until then every heartbeat is rejected.
    let token = platform.rotate();
    tokio::time::sleep(Duration::from_millis(100)).await;
    fs::write(folder.path().join(".auth_token"), &token).unwrap();
    platform.heartbeat(before + 2, "heartbeats with the new token", any).await;
    platform.set_secret("inbound-secret-2");
    soon("the new secret", async {
        while workspace.host.admitted.lock().unwrap().last().map(String::as_str) != Some("inbound-secret-2") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    workspace.stop().await;
}

#[tokio::test]
async fn heartbeats_survive_every_failure_of_the_platform() {
    let (mut platform, folder) = (FakePlatform::start().await, tempfile::tempdir().unwrap());
    platform.be(Mood::Refuses(409));
    let workspace = Workspace::start(&platform, folder.path()).await;
    assert_eq!(platform.registrations().len(), 0);
    for mood in [Mood::Refuses(500), Mood::Html, Mood::Empty, Mood::Huge, Mood::Hangs, Mood::Refuses(401)] {
        platform.be(mood);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    platform.be(Mood::Well);
    platform.registered(1).await;
    let at = platform.heartbeat(0, "a heartbeat", any).await.1;

    platform.go_down();
    let task = TaskId::fresh();
    workspace.activity.begin(&task, "while it is down");
    workspace.activity.end(&task, Some("lost"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    platform.come_back().await;
    let (beat, at) =
        platform.heartbeat(at, "the failure during the outage", |beat| beat["error_rate"] == 1.0).await;
    assert_eq!(beat["sample_error"], "lost");

    platform.forget();
    platform.registered(2).await;
    platform.heartbeat(at, "heartbeats after the second registration", any).await;
    workspace.stop().await;
}

#[tokio::test]
async fn the_first_heartbeat_carries_the_card_if_the_registration_failed() {
    let (platform, folder) = (FakePlatform::start().await, tempfile::tempdir().unwrap());
    fs::write(folder.path().join(".auth_token"), "stale").unwrap();
    platform.be(Mood::Refuses(400));
    let workspace = Workspace::start(&platform, folder.path()).await;
    platform.be(Mood::Well);
    let (beat, _) = platform.heartbeat(0, "a heartbeat", any).await;
    // Either the heartbeat carries the card, or the registration succeeded before it.
    assert!(beat["agent_card"].is_object() || !platform.registrations().is_empty(), "{beat}");
    workspace.stop().await;
}

#[tokio::test]
async fn peers_and_instructions_reach_the_prompt_and_stay_while_the_platform_is_down() {
    let (mut platform, folder) = (FakePlatform::start().await, tempfile::tempdir().unwrap());
    fs::write(folder.path().join("config.yaml"), "").unwrap();
    let peers = json!([
        { "id": "p1", "status": "online", "agent_card": { "name": "Ann", "skills": [{ "id": "s", "name": "Search" }] } },
        { "id": "p2", "status": "paused", "parent_id": "ws-1", "agent_card": "{\"name\":\"Ben\"}" },
        { "id": "p3", "agent_card": null }, "nonsense", 7,
    ]);
    platform.set_surroundings(peers, "be kind");
    let workspace = Workspace::start(&platform, folder.path()).await;
    let prompt = || workspace.assembly.current().workspace.system_prompt.clone().unwrap_or_default();
    let first = prompt();
    for part in [
        "# Platform Instructions\n\nbe kind",
        "**Ann** (id: `p1`, status: online)\n  Skills: Search",
        "## Your Team",
        "**Ben**",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    platform.go_down();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(prompt(), first);
    platform.set_surroundings(json!([]), "be brief");
    platform.come_back().await;
    soon("the new instructions", async {
        while !prompt().contains("be brief") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(!prompt().contains("Ann"), "{}", prompt());
    workspace.stop().await;
}

const UPDATE_CARD: &str = "/registry/update-card";

/// Waits for a few more heartbeats.
async fn some_beats(platform: &FakePlatform) {
    let count = platform.heartbeats().len();
    platform.heartbeat(count + 2, "more heartbeats", any).await;
}

#[tokio::test]
async fn a_changed_card_is_sent_once() {
    let (platform, folder) = (FakePlatform::start().await, tempfile::tempdir().unwrap());
    let workspace = Workspace::start(&platform, folder.path()).await;
    some_beats(&platform).await;
    assert_eq!(platform.cards(), Vec::<Value>::new(), "the registration delivered the card");
    let search = workspace.learn("search");
    assert_eq!(platform.told_card(1).await, search);
    workspace.learn("search");
    some_beats(&platform).await;
    assert_eq!(platform.cards(), [search], "an unchanged card is not sent");
    let cite = workspace.learn("cite");
    assert_eq!(platform.told_card(2).await, cite);
    assert_eq!(platform.registrations().len(), 1);
    workspace.stop().await;
}

#[tokio::test]
async fn a_rejected_card_is_sent_again_until_it_is_accepted() {
    let (mut platform, folder) = (FakePlatform::start().await, tempfile::tempdir().unwrap());
    let workspace = Workspace::start(&platform, folder.path()).await;
    for status in [400, 401, 500] {
        platform.close(UPDATE_CARD, status);
        let card = workspace.learn(&format!("despite-{status}"));
        some_beats(&platform).await;
        assert!(!platform.cards().contains(&card), "{status}");
        platform.close(UPDATE_CARD, None);
        let sent = platform.cards().len();
        assert_eq!(platform.told_card(sent + 1).await, card, "{status}");
    }
    let sent = platform.cards().len();
    platform.go_down();
    workspace.learn("missed");
    let card = workspace.learn("while-it-was-down");
    platform.come_back().await;
    assert_eq!(platform.told_card(sent + 1).await, card, "only the newest card");
    some_beats(&platform).await;
    assert_eq!((platform.cards().len(), platform.registrations().len()), (sent + 1, 1));
    workspace.stop().await;
}

#[tokio::test]
async fn without_card_updates_each_new_card_causes_one_registration() {
    for status in [404, 405, 501] {
        let (platform, folder) = (FakePlatform::start().await, tempfile::tempdir().unwrap());
        platform.close(UPDATE_CARD, status);
        let workspace = Workspace::start(&platform, folder.path()).await;
        for (skill, times) in [("search", 2), ("cite", 3)] {
            let card = workspace.learn(skill);
            platform.registered(times).await;
            assert_eq!(platform.registrations()[times - 1]["agent_card"], card, "{status}");
            some_beats(&platform).await;
            assert_eq!(platform.registrations().len(), times, "{status}: registered again without a change");
        }
        workspace.stop().await;
    }
}

#[tokio::test]
async fn an_unregistered_workspace_sends_its_newest_card() {
    let (platform, folder) = (FakePlatform::start().await, tempfile::tempdir().unwrap());
    platform.close("/registry/register", 400);
    let workspace = Workspace::start(&platform, folder.path()).await;
    platform.heartbeat(0, "the first card", |beat| beat["agent_card"]["name"] == "Researcher").await;
    let card = workspace.learn("search");
    platform.heartbeat(0, "the newest card", |beat| beat["agent_card"] == card).await;
    platform.close("/registry/register", None);
    platform.registered(1).await;
    assert_eq!(platform.registrations()[0]["agent_card"], card);
    some_beats(&platform).await;
    assert_eq!(platform.cards(), Vec::<Value>::new(), "the registration delivered the card");
    workspace.stop().await;
}

#[tokio::test]
async fn the_interval_between_heartbeats_follows_the_file() {
    let (platform, folder) = (FakePlatform::start().await, tempfile::tempdir().unwrap());
    let (hour, short) = (Duration::from_secs(3_600), Duration::from_millis(10));
    let workspace = Workspace::start_every(&platform, folder.path(), hour, Some(short)).await;
    platform.heartbeat(3, "a fourth heartbeat", any).await;
    workspace.stop().await;
}
