//! The supervisor of the hermes-agent gateway: prepares it, starts it, waits for it, restarts it, stops it.
//!
//! It replaces the shell script that started both processes, in the same order: files first, then the process, then its
//! health, which is awaited for [`Config::wait`] with a progress line now and then. Unlike the script it ends nothing when
//! the gateway does not come up: it prints the end of the gateway's log with the likely cause, Talaria serves what it can,
//! and the gateway is restarted after a delay that doubles up to a minute. After a minute of good health the delay starts
//! over.
//!
//! [`Supervisor::up`] returns when the gateway is healthy or did not become so in time; [`Supervisor::run`] carries on from
//! there until it is told to stop, and returns when the process is gone.

mod diagnose;
mod environment;
mod files;
mod home;
mod place;
mod process;
mod section;
mod user;

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use talaria_backoff::Backoff;
use talaria_egress::{Bounds, Egress, Origin, Request};
use talaria_redact::Redactor;
use talaria_turns::Workspace;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use environment::{FORWARDED, HostSecrets, Passed};
pub use files::Home;
pub use home::{Plugin, Settings, ToolServer};
pub use process::Launch;
pub use section::{KEY, Prepared, Section};
pub use user::User;

pub(crate) use home::{plugin_problem, tools_in};
use process::Process;
pub(crate) use section::{SHORTEST_KEY, home};

/// The number of lines of the gateway's log that are shown after a failure.
const LOG_LINES: usize = 80;

/// The interval of progress lines.
const PROGRESS: Duration = Duration::from_secs(5);

/// The interval of health checks while the gateway starts.
const HEALTH_CHECK: Duration = Duration::from_millis(250);

/// Delays before a restart.
const RESTARTS: Backoff = Backoff::from_first(Duration::from_secs(1)).up_to(Duration::from_secs(60));

/// How long the gateway must have run for the delays to start over.
const STABLE: Duration = Duration::from_secs(60);

/// The interval at which the workspace's model and prompt are compared with the gateway's.
const SYNC: Duration = Duration::from_secs(5);

/// The time that setting the gateway's model may take: the start of a Python interpreter.
const SET_MODEL: Duration = Duration::from_secs(60);

/// What is supervised.
#[derive(Debug, Clone)]
pub struct Config {
    /// How the gateway is started.
    pub launch: Launch,
    /// What its files must say.
    pub settings: Settings,
    /// How long to wait for its health.
    pub wait: Duration,
}

/// Returns the workspace as it is now; the gateway gets its model and its prompt.
pub type CurrentWorkspace = Arc<dyn Fn() -> Arc<Workspace> + Send + Sync>;

/// Keeps a gateway running.
pub struct Supervisor {
    config: Config,
    workspace: Option<CurrentWorkspace>,
    egress: Egress,
    process: Option<Process>,
    restarts: Backoff,
    /// Prints a line for the operator.
    print: fn(String),
}

// === impl Config ===

impl Config {
    /// Writes the gateway's files without starting it. Returns what could not be written.
    pub fn prepare(&self) -> Vec<String> {
        let problems = home::prepare(&self.launch.files(), &self.settings);
        problems.iter().map(ToString::to_string).collect()
    }
}

// === impl Supervisor ===

impl Supervisor {
    /// A supervisor of this gateway. `workspace` says which model and prompt the gateway must use, in a workspace; `print`
    /// shows a line to the operator.
    pub fn new(config: Config, workspace: Option<CurrentWorkspace>, print: fn(String)) -> Self {
        let egress = Egress::new(talaria_egress::Config::default());
        Self { config, workspace, egress, process: None, restarts: RESTARTS, print }
    }

    /// Prepares the home, starts the process and waits for its health. Returns whether it is healthy.
    pub async fn up(&mut self) -> bool {
        for problem in home::prepare(&self.config.launch.files(), &self.config.settings) {
            warn!(%problem, "gateway home not prepared");
        }
        write_prompt(&self.config, self.workspace.as_ref());
        if let Some(id) = self.config.launch.end_leftover().await {
            info!(id, "ended a gateway that an earlier process left behind");
        }
        match self.config.launch.start() {
            Ok(process) => {
                info!(id = process.id(), command = self.config.launch.command.join(" "), "gateway started");
                self.process = Some(process);
            }
            Err(error) => {
                let program = self.config.launch.command.first().map_or("", String::as_str);
                let fix = match error.kind() {
                    std::io::ErrorKind::NotFound => "correct `gateway.command` and PATH",
                    _ => "correct `gateway.command`, `gateway.user` and the owner of `gateway.home`",
                };
                warn!(%error, program, fix, "gateway not started");
                (self.print)(format!("gateway: {program} cannot be started: {error}"));
                return false;
            }
        }
        self.wait_until_healthy().await
    }

    /// Keeps the gateway running until `stop`, then stops it.
    pub async fn run(mut self, stop: CancellationToken) {
        while stop.run_until_cancelled(self.watch_and_restart()).await.is_some() {}
        if let Some(process) = self.process.take() {
            info!(id = process.id(), "stopping the gateway");
            process.stop().await;
        }
    }

