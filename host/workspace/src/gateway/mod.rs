//! The gateway behind the bridge, supervised: prepared, started, awaited, restarted, stopped.
//!
//! It replaces the shell script that started both. The order is that script's: files first, then the process, then its
//! health, which is awaited for [`Config::wait`] with a line of progress now and then. Unlike the script, a gateway that
//! does not come up ends nothing: its last words and their likely meaning are told, the bridge serves what it can, and
//! the gateway is started again after a pause that doubles up to a minute. One that ran well for a while begins with a
//! short pause again.
//!
//! [`Supervisor::up`] returns when it is healthy or given up on for now; [`Supervisor::run`] goes on from there until it
//! is told to stop, and returns when the process is gone.

mod causes;
mod home;
mod process;

use std::sync::Arc;
use std::time::Duration;

use talaria_egress::{Access, Bounds, Egress, HostPattern, Pattern, Request};
use talaria_observe::scrub;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use home::{FORWARDED, Plugin, Wanted, config_in, key_in, plugin_trouble, variable_in};
pub use process::{Launch, User};

use crate::prompt::Assembly;
use process::Process;

/// How many of its last lines are told.
const LAST_WORDS: usize = 80;

/// How often there is a line of progress.
const PROGRESS: Duration = Duration::from_secs(5);

/// How often its health is asked for while it starts.
const ASK: Duration = Duration::from_millis(250);

/// The first pause before it is started again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How long it must run to begin with the first pause again.
const WELL: Duration = Duration::from_secs(60);

/// How often the workspace's model and prompt are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// How long telling it a new model may take: a Python that starts.
const TELL: Duration = Duration::from_secs(60);

/// What is supervised.
#[derive(Debug, Clone)]
pub struct Config {
    /// How it is started.
    pub launch: Launch,
    /// What its files are to say.
    pub wanted: Wanted,
    /// How long its health is awaited.
    pub wait: Duration,
}

/// Keeps a gateway up.
pub struct Supervisor {
    config: Config,
    /// The workspace whose gateway it is.
    assembly: Option<Arc<Assembly>>,
    egress: Egress,
    process: Option<Process>,
    pause: Duration,
    /// Hears of progress; for people.
    say: fn(String),
}

// === impl Supervisor ===

impl Supervisor {
    /// For this gateway. `assembly` says which model and which prompt the workspace wants, where there is one; `say`
    /// prints a line for people.
    pub fn new(config: Config, assembly: Option<Arc<Assembly>>, say: fn(String)) -> Self {
        let egress = Egress::new(talaria_egress::Config::default());
        Self { config, assembly, egress, process: None, pause: PAUSES.0, say }
    }

    /// Prepares its home, starts it, and waits for its health. Whether it is healthy.
    pub async fn up(&mut self) -> bool {
        let whose = self.config.launch.whose_home();
        for trouble in home::prepare(&self.config.launch.home, &self.config.wanted, whose) {
            warn!(%trouble, "the gateway's home is not as it should be");
        }
        give_prompt(&self.config, self.assembly.as_deref());
        if let Some(id) = self.config.launch.end_leftover().await {
            info!(id, "a gateway that an earlier bridge left behind was ended");
        }
        match self.config.launch.start() {
            Ok(process) => {
                info!(
                    id = process.id(),
                    command = self.config.launch.command.join(" "),
                    "the gateway was started"
                );
                self.process = Some(process);
            }
            Err(error) => {
                let program = self.config.launch.command.first().map_or("", String::as_str);
                let fix = match error.kind() {
                    std::io::ErrorKind::NotFound => "correct `gateway.command` and PATH",
                    _ => "correct `gateway.command`, `gateway.user` and who owns `gateway.home`",
                };
                warn!(%error, program, fix, "the gateway cannot be started");
                (self.say)(format!("gateway: {program} cannot be started: {error}"));
                return false;
            }
        }
        self.healthy().await
    }

    /// Keeps it up until `stop`, then stops it.
    pub async fn run(mut self, stop: CancellationToken) {
        while stop.run_until_cancelled(self.keep_up()).await.is_some() {}
        if let Some(process) = self.process.take() {
            info!(id = process.id(), "the gateway is being stopped");
            process.stop().await;
        }
    }

    /// One life of the process: until it ends and was started again.
    async fn keep_up(&mut self) {
        let began = Instant::now();
        if let Some(process) = &mut self.process {
            let (config, assembly) = (&mut self.config, self.assembly.as_deref());
            let mut looks = interval(LOOK);
            let ended = loop {
                tokio::select! {
                    ended = process.end() => break ended,
                    _ = looks.tick() => {
                        give_prompt(config, assembly);
                        sync_model(config, assembly).await;
                    }
                }
            };
            self.process = None;
            self.last_words(&format!("it ended: {ended}"));
        }
        if began.elapsed() >= WELL {
            self.pause = PAUSES.0;
        }
        let pause = self.pause;
        self.pause = (self.pause * 2).min(PAUSES.1);
        info!(?pause, "the gateway is started again after a pause");
        sleep(pause).await;
        if self.up().await {
            info!("the gateway is healthy again");
        }
    }

