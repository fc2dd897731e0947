//! The executor `a2a` in the real binary, with another talaria as its agent: streams, questions, cancels, restarts of either
//! side, and circles.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use talaria_client::{Delivery, Message, StreamItem};
use talaria_fakes::{FakeRuns, Script, free_port, soon};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::bridge::{Bridge, Start, message, run, stderr, stdout, talaria};

const KEY: &str = "a-key-of-16-chars";
const TOKEN: &str = "a-token-of-16-chars";
const COMMAND: &str = "rm -rf /srv/data";

/// A talaria whose executor speaks to this address.
fn gateway(folder: &Path, url: &str) -> Bridge {
    gateway_speaking("auto", folder, url)
}

/// The same, in a version of the protocol.
fn gateway_speaking(version: &str, folder: &Path, url: &str) -> Bridge {
    let config = format!(
        "[executors]\ndefault = \"peer\"\n[store]\nurl = \"sqlite:tasks.db\"\n\
         [executor.peer]\ncomponent = \"builtin:a2a\"\n\
         settings = {{ url = \"{url}\", version = \"{version}\", poll_seconds = 1 }}\n"
    );
    Start::new(folder).config(&config).env("A2A_TOKEN", TOKEN).up()
}

fn agent(folder: &Path, runs: &FakeRuns) -> Start<'static> {
    runs.want_key(KEY);
    // Leaked, so that a test can start it again in its folder.
    let folder: &'static Path = Box::leak(folder.to_owned().into_boxed_path());
    Start::new(folder)
        .config(
            "[executors]\ndefault = \"hermes-runs\"\n[store]\nurl = \"sqlite:tasks.db\"\n\
             [a2a.auth]\ntokens = [{ name = \"gateway\", token = { env = \"PEER_TOKEN\" } }]\n",
        )
        .env("HERMES_API_BASE", &runs.base_url())
        .env("API_SERVER_KEY", KEY)
        .env("PEER_TOKEN", TOKEN)
}

fn folders() -> [TempDir; 2] {
    [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()]
}

/// Sends a message and reads along until a piece of the answer is there, by which time the agent's task is known. Returns the
/// id of our task.
async fn under_way(bridge: &Bridge, text: &str) -> String {
    let (client, message) = (bridge.client(), Message::new(text));
    let mut stream = client.stream(&message);
    soon("a piece of the answer", async {
        loop {
            let item = stream.next().await.unwrap().expect("the turn goes on");
            if matches!(&item, StreamItem::Update(update) if update.to_string().contains("talaria/chunk")) {
                return stream.status().task.clone().expect("a task");
            }
        }
    })
    .await
}

fn answer(task: &Value) -> &Value {
    &task["artifacts"][0]["parts"][0]["text"]
}

