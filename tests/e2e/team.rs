//! Three bridges and one platform: a coordinator gives work to two members, one of whom fails.
//!
//! The test plays the coordinator's agent. While the first turn runs it calls the tools, and the gateway then answers with a
//! promise. The task stays open until both members have answered, and the caller gets what the agent makes of the results.
//!
//! The platform takes every answer of a bridge for a completed delegation. Ben's failure therefore arrives as the text that
//! his bridge answers with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_client::{Client as A2aClient, Delivery, Message};
use talaria_fakes::{FakeGateway, FakePlatform, Mood, Recorded, Reply, soon};
use tokio::sync::Notify;

use crate::bridge::{self, Bridge, Start, client_with_token};
use crate::tools::Client;
use crate::workspace::Folders;

const LEAD: &str = "00000000-0000-4000-8000-000000000001";
const ANN: &str = "00000000-0000-4000-8000-000000000002";
const BEN: &str = "00000000-0000-4000-8000-000000000003";

/// How the message with results begins.
const RESULTS: &str = "Results of tasks that you delegated earlier:";
const PROMISE: &str = "I have asked Ann and Ben.";
const SYNTHESIS: &str = "Ann found three papers on fish; Ben could not help.";
const FOUND: &str = "three papers on fish";
const ALICE: &str = "alice-token-0123456789";

/// The coordinator accepts a caller with a name, so that her repeated messages are recognised.
const CONFIG: &str = "[a2a.auth]\ntokens = [{ name = \"alice\", token = { env = \"ALICE_TOKEN\" } }]\n";

/// A workspace: its folders, and the gateway behind its bridge.
struct Seat {
    id: &'static str,
    folders: Folders,
    at: PathBuf,
    gateway: FakeGateway,
}

/// The platform with its workspaces. Only the members' bridges run from the start, until they are dropped.
struct Team {
    platform: FakePlatform,
    lead: Seat,
    ann: Seat,
    ben: Seat,
    /// Lets the coordinator's gateway answer the first turn.
    promise: Arc<Notify>,
    /// Lets Ann's gateway answer.
    found: Arc<Notify>,
    members: Option<[Bridge; 2]>,
}

// === impl Seat ===

impl Seat {
    fn new(id: &'static str, name: &str, gateway: FakeGateway) -> Self {
        let folders = Folders::new(&format!("name: {name}\nruntime: hermes\n"));
        let at = folders.bridge();
        Self { id, folders, at, gateway }
    }

    fn start(&self, platform: &FakePlatform) -> Start<'_> {
        Start::new(&self.at)
            .log(&self.at.join("log"))
            .env("WORKSPACE_ID", self.id)
            .env("WORKSPACE_CONFIG_PATH", &self.folders.configs().to_string_lossy())
            .env("PLATFORM_URL", &platform.url())
            .env("HERMES_API_BASE", &self.gateway.base_url())
            .env("ALICE_TOKEN", ALICE)
    }

    /// How often its agent was asked for a task of this text.
    fn times(&self, task: &str) -> usize {
        self.gateway.requests().iter().filter_map(last_words).filter(|words| words.contains(task)).count()
    }
}

// === impl Team ===

impl Team {
    async fn gather() -> Self {
        let platform = FakePlatform::start().await;
        platform.send_secret();
        platform.host(LEAD, "Lead", None);
        platform.host(ANN, "Ann", Some(LEAD));
        platform.host(BEN, "Ben", Some(LEAD));
        let (promise, found) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let released = Arc::clone(&promise);
        let lead = FakeGateway::start(move |request| match last_words(request) {
            Some(words) if words.starts_with(RESULTS) => Reply::completion(SYNTHESIS),
            Some(words) if words.contains("report on fish") => Reply::completion(PROMISE).slow(&released),
            Some(_) => Reply::completion("ok"),
            None => Reply::json(&json!({ "data": [] })),
        });
        let ann = Reply::completion(FOUND).slow(&found);
        let ben = Reply::status(
            400,
            "application/json",
            json!({ "error": { "message": "no such model" } }).to_string(),
        );
        let lead = Seat::new(LEAD, "Lead", lead.await);
        let ann = Seat::new(ANN, "Ann", FakeGateway::always(ann).await);
        let ben = Seat::new(BEN, "Ben", FakeGateway::always(ben).await);
        let members = [&ann, &ben].map(|member| member.start(&platform).up());
        platform.hosts(&[ANN, BEN]).await;
        Self { platform, lead, ann, ben, promise, found, members: Some(members) }
    }

    fn start_lead(&self) -> Bridge {
        self.lead.start(&self.platform).config(CONFIG).up()
    }

