//! Ready means that a turn can succeed: `check` and `/readyz` say so only if the probe was allowed, its key was taken, and
//! the store can be written.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use talaria_fakes::{FakeGateway, Reply};

use crate::bridge::{Bridge, Start, request, run, stderr, stdout, talaria};
use crate::swap::until;

const KEY: &str = "a-key-of-the-tests-0123";

async fn check(folder: &Path, toml: &str, variables: &[(&str, &str)]) -> Output {
    std::fs::write(folder.join("talaria.toml"), toml).unwrap();
    let mut command = talaria(folder);
    command.arg("check").envs(variables.iter().copied());
    tokio::task::spawn_blocking(move || run(&mut command)).await.unwrap()
}

async fn readyz(bridge: &Bridge) -> (u16, Value) {
    let url = bridge.banner["admin"].as_str().expect("an address");
    let response = request(url, "GET", "/readyz", &[], "").await;
    (response.status, serde_json::from_slice(&response.body).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_wants_a_key_is_not_ready_without_the_right_one() {
    let gateway = FakeGateway::always(Reply::completion("hi")).await;
    gateway.want_key(KEY);
    let (folder, base) = (tempfile::tempdir().unwrap(), gateway.base_url());
    for (key, said) in [
        (None, "wants a key (401); set API_SERVER_KEY"),
        (Some("another-key-of-the-tests"), "refuses the key (401)"),
    ] {
        let mut variables = vec![("HERMES_API_BASE", base.as_str())];
        variables.extend(key.map(|key| ("API_SERVER_KEY", key)));
        let checked = check(folder.path(), "", &variables).await;
        assert_eq!(checked.status.code(), Some(1), "{}", stdout(&checked));
        assert!(stdout(&checked).contains(said), "{}", stdout(&checked));
        let mut start = Start::new(folder.path()).env("HERMES_API_BASE", &base);
        if let Some(key) = key {
            start = start.env("API_SERVER_KEY", key);
        }
        let (status, report) = readyz(&start.up()).await;
        assert!(status == 503 && report.to_string().contains(said), "{report}");
    }
    let variables = [("HERMES_API_BASE", base.as_str()), ("API_SERVER_KEY", KEY)];
    let checked = check(folder.path(), "", &variables).await;
    assert_eq!(checked.status.code(), Some(0), "{}{}", stdout(&checked), stderr(&checked));
    let start = Start::new(folder.path()).env("HERMES_API_BASE", &base).env("API_SERVER_KEY", KEY);
    assert_eq!(readyz(&start.up()).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_needs_make_it_unready_only_if_the_probe_or_every_call_is_denied() {
    let gateway = FakeGateway::always(Reply::completion("hi")).await;
    let (folder, base) = (tempfile::tempdir().unwrap(), gateway.base_url());
    let variables = [("HERMES_API_BASE", base.as_str())];
    let with = async |egress: &str| {
        let toml = format!("[executor.chat-completions.grant]\negress = [{egress}]\n");
        let checked = check(folder.path(), &toml, &variables).await;
        (checked.status.code(), stdout(&checked))
    };
    let (code, said) = with("\"POST https://x/y\"").await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("not ready: none of the calls that its component declares is granted"), "{said}");
    let (code, said) = with(&format!("\"POST {base}/chat/completions\"")).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("a call of its probe was denied") && said.contains(&format!("GET {base}/health")),
        "{said}"
    );
    let probe = format!("\"POST {base}/chat/completions\", \"GET {base}/health\", \"GET {base}/models\"");
    let (code, said) = with(&probe).await;
    assert_eq!(code, Some(0), "other needs are warnings: {said}");
    assert!(said.contains("warning        executor chat-completions is denied 6 of its needs"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_written_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let conformance = "[executors]\ndefault = \"conformance\"\n[executor.chat-completions]\n";
    let toml = format!("{conformance}[store]\nurl = \"sqlite:/proc/talaria.db\"\n");
    let gateway = FakeGateway::always(Reply::completion("hi")).await;
    let variables = [("HERMES_API_BASE", gateway.base_url())];
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let checked = check(folder.path(), &toml, &variables).await;
    assert_eq!(checked.status.code(), Some(1), "{}", stdout(&checked));
    assert!(stdout(&checked).contains("/proc/talaria.db: not ready: "), "{}", stdout(&checked));

    // A running host whose database another process holds.
    let bridge = Start::new(folder.path()).config("[executors]\ndefault = \"conformance\"\n").up();
    assert_eq!(readyz(&bridge).await.0, 200);
    let database = folder.path().join("talaria.db");
    let _full = hold(&database);
    until("the store is not ready", async || {
        let (status, report) = readyz(&bridge).await;
        status == 503 && report["store"]["state"] == "not-ready"
    })
    .await;
}

/// Locks a database against writers, as a backup tool that hangs does, in a process of its own.
fn hold(database: &Path) -> Held {
    let script = format!(
        "import sqlite3, sys\nc = sqlite3.connect({:?}, isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\n\
         print('held', flush=True)\nsys.stdin.read()\n",
        database.to_str().unwrap()
    );
    let mut child = std::process::Command::new("python3")
        .args(["-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    assert_eq!(line, "held\n");
    Held(child)
}

struct Held(std::process::Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_scrapes_need_no_token_but_everything_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let toml = "[executors]\ndefault = \"conformance\"\n[admin]\nlisten = \"127.0.0.1:0\"\ntoken = { env = \"OPERATOR\" }\n";
    let bridge = Start::new(folder.path()).config(toml).env("OPERATOR", "operators-own-token").up();
    let url = bridge.banner["admin"].as_str().unwrap();
    for (path, status) in
        [("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/executors", 401), ("/audit", 401)]
    {
        assert_eq!(request(url, "GET", path, &[], "").await.status, status, "{path}");
    }
}