    /// Waits until the process ends, and restarts it.
    async fn watch_and_restart(&mut self) {
        let began = Instant::now();
        if let Some(process) = &mut self.process {
            let (config, workspace) = (&mut self.config, self.workspace.as_ref());
            let mut syncs = interval(SYNC);
            let status = loop {
                tokio::select! {
                    status = process.wait() => break status,
                    _ = syncs.tick() => {
                        write_prompt(config, workspace);
                        sync_model(config, workspace).await;
                    }
                }
            };
            self.process = None;
            self.explain(&format!("it ended: {status}"));
        }
        if began.elapsed() >= STABLE {
            self.restarts.reset();
        }
        let delay = self.restarts.next_delay();
        info!(?delay, "restarting the gateway after a delay");
        sleep(delay).await;
        if self.up().await {
            info!("gateway is healthy again");
        }
    }

    async fn wait_until_healthy(&mut self) -> bool {
        let url = format!("http://127.0.0.1:{}/health", self.config.settings.port);
        let wait = self.config.wait;
        let began = Instant::now();
        let mut reported = began;
        loop {
            if is_healthy(&self.egress, &url).await {
                let took = began.elapsed();
                (self.print)(format!("gateway: healthy after {:.1} s", took.as_secs_f64()));
                return true;
            }
            if began.elapsed() >= wait {
                self.explain(&format!("{url} did not answer within {} s", wait.as_secs()));
                return false;
            }
            if reported.elapsed() >= PROGRESS {
                reported = Instant::now();
                let (so_far, wait) = (began.elapsed().as_secs(), wait.as_secs());
                (self.print)(format!("gateway: waiting for {url} ({so_far} s of at most {wait} s)"));
            }
            if let Some(status) = self.ends_within(HEALTH_CHECK).await {
                self.process = None;
                self.explain(&format!("it ended while it started: {status}"));
                return false;
            }
        }
    }

    /// How the process ended, if it did within this time.
    async fn ends_within(&mut self, time: Duration) -> Option<ExitStatus> {
        let Some(process) = &mut self.process else {
            sleep(time).await;
            return None;
        };
        timeout(time, process.wait()).await.ok()
    }

    /// Shows why the gateway is not up: the end of its log, and the likely cause.
    fn explain(&self, what: &str) {
        let tail = self.config.launch.files().tail(&self.config.launch.log, LOG_LINES);
        let shown = Redactor::process().all(&tail);
        let cause = diagnose::likely_cause(&format!("{tail}\n{what}"));
        let (log, cause) =
            (self.config.launch.log.display(), cause.as_deref().unwrap_or("unknown; see its log"));
        (self.print)(format!(
            "gateway: {what}\ngateway: the end of {log}:\n{shown}\ngateway: likely cause: {cause}"
        ));
        warn!(what, cause, log = %log, "gateway is not up");
    }
}

/// Why a gateway is not up, as far as its log shows: the likely cause with its fix.
pub(crate) fn likely_cause(home: &Home, log: &Path) -> Option<String> {
    diagnose::likely_cause(&home.tail(log, LOG_LINES))
}

/// Whether a gateway answers its health check.
pub async fn is_healthy(egress: &Egress, url: &str) -> bool {
    let Ok(origin) = url.parse::<Origin>() else { return false };
    let bounds = Bounds { timeout: Duration::from_secs(2), response_body: 64 << 10, ..Bounds::default() };
    let client = egress.origin_client("gateway", &origin).with_bounds(bounds);
    let request = Request { method: "GET".into(), url: url.into(), ..Request::default() };
    client.fetch(request).await.is_ok_and(|response| response.status == 200)
}

/// Writes the workspace's prompt into the gateway's home if the plugin is used, whose messages carry no prompt.
fn write_prompt(config: &Config, workspace: Option<&CurrentWorkspace>) {
    let (Some(workspace), Some(_)) = (workspace, &config.settings.plugin) else { return };
    let workspace = workspace();
    let Some(prompt) = &workspace.system_prompt else { return };
    if let Err(problem) = home::write_soul(&config.launch.files(), prompt) {
        warn!(%problem, "workspace prompt not written to the gateway's home");
    }
}

/// Sets the gateway's model with its own command line when the workspace's model changed.
async fn sync_model(config: &mut Config, workspace: Option<&CurrentWorkspace>) {
    let Some(workspace) = workspace else { return };
    // If the workspace names no model, the gateway keeps its own.
    let changed = workspace().model.clone().filter(|model| config.settings.model.as_ref() != Some(model));
    let Some(model) = changed else { return };
    config.settings.model = Some(model.clone());
    let launch = &config.launch;
    let Some(program) = launch.command.first() else { return };
    let words = [program.as_str(), "config", "set", "model.default", &model].map(str::to_owned);
    let set = async {
        let mut command = launch.command(&words)?;
        command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let status = timeout(SET_MODEL, command.status()).await;
        status.unwrap_or_else(|_| Err(std::io::Error::other("it took too long")))
    };
    match set.await {
        Ok(status) if status.success() => info!(model, "gateway's model set to the workspace's"),
        Ok(status) => warn!(model, %status, "gateway rejected the workspace's model"),
        Err(error) => warn!(model, %error, "gateway's model not set to the workspace's"),
    }
}