#[tokio::test(flavor = "multi_thread")]
async fn two_talarias_in_a_row_are_ready_and_stream() {
    let runs = FakeRuns::start([
        Script::new().tool_started("terminal", "ls").delta("Hel").delta("lo").completed("Hello"),
        Script::new().completed("again"),
    ])
    .await;
    let [inner, outer] = folders();
    let agent = agent(inner.path(), &runs).up();
    let gateway = gateway(outer.path(), agent.url());
    let ready = |executor: &Value| executor["readiness"]["state"] == "ready" || executor["name"] != "peer";
    assert!(gateway.banner["executors"].as_array().unwrap().iter().all(ready), "{}", gateway.banner);
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": message("hi") });
    let headers =
        [("a2a-version", "1.0"), ("content-type", "application/json"), ("accept", "text/event-stream")];
    let response = gateway.request("POST", "/", &headers, &body.to_string()).await;
    let stream = String::from_utf8(response.body.to_vec()).unwrap();
    let events: Vec<Value> = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str::<Value>(data).unwrap()["result"].clone())
        .collect();
    let chunks: Vec<&str> = events
        .iter()
        .filter(|event| event["statusUpdate"]["status"]["message"]["metadata"]["talaria/chunk"] == true)
        .filter_map(|event| event["statusUpdate"]["status"]["message"]["parts"][0]["text"].as_str())
        .collect();
    assert_eq!(chunks.concat(), "Hello", "{stream}");
    assert!(stream.contains("\"terminal\""), "tools of the agent's agent: {stream}");
    let task = events.iter().find_map(|event| event["task"]["id"].as_str()).expect("a task");
    let done = gateway.task(task).await;
    assert_eq!((answer(&done), &done["metadata"]["usage"]["output_tokens"]), (&json!("Hello"), &json!(7)));
    assert_eq!(gateway.say("and now?").await, "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_of_the_agent_is_ours_and_so_is_its_answer() {
    for version in ["1.0", "0.3"] {
        let runs = FakeRuns::start([Script::new().approval(COMMAND).completed("deleted")]).await;
        let [inner, outer] = folders();
        let agent = agent(inner.path(), &runs).up();
        let gateway = gateway_speaking(version, outer.path(), agent.url());
        let id = gateway.start_turn("clean up").await;
        let asked = gateway.in_state(&id, "TASK_STATE_INPUT_REQUIRED").await;
        let question = &asked["status"]["message"]["parts"];
        assert!(question[0]["text"].as_str().unwrap().contains(COMMAND), "{version}: {asked}");
        assert_eq!(question[1]["data"]["approval"]["choices"], json!(["once", "session", "deny"]));
        let again = gateway.send(Message::new("always").to_task(&id), Delivery::Whole).await;
        assert!(again.status.wants_input(), "{version}: {}", again.raw());
        gateway.send(Message::new("yes").to_task(&id), Delivery::Whole).await;
        let done = gateway.in_state(&id, "TASK_STATE_COMPLETED").await;
        assert_eq!(answer(&done), "deleted", "{version}: {done}");
        assert_eq!((runs.choices(), runs.submitted().len()), (vec!["once".to_owned()], 1), "{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_goes_all_the_way_whether_the_agent_works_or_asks() {
    let runs =
        FakeRuns::start([Script::new().delta("one ").hang(), Script::new().approval(COMMAND).hang()]).await;
    let [inner, outer] = folders();
    let agent = agent(inner.path(), &runs).up();
    let gateway = gateway(outer.path(), agent.url());
    let working = under_way(&gateway, "take your time").await;
    let cancelled = gateway.client().cancel_task(&working).await.unwrap();
    assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELED", "{cancelled}");
    assert_eq!(runs.requests("POST", "/stop").len(), 1);
    let asking = gateway.start_turn("clean up").await;
    gateway.in_state(&asking, "TASK_STATE_INPUT_REQUIRED").await;
    let cancelled = gateway.client().cancel_task(&asking).await.unwrap();
    assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELED", "{cancelled}");
    assert_eq!(runs.requests("POST", "/stop").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_of_either_side_loses_no_task_and_sends_nothing_twice() {
    let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let runs = FakeRuns::start([
        Script::new().delta("one ").wait(&first).completed("one two"),
        Script::new().delta("three ").wait(&second).completed("three four"),
        Script::new().approval(COMMAND).completed("deleted"),
    ])
    .await;
    let [inner, outer] = folders();
    let peer = agent(inner.path(), &runs).up();
    let address = peer.url().to_owned();

    // The gateway is killed while the agent works, and while it asks.
    let bridge = gateway(outer.path(), &address);
    let working = under_way(&bridge, "count").await;
    bridge.kill();
    first.notify_one();
    let bridge = gateway(outer.path(), &address);
    let done = bridge.in_state(&working, "TASK_STATE_COMPLETED").await;
    assert_eq!(answer(&done), "one two");

    // The agent is killed while it works.
    let working = under_way(&bridge, "count on").await;
    peer.kill();
    second.notify_one();
    let peer = agent(inner.path(), &runs).in_place_of(&address).up();
    let done = bridge.in_state(&working, "TASK_STATE_COMPLETED").await;
    assert_eq!(answer(&done), "three four");

    let asking = bridge.start_turn("clean up").await;
    bridge.in_state(&asking, "TASK_STATE_INPUT_REQUIRED").await;
    bridge.kill();
    let bridge = gateway(outer.path(), &address);
    assert_eq!(bridge.task(&asking).await["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    bridge.send(Message::new("yes").to_task(&asking), Delivery::Whole).await;
    let done = bridge.in_state(&asking, "TASK_STATE_COMPLETED").await;
    assert_eq!(answer(&done), "deleted");
    assert_eq!(runs.submitted().len(), 3, "no message is sent twice");
    drop(peer);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_circle_is_refused_by_the_host_that_a_message_passes_too_often() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://127.0.0.1:{}", free_port());
    let config = format!(
        "[limits]\nhops = 2\n[executors]\ndefault = \"peer\"\n\
         [executor.peer]\ncomponent = \"builtin:a2a\"\nsettings = {{ url = \"{url}\" }}\n"
    );
    let bridge = Start::new(folder.path()).config(&config).in_place_of(&url).up();
    let why = "[agent error -32602] the message has passed through 3 hosts, and 2 are the most: agents pass it on to each \
               other in a circle; if they do not, raise `limits.hops`";
    assert_eq!(bridge.say("hi").await, why);
    let listed = bridge.call("ListTasks", json!({})).await;
    assert_eq!(listed["result"]["totalSize"], 3, "the refused message left nothing: {listed}");

    // What passed through too many hosts elsewhere is refused here, and nothing is written.
    let mut far = message("hi");
    far["message"]["metadata"] = json!({ "talaria/hops": 3 });
    let refused = bridge.call("SendMessage", far).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let mut odd = message("hi");
    odd["message"]["metadata"] = json!({ "talaria/hops": "many" });
    let refused = bridge.call("SendMessage", odd).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(bridge.call("ListTasks", json!({})).await["result"]["totalSize"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_circle_of_two_talarias_is_refused_too() {
    let [one, two] = folders();
    let urls = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
    let start = |folder: &Path, own: &str, other: &str| {
        let config = format!(
            "[limits]\nhops = 3\n[executors]\ndefault = \"peer\"\n\
             [executor.peer]\ncomponent = \"builtin:a2a\"\nsettings = {{ url = \"{other}\" }}\n"
        );
        Start::new(folder).config(&config).in_place_of(own).up()
    };
    let first = start(one.path(), &urls[0], &urls[1]);
    let second = start(two.path(), &urls[1], &urls[0]);
    let why = first.say("hi").await;
    assert!(why.contains("the message has passed through 4 hosts, and 3 are the most"), "{why}");
    for bridge in [first, second] {
        assert_eq!(bridge.call("ListTasks", json!({})).await["result"]["totalSize"], 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_alone_grant_the_agent_and_nothing_else() {
    let runs = FakeRuns::start([]).await;
    let [inner, outer] = folders();
    let agent = agent(inner.path(), &runs).up();
    let config = |settings: &str| {
        let config = format!("[executor.peer]\ncomponent = \"builtin:a2a\"\nsettings = {{ {settings} }}\n");
        std::fs::write(outer.path().join("talaria.toml"), config).unwrap();
        run(talaria(outer.path()).args(["check"]).env("OTHER_TOKEN", TOKEN))
    };
    let url = agent.url();
    let checked = config(&format!("url = \"{url}\", token = \"OTHER_TOKEN\""));
    let table = stdout(&checked);
    for need in [format!("GET {url}/*"), format!("POST {url}/*"), "OTHER_TOKEN".into()] {
        let row = table.lines().find(|line| line.contains(&need));
        assert!(row.is_some_and(|row| row.trim_end().ends_with("granted")), "{need}: {table}");
    }
    let checked = config("");
    assert_eq!(checked.status.code(), Some(64));
    assert!(
        stderr(&checked).contains(
            "`executor.peer.settings.url`: missing; name the agent, like \"http://127.0.0.1:9900\""
        ),
        "{}",
        stderr(&checked)
    );
    let checked = config(&format!("url = \"{url}\""));
    let said = format!("{}{}", stdout(&checked), stderr(&checked));
    assert!(said.contains("executor peer: not ready: [agent error 401] it wants a token"), "{said}");
}