    async fn healthy(&mut self) -> bool {
        let url = format!("http://127.0.0.1:{}/health", self.config.wanted.port);
        let wait = self.config.wait;
        let began = Instant::now();
        let mut told = began;
        loop {
            if let Some(ended) = self.process.as_mut().and_then(Process::ended) {
                self.process = None;
                self.last_words(&format!("it ended while it started: {ended}"));
                return false;
            }
            if is_healthy(&self.egress, &url).await {
                let took = began.elapsed();
                (self.say)(format!("gateway: healthy after {:.1} s", took.as_secs_f64()));
                return true;
            }
            if began.elapsed() >= wait {
                self.last_words(&format!("{url} did not answer within {} s", wait.as_secs()));
                return false;
            }
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                let (so_far, wait) = (began.elapsed().as_secs(), wait.as_secs());
                (self.say)(format!("gateway: waiting for {url} ({so_far} s of at most {wait} s)"));
            }
            sleep(ASK).await;
        }
    }

    /// Tells why it is not up, in its own words and in ours.
    fn last_words(&self, what: &str) {
        let tail = process::tail(&self.config.launch.log, LAST_WORDS);
        let words = scrub(&tail);
        let cause = causes::likely(&format!("{tail}\n{what}"));
        let (log, cause) =
            (self.config.launch.log.display(), cause.as_deref().unwrap_or("unknown; its log may tell"));
        (self.say)(format!(
            "gateway: {what}\ngateway: the end of {log}:\n{words}\ngateway: likely cause: {cause}"
        ));
        warn!(what, cause, log = %log, "the gateway is not up");
    }
}

/// Why a gateway is not up, as far as its log tells: the likely cause with its fix.
pub fn likely_cause(log: &std::path::Path) -> Option<String> {
    causes::likely(&process::tail(log, LAST_WORDS))
}

/// Whether a gateway answers for itself.
pub async fn is_healthy(egress: &Egress, url: &str) -> bool {
    let Ok(pattern) = format!("GET {url}").parse::<Pattern>() else { return false };
    let bounds = Bounds { timeout: Duration::from_secs(2), response_body: 64 << 10, ..Bounds::default() };
    let private = vec![HostPattern::from(&pattern)];
    let (executor, patterns) = ("gateway".into(), vec![pattern]);
    let access = Access { executor, patterns, private, bounds, ..Access::default() };
    let request = Request { method: "GET".into(), url: url.into(), ..Request::default() };
    egress.fetch(&access, request).await.is_ok_and(|answer| answer.status == 200)
}

/// Writes the workspace's prompt down where messages do not carry it, which is the plugin's way.
fn give_prompt(config: &Config, assembly: Option<&Assembly>) {
    let (Some(assembly), Some(_)) = (assembly, &config.wanted.plugin) else { return };
    let Some(prompt) = assembly.current().workspace.system_prompt.clone() else { return };
    let written = home::write_soul(&config.launch.home, &prompt, config.launch.whose_home());
    if let Err(trouble) = written {
        warn!(%trouble, "the gateway does not get the workspace's prompt");
    } else if let Err(error) = config.launch.give_home() {
        warn!(%error, "the gateway's home could not be given to its user");
    }
}

/// Tells the gateway the workspace's model when that changed, with the words of its own command line.
async fn sync_model(config: &mut Config, assembly: Option<&Assembly>) {
    let Some(assembly) = assembly else { return };
    let wanted = assembly.current().workspace.model.clone();
    // Where nobody chose one, the gateway's own stays.
    let Some(model) = wanted.filter(|model| config.wanted.model.as_ref() != Some(model)) else { return };
    config.wanted.model = Some(model.clone());
    let launch = &config.launch;
    let Some(program) = launch.command.first() else { return };
    let words = [program.as_str(), "config", "set", "model.default", &model].map(str::to_owned);
    let told = async {
        let mut child = launch
            .command(&words)?
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()?;
        let ended = timeout(TELL, async {
            loop {
                if let Some(status) = child.try_wait()? {
                    return Ok(status);
                }
                sleep(ASK).await;
            }
        });
        match ended.await {
            Ok(status) => status,
            Err(_) => {
                child.kill()?;
                child.wait()
            }
        }
    };
    match told.await {
        Ok(status) if status.success() => info!(model, "the gateway was told the workspace's model"),
        Ok(status) => warn!(model, %status, "the gateway did not take the workspace's model"),
        Err(error) => warn!(model, %error, "the gateway was not told the workspace's model"),
    }
}
