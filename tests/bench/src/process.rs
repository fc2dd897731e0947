//! The measured processes.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use talaria_fakes::free_port;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::callback::Settings;
use crate::http1::Connection;
use crate::usage::{self, Switches};

/// Starts bridges and baselines.
pub(crate) struct Bridge {
    binary: PathBuf,
    /// The folder for configuration, compiled components and logs.
    home: TempDir,
}

/// A running server. Killed when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: Child,
    log: PathBuf,
}

/// How long a process may take to start. The first one compiles components.
const START: Duration = Duration::from_secs(30);
/// The server serves its card once everything is loaded.
const CARD: &str = "/.well-known/agent-card.json";
/// The pause between two attempts to connect.
const TRY: Duration = Duration::from_millis(1);
/// Two connections for each of a thousand turns, in this process and in the bridge, and some spare.
const OPEN_FILES: u64 = 4_096;
/// The variable that marks a process that was restarted with a higher limit.
const RAISED: &str = "TALARIA_BENCH_RAISED";

/// A command whose environment cannot influence the measurement.
pub(crate) fn program(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    let kept = ["PATH", "HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.env_clear().envs(kept).env(RAISED, "1");
    command
}

// === impl Bridge ===

impl Bridge {
    pub(crate) fn new(binary: PathBuf) -> Result<Self> {
        // Beside the binary, because the folder for temporary files may not be on disk.
        let beside = std::env::current_exe()?;
        let beside = beside.parent().context("no folder of this binary")?;
        let home = tempfile::Builder::new().prefix("talaria-bench-").tempdir_in(beside)?;
        Ok(Self { binary, home })
    }

    /// Starts a bridge with defaults for everything but the upstream and the folders. Tasks are kept in memory.
    pub(crate) fn start(&self, upstream: &str) -> Result<Server> {
        self.start_with(upstream, "memory:")
    }

    /// Starts a bridge that records every turn, and sends the spans to a collector.
    pub(crate) fn start_traced(&self, upstream: &str, collector: &str) -> Result<Server> {
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector), ("OTEL_TRACES_SAMPLER", "always_on")];
        self.start_configured_in(&variables, upstream, "memory:", "")
    }

    /// Starts a bridge that may use one core only, and so has one worker.
    pub(crate) fn start_on_one_core(&self, upstream: &str) -> Result<Server> {
        usage::on_one_core(|| self.start(upstream))
    }

    /// Starts a bridge whose callers may also send to the test executor `hostile`.
    pub(crate) fn start_attackable(&self, upstream: &str) -> Result<Server> {
        let folder = self.home.path().join("hostile");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("hostile.wasm"), talaria_fakes::guest("hostile"))?;
        let more = format!("[executors]\ndir = {folder:?}\ncaller_may_choose = true\n");
        self.start_configured(upstream, "memory:", &more)
    }

    /// Starts a bridge whose tasks are kept in a new file, which is the default.
    pub(crate) fn start_durable(&self, upstream: &str) -> Result<Server> {
        let folder = tempfile::Builder::new().prefix("tasks-").tempdir_in(&self.home)?.keep();
        self.start_with(upstream, &format!("sqlite:{}", folder.join("tasks.db").display()))
    }

    /// Starts a bridge with an executor `mine` from a folder. Returns the bridge and the address of its admin server, which
    /// swaps the executor for a caller with `token`.
    pub(crate) fn start_swappable(&self, upstream: &str, token: &str) -> Result<(Server, SocketAddr)> {
        let folder = self.home.path().join("executors");
        fs::create_dir_all(&folder)?;
        let component = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/dist/chat-completions.wasm");
        fs::copy(component, folder.join("mine.wasm"))?;
        let policy = format!("[settings]\nbase_url = {upstream:?}\n[grant]\negress = [\"* {upstream}/*\"]\n");
        fs::write(folder.join("mine.toml"), policy)?;
        let token_file = self.home.path().join("token");
        fs::write(&token_file, token)?;
        let admin = free_address();
        let more = format!(
            "[executors]\ndir = {folder:?}\ndefault = \"mine\"\n\n\
             [admin]\nlisten = \"{admin}\"\ntoken = {{ file = {token_file:?} }}\n"
        );
        Ok((self.start_configured(upstream, "memory:", &more)?, admin))
    }

    /// Starts a bridge on a store that is there. Returns the bridge and the address of its admin server.
    pub(crate) fn start_on(&self, upstream: &str, store: &Path) -> Result<(Server, SocketAddr)> {
        let admin = free_address();
        let more = format!("[limits]\ntasks = 200000\n\n[admin]\nlisten = \"{admin}\"\n");
        Ok((self.start_configured(upstream, &format!("sqlite:{}", store.display()), &more)?, admin))
    }

    fn start_with(&self, upstream: &str, store: &str) -> Result<Server> {
        self.start_configured(upstream, store, "")
    }

    fn start_configured(&self, upstream: &str, store: &str, more: &str) -> Result<Server> {
        self.start_configured_in(&[], upstream, store, more)
    }

    fn start_configured_in(
        &self,
        variables: &[(&str, &str)],
        upstream: &str,
        store: &str,
        more: &str,
    ) -> Result<Server> {
        let cache = self.home.path().join("cache");
        let text = format!(
            "[store]\nurl = {store:?}\n\n[engine]\ncache_dir = {cache:?}\n\n\
             [executor.chat-completions.settings]\nbase_url = {upstream:?}\n\n{more}"
        );
        self.start_in(variables, &text)
    }

    fn start_as(&self, text: &str) -> Result<Server> {
        self.start_in(&[], text)
    }

    fn start_in(&self, variables: &[(&str, &str)], text: &str) -> Result<Server> {
        let address = free_address();
        let config = self.home.path().join(format!("bridge-{}.toml", address.port()));
        fs::write(&config, text)?;
        let mut command = program(&self.binary);
        command.envs(variables.iter().copied());
        command.args(["serve", "--listen", &address.to_string(), "--config"]).arg(&config);
        Server::start(command, address, config.with_extension("log"))
    }

    /// Starts a bridge whose upstream is a plugin.
    pub(crate) fn start_plugin(&self, inbound: &str, settings: &Settings<'_>) -> Result<Server> {
        let Settings { more, executor } = settings;
        // The caller's sections may include `[engine]` too.
        let cache = format!("cache_dir = {:?}\n", self.home.path().join("cache"));
        let engine = match more.contains("[engine]\n") {
            true => more.replacen("[engine]\n", &format!("[engine]\n{cache}"), 1),
            false => format!("{more}[engine]\n{cache}"),
        };
        self.start_as(&format!(
            "[store]\nurl = \"memory:\"\n[executors]\ndefault = \"plugin-callback\"\n\
             [callback]\nlisten = \"127.0.0.1:0\"\n{engine}[executor.plugin-callback]\n{executor}\
             settings = {{ inbound_url = {inbound:?} }}\n"
        ))
    }

    /// Starts the baseline.
    pub(crate) fn start_baseline(&self, gateway: SocketAddr) -> Result<Server> {
        self.start_native("baseline", gateway)
    }

    /// Starts the baseline that is answered by callback.
    pub(crate) fn start_callback_baseline(&self, plugin: SocketAddr) -> Result<Server> {
        self.start_native("callback-baseline", plugin)
    }

    /// Starts a server of somebody else, whose command is made from the address that it listens on.
    pub(crate) fn start_peer(
        &self,
        name: &str,
        command: impl FnOnce(SocketAddr) -> Result<Command>,
    ) -> Result<Server> {
        let address = free_address();
        Server::start(command(address)?, address, self.home.path().join(format!("{name}.log")))
    }

    /// The folder for files that a peer reads.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    fn start_native(&self, which: &str, upstream: SocketAddr) -> Result<Server> {
        let address = free_address();
        let mut command = program(std::env::current_exe()?);
        command.args([which, &address.to_string(), &upstream.to_string()]);
        Server::start(command, address, self.home.path().join(format!("{which}.log")))
    }
}

