//! A bridge that a test started, and clients for it.
//!
//! Tests of behaviour go through `talaria-client`: [`Bridge::client`] and the methods below it. Tests that pin what is on
//! the wire (JSON-RPC errors, members of a result, headers, other bindings) use [`Bridge::call`] and
//! [`Bridge::request`], which send raw requests on purpose.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_client::{Agent, AgentOptions, Client, Delivery, Message, Protocol};
use talaria_egress::{Access, Config, Egress, Request, Response};
use talaria_fakes::soon;

/// A running `talaria serve`. Killed when dropped.
pub(crate) struct Bridge {
    child: Child,
    /// Reads its log, if that goes to no file: a pipe that nobody reads fills up.
    said: Option<JoinHandle<String>>,
    /// The JSON document that it printed when it was ready.
    pub(crate) banner: Value,
}

/// How a test starts a bridge. The environment is that of the test without our variables.
pub(crate) struct Start<'a> {
    folder: &'a Path,
    listen: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    log: Option<PathBuf>,
    prefix: Vec<OsString>,
}

/// Variables of ours that a developer's shell may hold.
const OURS: [&str; 38] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_SDK_DISABLED",
    "OTEL_TRACES_EXPORTER",
    "A2A_TOKEN",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HERMES_CUSTOM_BASE_URL",
    "MOLECULE_RUNTIME_PREPARE_ONLY",
    "MOLECULE_TOOL_ACTIVITY_FILE",
    "TALARIA_OCI_OFFLINE",
    "HERMES_API_BASE",
    "API_SERVER_KEY",
    "MOLECULE_A2A_PLATFORM_ENABLED",
    "MOLECULE_A2A_PLATFORM_HOST",
    "MOLECULE_A2A_PLATFORM_PORT",
    "MOLECULE_A2A_PLATFORM_SHARED_SECRET",
    "MOLECULE_A2A_CALLBACK_HOST",
    "MOLECULE_A2A_CALLBACK_PORT",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "WORKSPACE_ID",
    "WORKSPACE_CONFIG_PATH",
    "CONFIGS_DIR",
    "PLATFORM_URL",
    "PARENT_ID",
    "PLUGINS_DIR",
    "MODEL_PROVIDER",
    "MOLECULE_WORKSPACE_TOKEN",
    "MOLECULE_SMOKE_MODE",
    "AGENT_SNAPSHOT_PATH",
    "HERMES_HOME",
    "RUST_LOG",
];

pub(crate) fn talaria(folder: &Path) -> Command {
    prepared(Command::new(env!("CARGO_BIN_EXE_talaria")), folder)
}

