//! The real `hermes gateway run`, as a child process on loopback.
//!
//! It has a fresh `HERMES_HOME`, an empty environment, ports of its own, and a model provider that the tests script. It
//! does not outlive the test: a shell in between kills it as soon as the pipe to the test is closed, so that a killed
//! test leaves nothing behind either.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::json;
use talaria_egress::{Access, Config, Egress, Request, Response};
use talaria_fakes::{PROVIDER_KEY, free_port};

/// The API server's key. The server rejects short keys and placeholders.
pub(crate) const KEY: &str = "a-long-key-of-the-tests-7291";
/// The secret that the plugin and its callers share.
pub(crate) const SECRET: &str = "a-shared-secret-of-the-tests-5313";
/// How long a start may take: 4 s on an idle machine, many times that while something else is compiled.
const START: Duration = Duration::from_secs(120);
/// The number of log lines that a failed test prints.
const TAIL: usize = 60;
/// Runs the arguments as a command, kills it when standard input ends, and ends with it.
const SUPERVISE: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
pid=$!
{ read -r _ <&3; kill -KILL "$pid"; } &
wait "$pid"
"#;

/// The configuration in which gateways of tests differ.
#[derive(Clone)]
pub(crate) struct Options {
    /// The number of concurrent runs over the API; 0 for no limit.
    pub(crate) runs: usize,
    /// How long an approval may take.
    pub(crate) approval_seconds: u64,
    /// The callback URL for chats of which the plugin has got no message since its start.
    pub(crate) callback: String,
}

/// A gateway that a test started.
pub(crate) struct Gateway {
    home: tempfile::TempDir,
    api: u16,
    plugin: u16,
    process: Option<Child>,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self { runs: 0, approval_seconds: 60, callback: String::new() }
    }
}

// === impl Gateway ===

impl Gateway {
    /// Starts a gateway and waits until it has answered a turn, because the first turn imports many modules.
    pub(crate) async fn start(provider: &str, options: Options) -> Self {
        let (api, plugin) = (free_port(), free_port());
        let home = home();
        fs::write(home.path().join("config.yaml"), config(provider, plugin, &options)).unwrap();
        let mut gateway = Self { home, api, plugin, process: None };
        assert!(gateway.up().await, "the gateway ended:\n{}", gateway.log());
        gateway.warm_up().await;
        gateway
    }