// === impl Server ===

impl Server {
    fn start(mut command: Command, address: SocketAddr, log: PathBuf) -> Result<Self> {
        let said = fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        let child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Self { address, child, log })
    }

    /// Waits until the server answers.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        self.ready_within(START, CARD).await
    }

    /// The same, for a server that takes longer, or that has no card.
    pub(crate) async fn ready_within(&mut self, patience: Duration, path: &str) -> Result<()> {
        let give_up = Instant::now() + patience;
        while Instant::now() < give_up {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status}: {}", self.said());
            }
            if let Ok(mut connection) = Connection::open(self.address).await {
                return connection.get(path).await;
            }
            sleep(TRY).await;
        }
        bail!("it does not serve after {patience:?}: {}", self.said())
    }

    /// Resident memory, in KiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        usage::resident(self.child.id())
    }

    /// Proportional memory, in KiB: a page that is mapped many times counts once.
    pub(crate) fn proportional(&self) -> Result<f64> {
        usage::proportional(self.child.id())
    }

    /// The processor time of the process, kernel included.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        usage::cpu(self.child.id())
    }

    /// How often its threads gave a core up.
    pub(crate) fn switches(&self) -> Result<Switches> {
        usage::switches(self.child.id())
    }

    /// The last lines of its log.
    pub(crate) fn said(&self) -> String {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(10)).copied().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a free address on loopback.
fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

/// Restarts this process with a higher limit of open files if the limit is too low: without `unsafe`, only a shell can
/// raise it. The bridge inherits the limit.
pub(crate) fn raise_open_files() -> Result<()> {
    if std::env::var_os(RAISED).is_some() {
        return Ok(());
    }
    let limits = fs::read_to_string("/proc/self/limits")?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    if soft.and_then(|soft| soft.parse().ok()).is_none_or(|soft: u64| soft >= OPEN_FILES) {
        return Ok(());
    }
    let error = Command::new("sh")
        .args(["-c", &format!("ulimit -n {OPEN_FILES} && exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(RAISED, "1")
        .exec();
    Err(error).context("cannot start with more open files; raise the limit with `ulimit -n 4096`")
}