fn prepared(mut command: Command, folder: &Path) -> Command {
    command.current_dir(folder).stdin(Stdio::null());
    for name in OURS {
        command.env_remove(name);
    }
    // The tests share one cache of compiled components.
    command.env("XDG_CACHE_HOME", Path::new(env!("CARGO_BIN_EXE_talaria")).with_file_name("e2e-cache"));
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Output {
    command.output().expect("the binary runs")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

// === impl Start ===

impl<'a> Start<'a> {
    pub(crate) fn new(folder: &'a Path) -> Self {
        Self {
            folder,
            listen: "127.0.0.1:0".into(),
            args: Vec::new(),
            env: Vec::new(),
            log: None,
            prefix: Vec::new(),
        }
    }

    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Listens there.
    pub(crate) fn listening(self, at: &str) -> Self {
        Self { listen: at.to_owned(), ..self }
    }

    /// Listens on the address of a bridge that is gone.
    pub(crate) fn in_place_of(self, url: &str) -> Self {
        Self { listen: url.trim_start_matches("http://").into(), ..self }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Appends the log to a file.
    pub(crate) fn log(mut self, path: &Path) -> Self {
        self.log = Some(path.to_owned());
        self
    }

    /// Starts it with these words in front of its command.
    pub(crate) fn prefix(self, words: impl IntoIterator<Item = OsString>) -> Self {
        Self { prefix: words.into_iter().collect(), ..self }
    }

    /// Writes `talaria.toml`.
    pub(crate) fn config(self, toml: &str) -> Self {
        std::fs::write(self.folder.join("talaria.toml"), toml).unwrap();
        self
    }

    /// Starts the bridge and waits for its banner.
    pub(crate) fn up(self) -> Bridge {
        keep_off_the_default_port(self.folder);
        if self.env.iter().any(|(name, _)| name == "WORKSPACE_ID") {
            set_unless_configured(self.folder, "[tools]");
        }
        let log = self.log.map_or_else(Stdio::piped, |path| {
            std::fs::File::options().create(true).append(true).open(path).unwrap().into()
        });
        let mut words = self.prefix.into_iter().chain([env!("CARGO_BIN_EXE_talaria").into()]);
        let mut command = Command::new(words.next().expect("at least the binary"));
        command.args(words);
        let mut child = prepared(command, self.folder)
            .args(["serve", "--listen", &self.listen, "--output", "json"])
            .args(&self.args)
            .envs(self.env)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the binary runs");
        let mut said = child.stderr.take().map(|mut stderr| {
            std::thread::spawn(move || {
                let mut said = Vec::new();
                let _ = stderr.read_to_end(&mut said);
                String::from_utf8_lossy(&said).into_owned()
            })
        });
        // The banner is one JSON document that spans several lines.
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut text = String::new();
        let banner = loop {
            let Some(Ok(line)) = lines.next() else {
                let said = said.take().map(|said| said.join().expect("it only reads")).unwrap_or_default();
                panic!("talaria ended before it was ready: {text}{said}");
            };
            text.push_str(&line);
            if let Ok(banner) = serde_json::from_str(&text) {
                break banner;
            }
        };
        Bridge { child, said, banner }
    }
}

/// Lets the system choose the port of the admin server unless the test configures it: the default port may be in use on
/// a developer's machine.
pub(crate) fn keep_off_the_default_port(folder: &Path) {
    set_unless_configured(folder, "[admin]");
}

/// Lets the system choose the port of a section.
fn set_unless_configured(folder: &Path, section: &str) {
    let path = folder.join("talaria.toml");
    let config = std::fs::read_to_string(&path).unwrap_or_default();
    if !config.contains(section) {
        std::fs::write(path, format!("{config}\n{section}\nlisten = \"127.0.0.1:0\"\n")).unwrap();
    }
}

// === impl Bridge ===

impl Bridge {
    pub(crate) fn url(&self) -> &str {
        self.banner["url"].as_str().expect("a URL")
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let killed = Command::new("kill").arg(self.child.id().to_string()).status().expect("kill runs");
        assert!(killed.success());
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end. Returns the exit code and the log, which is empty if it went to a file.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let said = self.said.take().map(|said| said.join().expect("it only reads")).unwrap_or_default();
        (code, said)
    }

    /// Sends a raw HTTP request.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        request(self.url(), method, path, headers, body).await
    }

    /// Makes a raw JSON-RPC call of 1.0 and returns the whole response, error or not.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Value {
        call(self.url(), method, params, &[("a2a-version", "1.0")]).await
    }

    /// Makes a raw JSON-RPC call of 0.3, without a version header.
    pub(crate) async fn call_v03(&self, method: &str, params: Value) -> Value {
        call(self.url(), method, params, &[]).await
    }

    /// An A2A client of this bridge, for 1.0.
    pub(crate) fn client(&self) -> Client {
        client(self.url(), Protocol::V1_0)
    }

    /// Sends a message and returns the text of the answer; of a failed task, the reason.
    pub(crate) async fn say(&self, text: &str) -> String {
        self.send(Message::new(text), Delivery::Whole).await.to_string()
    }

    /// Sends a message and returns the answer.
    pub(crate) async fn send(&self, message: Message, delivery: Delivery) -> talaria_client::Answer {
        let client = self.client();
        soon("the bridge answers", client.send(&message, delivery)).await.unwrap()
    }

    /// Sends a message without waiting for the turn. Returns the task's id.
    pub(crate) async fn start_turn(&self, text: &str) -> String {
        self.send(Message::new(text), Delivery::Detached).await.status.task.expect("a task")
    }

    /// Returns a task.
    pub(crate) async fn task(&self, id: &str) -> Value {
        let client = self.client();
        soon("the bridge answers", client.get_task(id)).await.unwrap()
    }

    /// Waits until a task is in a state, like `TASK_STATE_COMPLETED`.
    pub(crate) async fn in_state(&self, id: &str, state: &str) -> Value {
        self.until(id, &format!("is {state}"), |task| task["status"]["state"] == state).await
    }

    /// Waits until a task is neither submitted nor working.
    pub(crate) async fn settled(&self, id: &str) -> Value {
        let under_way = ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"];
        let settled = |task: &Value| {
            let state = task["status"]["state"].as_str().unwrap_or_else(|| panic!("{task}"));
            !under_way.contains(&state)
        };
        self.until(id, "settles", settled).await
    }

    /// Waits until a task is as the test wants it.
    pub(crate) async fn until(&self, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        soon(&format!("task {id} {what}"), async {
            loop {
                let task = self.task(id).await;
                if wanted(&task) {
                    return task;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of the bridge at an address, without its card.
pub(crate) fn client(url: &str, protocol: Protocol) -> Client {
    agent(url, None).direct(protocol)
}

/// A client for 1.0 that sends a token.
pub(crate) fn client_with_token(url: &str, token: &str) -> Client {
    agent(url, Some(token)).direct(Protocol::V1_0)
}

fn agent(url: &str, token: Option<&str>) -> Agent {
    let token = token.map(|token| token.to_owned().into());
    let options = AgentOptions { url: url.into(), token, timeout: Duration::from_secs(600) };
    Agent::new(options).expect("an address")
}

/// The parameters of a raw `SendMessage`, with a new message id.
pub(crate) fn message(text: &str) -> Value {
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let id = format!("m{}-{}", std::process::id(), SENT.fetch_add(1, Ordering::Relaxed));
    json!({ "message": { "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

/// Makes a raw JSON-RPC call and returns the whole response.
pub(crate) async fn call(url: &str, method: &str, params: Value, headers: &[(&str, &str)]) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
    let headers: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
    let response = request(url, "POST", "/", &headers, &body).await;
    let answer: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(answer["id"], 7, "{answer}");
    answer
}

/// Sends a raw HTTP request.
pub(crate) async fn request(
    url: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    try_request(url, method, path, headers, body).await.unwrap()
}

/// Sends a raw HTTP request to a bridge that may be killed meanwhile.
pub(crate) async fn try_request(
    url: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<Response, String> {
    let access = Access { patterns: vec![format!("* {url}/*").parse().unwrap()], ..Access::default() };
    let request = Request {
        method: method.into(),
        url: format!("{url}{path}"),
        headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        body: body.to_owned().into(),
        ..Request::default()
    };
    let answer = soon("the bridge answers", Egress::new(Config::default()).fetch(&access, request)).await;
    answer.map_err(|error| error.to_string())
}

/// Sends a request to the admin server. Returns the status and the body, parsed if it is JSON.
pub(crate) async fn admin(bridge: &Bridge, method: &str, path: &str) -> (u16, Value) {
    let url = bridge.banner["admin"].as_str().expect("an address");
    let response = request(url, method, path, &[], "").await;
    let text = || Value::from(String::from_utf8_lossy(&response.body));
    (response.status, serde_json::from_slice(&response.body).unwrap_or_else(|_| text()))
}
