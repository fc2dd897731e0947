//! A bridge that a test started, and a client for it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use talaria_egress::{Access, Config, Egress, Request, Response};
use talaria_fakes::soon;

/// A running `talaria serve`. Killed when dropped.
pub(crate) struct Bridge {
    child: Child,
    /// What it printed when it was ready.
    pub(crate) banner: Value,
}

/// How a test starts a bridge. The working directory is empty, the environment is that of the test without ours.
pub(crate) struct Start<'a> {
    folder: &'a Path,
    listen: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    log: Option<PathBuf>,
}

/// The variables that a developer's shell may hold.
const OURS: [&str; 23] = [
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_talaria"));
    command.current_dir(folder).stdin(Stdio::null());
    for name in OURS {
        command.env_remove(name);
    }
    // One cache for all tests: compiling is not what they are about.
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
        Self { folder, listen: "127.0.0.1:0".into(), args: Vec::new(), env: Vec::new(), log: None }
    }

    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.into());
        self
    }

    /// The address of a bridge that is gone, for another in its place.
    pub(crate) fn in_place_of(self, url: &str) -> Self {
        Self { listen: url.trim_start_matches("http://").into(), ..self }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Appends what it logs to a file. A pipe that nobody reads gets full in a long test.
    pub(crate) fn log(mut self, path: &Path) -> Self {
        self.log = Some(path.to_owned());
        self
    }

    /// Writes `talaria.toml`.
    pub(crate) fn config(self, toml: &str) -> Self {
        std::fs::write(self.folder.join("talaria.toml"), toml).unwrap();
        self
    }

    /// Starts it and waits until it says what is where.
    pub(crate) fn up(self) -> Bridge {
        keep_off_the_default_port(self.folder);
        let log = self.log.map_or_else(Stdio::piped, |path| {
            std::fs::File::options().create(true).append(true).open(path).unwrap().into()
        });
        let mut child = talaria(self.folder)
            .args(["serve", "--listen", &self.listen, "--output", "json"])
            .args(&self.args)
            .envs(self.env)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the binary runs");
        // The banner is one JSON document over several lines.
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut text = String::new();
        let banner = loop {
            let Some(Ok(line)) = lines.next() else {
                let mut said = String::new();
                if let Some(mut stderr) = child.stderr.take() {
                    let _ = stderr.read_to_string(&mut said);
                }
                panic!("it ended before it was ready: {text}{said}");
            };
            text.push_str(&line);
            if let Ok(banner) = serde_json::from_str(&text) {
                break banner;
            }
        };
        Bridge { child, banner }
    }
}

/// Lets the system choose the port of the operator's server, unless the test says something about it: the default one is
/// the developer's.
pub(crate) fn keep_off_the_default_port(folder: &Path) {
    let path = folder.join("talaria.toml");
    let config = std::fs::read_to_string(&path).unwrap_or_default();
    if !config.contains("[admin]") {
        std::fs::write(path, format!("{config}\n[admin]\nlisten = \"127.0.0.1:0\"\n")).unwrap();
    }
}

// === impl Bridge ===

impl Bridge {
    pub(crate) fn url(&self) -> &str {
        self.banner["url"].as_str().expect("a URL")
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop.
    pub(crate) fn terminate(&self) {
        let killed = Command::new("kill").arg(self.child.id().to_string()).status().expect("kill runs");
        assert!(killed.success());
    }

    /// SIGKILL: it ends where it stands.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; its exit code, and everything that it logged, unless that went to a file.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut said).unwrap();
        }
        (self.child.wait().unwrap().code(), said)
    }

    /// A request as it is.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        request(self.url(), method, path, headers, body).await
    }

    /// A JSON-RPC call of 1.0.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Value {
        call(self.url(), method, params, &[("a2a-version", "1.0")]).await
    }

    /// A JSON-RPC call of 0.3.
    pub(crate) async fn call_v03(&self, method: &str, params: Value) -> Value {
        call(self.url(), method, params, &[]).await
    }

    /// A message of 1.0 and the text of the answer.
    pub(crate) async fn say(&self, text: &str) -> String {
        let answer = self.call("SendMessage", message(text)).await;
        let result = &answer["result"];
        // A failure is a task that says why.
        let failed = &result["task"]["status"]["message"]["parts"][0]["text"];
        let said = result["message"]["parts"][0]["text"].as_str().or(failed.as_str());
        said.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The parameters of a `SendMessage`, with a message id of its own.
pub(crate) fn message(text: &str) -> Value {
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let id = format!("m{}-{}", std::process::id(), SENT.fetch_add(1, Ordering::Relaxed));
    json!({ "message": { "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

pub(crate) async fn call(url: &str, method: &str, params: Value, headers: &[(&str, &str)]) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
    let headers: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
    let response = request(url, "POST", "/", &headers, &body).await;
    let answer: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(answer["id"], 7, "{answer}");
    answer
}

pub(crate) async fn request(
    url: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    try_request(url, method, path, headers, body).await.unwrap()
}

/// A request to a bridge that may be killed meanwhile.
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

/// A request to the operator's server: its status and its body, as JSON where it is JSON.
pub(crate) async fn admin(bridge: &Bridge, method: &str, path: &str) -> (u16, Value) {
    let url = bridge.banner["admin"].as_str().expect("an address");
    let response = request(url, method, path, &[], "").await;
    let text = || Value::from(String::from_utf8_lossy(&response.body));
    (response.status, serde_json::from_slice(&response.body).unwrap_or_else(|_| text()))
}