    /// `http://127.0.0.1:PORT/v1`.
    pub(crate) fn api(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.api)
    }

    /// `http://127.0.0.1:PORT/a2a/inbound`.
    pub(crate) fn inbound(&self) -> String {
        format!("http://127.0.0.1:{}/a2a/inbound", self.plugin)
    }

    /// A folder for a test's files, deleted with the gateway.
    pub(crate) fn scratch(&self) -> PathBuf {
        tempfile::tempdir_in(self.home.path()).unwrap().keep()
    }

    /// Sends SIGKILL, and returns when the process is gone.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.stdin.take());
            process.wait().unwrap();
        }
    }

    /// Starts it again with the same home and the same ports.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        assert!(self.up().await, "the gateway did not come back:\n{}", self.log());
    }

    /// The end of its logs.
    pub(crate) fn log(&self) -> String {
        let mut lines = Vec::new();
        for file in ["output.log", "logs/gateway.log", "logs/errors.log"] {
            let text = fs::read(self.home.path().join(file)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let skipped = text.lines().count().saturating_sub(TAIL);
            lines.push(format!("--- {file}"));
            lines.extend(text.lines().skip(skipped).map(str::to_owned));
        }
        lines.join("\n")
    }

    /// Posts to its plugin with this secret.
    pub(crate) async fn post_inbound(&self, secret: &str, body: &str) -> Response {
        fetch("POST", &self.inbound(), &[("x-molecule-a2a-secret", secret)], body, START).await.unwrap()
    }

    /// Starts the process and waits for both of its listeners; returns false if the process ended instead.
    async fn up(&mut self) -> bool {
        let output = File::options().create(true).append(true).open(self.home.path().join("output.log"));
        let output = output.unwrap();
        let mut process = Command::new("sh")
            .args(["-c", SUPERVISE, "sh"])
            .arg(hermes())
            .args(["gateway", "run"])
            .current_dir(self.home.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .env("HERMES_HOME", self.home.path())
            .env("LANG", "C.UTF-8")
            .env("API_SERVER_ENABLED", "true")
            .env("API_SERVER_KEY", KEY)
            .env("API_SERVER_HOST", "127.0.0.1")
            .env("API_SERVER_PORT", self.api.to_string())
            .stdin(Stdio::piped())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .expect("sh runs");
        let healths =
            [format!("{}/health", self.api()), format!("http://127.0.0.1:{}/a2a/health", self.plugin)];
        let start = Instant::now();
        loop {
            if process.try_wait().unwrap().is_some() {
                return false;
            }
            let mut healthy = true;
            for url in &healths {
                let answer = fetch("GET", url, &[], "", Duration::from_secs(5)).await;
                healthy &= answer.is_ok_and(|answer| answer.status == 200);
            }
            if healthy {
                break;
            }
            assert!(start.elapsed() < START, "the gateway is not up after {START:?}:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.process = Some(process);
        true
    }

    async fn warm_up(&self) {
        let body = json!({ "messages": [{ "role": "user", "content": "hello" }] }).to_string();
        let (url, key) = (format!("{}/chat/completions", self.api()), format!("Bearer {KEY}"));
        let answer = fetch("POST", &url, &[("authorization", &key)], &body, START).await.unwrap();
        assert_eq!(answer.status, 200, "{}\n{}", String::from_utf8_lossy(&answer.body), self.log());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The folder for everything that these tests install. `cargo xtask` uses the same.
fn folder() -> PathBuf {
    // `target/PROFILE/talaria`
    let target = Path::new(env!("CARGO_BIN_EXE_talaria")).ancestors().nth(2).expect("a target folder");
    target.join("hermes")
}

/// A home for a gateway. Its name has our process id, by which the next run recognises a leftover.
fn home() -> tempfile::TempDir {
    hermes();
    let prefix = format!("home-{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir_in(folder()).unwrap()
}

/// The program; installs it first if it is missing.
pub(crate) fn hermes() -> &'static Path {
    static HERMES: OnceLock<PathBuf> = OnceLock::new();
    HERMES.get_or_init(|| {
        let prepared = Command::new("python3")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hermes/prepare.py"))
            .arg(folder())
            .stderr(Stdio::inherit())
            .output()
            .expect("python3 runs; install Python 3.11 to 3.13");
        assert!(prepared.status.success(), "tests/hermes/prepare.py failed");
        let path = String::from_utf8(prepared.stdout).unwrap();
        PathBuf::from(path.trim_end().lines().next_back().expect("it prints a path"))
    })
}

/// `config.yaml`. JSON is YAML.
fn config(provider: &str, plugin: u16, options: &Options) -> String {
    json!({
        "model": {
            "default": "fake-model", "provider": "custom", "base_url": provider, "api_key": PROVIDER_KEY,
            "api_mode": "chat_completions", "context_length": 131_072,
            // The gateway leaves out images unless it knows that the model takes them.
            "supports_vision": true,
        },
        "security": { "allow_lazy_installs": false },
        "approvals": { "mode": "manual", "timeout": options.approval_seconds },
        "compression": { "enabled": false },
        // Otherwise the gateway asks the model for a title, with the user's text in the question.
        "auxiliary": { "title_generation": { "enabled": false } },
        "gateway": { "api_server": { "max_concurrent_runs": options.runs } },
        "plugins": { "enabled": ["molecule_a2a"] },
        "platforms": { "molecule-a2a": {
            "enabled": true,
            // Without one, every new chat begins with a notice that it is missing.
            "home_channel": { "platform": "molecule-a2a", "chat_id": "home", "name": "Home" },
            "extra": {
                "host": "127.0.0.1", "port": plugin, "shared_secret": SECRET, "callback_url": options.callback,
            },
        } },
    })
    .to_string()
}

async fn fetch(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &str,
    timeout: Duration,
) -> Result<Response, talaria_egress::Error> {
    let access = Access { patterns: vec![format!("{method} {url}").parse().unwrap()], ..Access::default() };
    let request = Request {
        method: method.into(),
        url: url.into(),
        headers: [("content-type", "application/json")]
            .iter()
            .chain(headers)
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect(),
        body: body.to_owned().into(),
        timeout: Some(timeout),
        ..Request::default()
    };
    Egress::new(Config::default()).fetch(&access, request).await
}