    /// Plays the agent of the first turn: gives work to both members, and then lets the gateway answer.
    async fn give_work(&self, lead: &Bridge) {
        soon("the first turn", async {
            while self.lead.times("report on fish") == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        let tools = Client::of(lead, &self.lead.at);
        for (member, task) in [("Ann", "papers on fish"), ("Ben", "books on fish")] {
            let said =
                tools.call("delegate_task_async", json!({ "workspace_id": member, "task": task })).await;
            assert!(said.contains("delegation_id") && !said.contains("refused"), "{said}");
        }
        self.promise.notify_one();
    }

    /// The messages with results that the coordinator's agent got.
    fn results(&self) -> Vec<Recorded> {
        let requests = self.lead.gateway.requests().into_iter();
        requests
            .filter(|request| last_words(request).is_some_and(|words| words.starts_with(RESULTS)))
            .collect()
    }

    /// Checks that everything was done once: each member's work, one message with both results, in the session that
    /// delegated.
    fn check_once(&self) {
        assert_eq!((self.ann.times("papers on fish"), self.ben.times("books on fish")), (1, 1));
        assert_eq!(self.platform.delegated().len(), 2);
        let results = self.results();
        assert_eq!(results.len(), 1, "the results are told once");
        let words = last_words(&results[0]).unwrap();
        for part in [FOUND, "Ann", "Ben", "[hermes-agent error 400]"] {
            assert!(words.contains(part), "{part}: {words}");
        }
        let session = |request: &Recorded| request.header("x-hermes-session-id").map(str::to_owned);
        let asked = self.lead.gateway.requests();
        let first = asked
            .iter()
            .find(|request| last_words(request).is_some_and(|words| words.contains("report on fish")));
        assert_eq!(session(&results[0]), session(first.unwrap()), "the agent remembers whom it asked");
        let told = |message: &&Value| message.to_string().contains(RESULTS);
        assert_eq!(self.platform.sent().iter().filter(told).count(), 0, "not in another way too");
    }
}

/// The last message of the user in a request for a completion.
fn last_words(request: &Recorded) -> Option<String> {
    if request.method != "POST" {
        return None;
    }
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    let last = body["messages"].as_array()?.iter().rfind(|message| message["role"] == "user")?;
    match &last["content"] {
        Value::String(text) => Some(text.clone()),
        parts => parts.as_array()?.iter().find_map(|part| part["text"].as_str()).map(str::to_owned),
    }
}

fn alice(lead: &Bridge) -> A2aClient {
    client_with_token(lead.url(), ALICE)
}

/// Waits until a task of Alice is as the test wants it.
async fn task(lead: &Bridge, id: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let client = alice(lead);
    soon(what, async {
        loop {
            let task = client.get_task(id).await.unwrap();
            if is(&task) {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

fn request() -> Message {
    Message { id: Some("the-request".into()), ..Message::new("a report on fish, please") }
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

// Waiting for a bridge blocks a thread.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_gets_the_synthesis_of_what_two_members_answered_and_not_the_promise() {
    let team = Team::gather().await;
    let lead = team.start_lead();
    team.platform.hosts(&[LEAD]).await;
    let (client, message) = (alice(&lead), request());
    let agent = async {
        team.give_work(&lead).await;
        // One answer is not enough.
        team.platform.ended_delegations(1).await;
        team.found.notify_one();
    };
    let answer = soon("the synthesis", client.send(&message, Delivery::Whole));
    let (answer, ()) = tokio::join!(answer, agent);
    let answer = answer.unwrap();
    assert_eq!(answer.to_string(), SYNTHESIS);
    // A message names no task.
    let list = client.call("ListTasks", json!({ "includeArtifacts": false })).await.unwrap();
    let id = list["tasks"][0]["id"].as_str().expect("a task").to_owned();
    let done = task(&lead, &id, "the end of the task", |task| state(task) == "TASK_STATE_COMPLETED").await;
    assert!(done["artifacts"].to_string().contains(SYNTHESIS), "{done}");
    assert!(!done["artifacts"].to_string().contains(PROMISE), "the promise is not the answer: {done}");
    // Another turn shows that nothing is told later.
    client.send(&Message::new("thank you"), Delivery::Whole).await.unwrap();
    team.check_once();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_is_killed_gets_each_answer_once_and_its_caller_one_synthesis() {
    let team = Team::gather().await;
    let lead = team.start_lead();
    team.platform.hosts(&[LEAD]).await;
    let first = alice(&lead).send(&request(), Delivery::Detached).await.unwrap();
    let id = first.status.task.expect("a task");
    team.give_work(&lead).await;
    let held = task(&lead, &id, "the promise", |task| task.to_string().contains(PROMISE)).await;
    assert_eq!(state(&held), "TASK_STATE_WORKING", "{held}");
    team.platform.ended_delegations(1).await;
    lead.kill();
    // Ann answers while the coordinator is gone.
    team.found.notify_one();
    team.platform.ended_delegations(2).await;

    let lead = team.start_lead();
    let repeated = soon("the synthesis", alice(&lead).send(&request(), Delivery::Whole)).await.unwrap();
    assert_eq!(repeated.to_string(), SYNTHESIS);
    let done = task(&lead, &id, "the end of the task", |task| state(task) == "TASK_STATE_COMPLETED").await;
    assert!(done["artifacts"].to_string().contains(SYNTHESIS), "{done}");
    assert!(team.platform.delegated().iter().all(|one| one.posts == 1), "each was accepted at once");
    team.check_once();

    // Another kill, and nothing is told again.
    lead.kill();
    let lead = team.start_lead();
    alice(&lead).send(&Message::new("thank you"), Delivery::Whole).await.unwrap();
    assert_eq!(alice(&lead).get_task(&id).await.unwrap()["artifacts"], done["artifacts"]);
    team.check_once();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delegation_whose_receipt_is_lost_in_a_kill_is_made_once_and_its_answer_told_once() {
    let team = Team::gather().await;
    let lead = team.start_lead();
    team.platform.hosts(&[LEAD]).await;
    let tools = Client::of(&lead, &team.lead.at);
    team.platform.be_at("/delegate", Mood::Mute);
    let call = tools.call("delegate_task_async", json!({ "workspace_id": "Ann", "task": "papers on fish" }));
    tokio::select! {
        said = call => panic!("the platform does not answer: {said}"),
        _ = team.platform.told_delegation(1) => {}
    }
    lead.kill();
    team.platform.be_at("/delegate", Mood::Well);
    team.found.notify_one();
    let lead = team.start_lead();
    // No turn delegated, so the results come as a message of their own, through the platform.
    soon("the results", async {
        while team.results().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let made = team.platform.delegated();
    assert_eq!((made.len(), made[0].posts), (1, 2), "the key of the first request finds its delegation");
    assert_eq!(team.ann.times("papers on fish"), 1);
    alice(&lead).send(&Message::new("thank you"), Delivery::Whole).await.unwrap();
    let results = team.results();
    assert_eq!(results.len(), 1, "told once");
    assert!(last_words(&results[0]).unwrap().contains(FOUND));
}

/// The message with results is in the platform's queue when the bridge is killed, and is sent again after the restart. Nobody
/// has a token here, so both copies come from a caller without a name.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_workspace_reads_results_once_although_the_platform_passes_them_on_twice() {
    let team = Team::gather().await;
    let lead = team.lead.start(&team.platform).up();
    team.platform.hosts(&[LEAD]).await;
    let tools = Client::of(&lead, &team.lead.at);
    let said =
        tools.call("delegate_task_async", json!({ "workspace_id": "Ann", "task": "papers on fish" })).await;
    assert!(said.contains("\"status\":\"working\""), "{said}");
    team.platform.set_busy(LEAD, true);
    let proxy = format!("/workspaces/{LEAD}/a2a");
    team.platform.be_at(&proxy, Mood::Mute);
    team.found.notify_one();
    let told = |message: &&Value| message.to_string().contains(RESULTS);
    let sent = async |times: usize| {
        soon("the results are sent", async {
            while team.platform.sent().iter().filter(told).count() < times {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    };
    sent(1).await;
    lead.kill();
    team.platform.be_at(&proxy, Mood::Well);
    let lead = team.lead.start(&team.platform).up();
    sent(2).await;
    // A turn causes a heartbeat, after which the platform passes on what waits.
    team.platform.set_busy(LEAD, false);
    lead.say("thank you").await;
    soon("both copies are answered", async {
        while passed_on(&team.platform).await < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(team.results().len(), 1, "the agent reads them once");
    assert_eq!((team.platform.delegated().len(), team.ann.times("papers on fish")), (1, 1));
}

/// How many messages with results the coordinator's bridge has answered.
async fn passed_on(platform: &FakePlatform) -> usize {
    let bearer = format!("Bearer {}", platform.token_of(LEAD).expect("a token"));
    let path = format!("/workspaces/{LEAD}/activity?type=a2a_receive");
    let headers = [("authorization", bearer.as_str()), ("x-workspace-id", LEAD)];
    let rows = bridge::request(&platform.url(), "GET", &path, &headers, "").await;
    let rows: Value = serde_json::from_slice(&rows.body).unwrap();
    rows.as_array().unwrap().iter().filter(|row| row["request_body"].to_string().contains(RESULTS)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_down_is_a_failed_delegation_with_its_reason() {
    let mut team = Team::gather().await;
    let lead = team.start_lead();
    team.platform.hosts(&[LEAD]).await;
    drop(team.members.take());
    let tools = Client::of(&lead, &team.lead.at);
    let arguments = json!({ "workspace_id": "Ann", "task": "papers on fish", "wait_seconds": 60 });
    let said = tools.call("delegate_task", arguments).await;
    assert!(said.contains("\"status\":\"failed\"") && said.contains("failed to reach"), "{said}");
    assert_eq!(team.ann.times("papers on fish"), 0);
}
