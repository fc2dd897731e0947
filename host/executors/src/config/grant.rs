//! `[executor.NAME.grant]`: what an executor may do, as written and as it applies.
//!
//! Everything is off or small unless it is granted, and every number has a ceiling, so that no configuration lets one
//! executor starve the others. A built-in component is trusted: where its section grants no calls, it gets the calls in its
//! own needs, with its settings filled in, when it is loaded. The hosts of these calls may have private addresses, because
//! the operator named them in the settings. No other component gets anything that is not written.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use talaria_egress::{Access, Bounds, Denials, HostPattern, InvalidSecret, Needs, Pattern, Secrets};
use talaria_engine::{Component, Limits, Wasi, fill_in};
use talaria_turns::ToolSpec;

use super::builtin::Preset;
use super::secret::SecretGrant;
use super::section::Executor;
use talaria_config::{Period, Problem, Size, count};

/// `[executor.NAME.grant]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "executor.NAME.grant")]
pub struct GrantSection {
    /// The calls that it may make: method, URL, and `*` at the end for everything below.
    ///
    /// Default: the calls that a built-in component declares, with its settings filled in; nothing for any other
    ///
    /// Example: `egress = ["POST https://api.example.com/v1/*"]`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub egress: Option<Vec<Pattern>>,
    /// The host names in `egress` that may resolve to loopback or private addresses, such as those of a compose file or of
    /// Kubernetes. An address in `egress`, and `localhost`, need no entry here.
    ///
    /// Default: the hosts of the calls that a built-in component declares; none for any other
    ///
    /// Example: `private = ["gateway", "*.svc.cluster.local"]`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub private: Option<Vec<HostPattern>>,
    /// The secrets that may be filled into its calls, by name, each towards everything in `egress` or towards `to` only.
    /// A secret's value is the environment variable of that name, or the file that `NAME_FILE` names.
    ///
    /// Default: the key of its upstream for a built-in component, see [executors.md](executors.md); none for any other
    ///
    /// Example: `secrets = ["MODEL_KEY", { name = "SEARCH_KEY", to = ["https://search.example.com/*"] }]`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Vec<SecretGrant>>,
    /// Lets it receive callbacks, at the address of `[callback]`.
    ///
    /// Default: `true` for a built-in component that needs callbacks; `false` for any other
    ///
    /// Example: `callbacks = true`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callbacks: Option<bool>,
    /// The tools of the host that it may call, by name: those that a workspace's agent has, see
    /// [workspace.md](workspace.md#tools-for-executors). Only components that import `tools` call any.
    ///
    /// Example: `tools = ["list_peers", "delegate_task", "check_task_status"]`
    pub tools: Vec<String>,
    /// Lets it make the calls in `egress` through `wasi:http` too, as `fetch` in JavaScript does.
    ///
    /// Example: `wasi_http = true`
    pub wasi_http: bool,
    /// Unpredictable random numbers. Without it, random numbers are good enough for hash tables, not for keys.
    ///
    /// Default: `true` for built-in components; `false` for any other
    ///
    /// Example: `random = true`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random: Option<bool>,
    /// Clocks with the precision of the machine. Without it, their precision is a millisecond.
    ///
    /// Example: `precise_clock = true`
    pub precise_clock: bool,
    /// A folder that it can read, but not change, as `/data`; a path, relative to this file.
    ///
    /// Default: none
    ///
    /// Example: `folder = "prompts"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// How much memory one turn may use; at most `256MiB`.
    ///
    /// Example: `memory = "128MiB"`
    pub memory: Size,
    /// The CPU time of one turn, without waiting; at most `3600s`.
    ///
    /// Example: `cpu = "10s"`
    pub cpu: Period,
    /// The number of calls that one turn may make; at most `1000000`.
    ///
    /// Example: `calls = 20`
    pub calls: NonZeroU32,
    /// The number of calls of one turn that may be open at once; at most `1000`.
    ///
    /// Example: `connections = 2`
    pub connections: NonZeroU32,
    /// The number of body bytes that one turn may receive; at most `4GiB`.
    ///
    /// Example: `bytes_in = "16MiB"`
    pub bytes_in: Size,
    /// The number of body bytes that one turn may send; at most `4GiB`.
    ///
    /// Example: `bytes_out = "1MiB"`
    pub bytes_out: Size,
    /// The number of events, questions and checkpoints that one turn may add to its task; at most `10000000`.
    ///
    /// Example: `events = 1000`
    pub events: NonZeroU32,
    /// How much one turn may put out: its events, questions, checkpoints, state, spans, log lines and answer, each with
    /// a fixed part; at most `4GiB`. [policy.md](policy.md) has the fixed parts.
    ///
    /// Example: `output = "4MiB"`
    pub output: Size,
    /// The number of log lines per second, over all its turns; at most `10000`. Further lines are dropped and counted.
    ///
    /// Example: `log_lines = 10`
    pub log_lines: NonZeroU32,
    /// The number of bytes of log lines per second; at most `16MiB`.
    ///
    /// Example: `log_bytes = "16KiB"`
    pub log_bytes: Size,
    /// How much state it may store per context; at most `64MiB`.
    ///
    /// Example: `state = "64KiB"`
    pub state: Size,
}

/// What an executor may do.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The calls that it may make.
    pub egress: Vec<Pattern>,
    /// The host names that may resolve to private addresses.
    pub private: Vec<HostPattern>,
    /// The secrets that may be filled in, each with its destinations; a secret that is not set has no value.
    pub secrets: Secrets,
    /// Whether it may receive callbacks.
    pub callbacks: bool,
    /// The names of the host's tools that it may call.
    pub tools: Vec<String>,
    /// The parts of WASI that it gets.
    pub wasi: Wasi,
    /// Its limits, without those that are keys of the executor's section.
    limits: Limits,
    /// What is filled in from the needs of a built-in component when it is loaded.
    open: Open,
}

/// The parts of a grant that are left to the needs of a built-in component. Nothing, for any other component.
#[derive(Debug, Clone, Default)]
struct Open {
    egress: bool,
    private: bool,
    /// Secrets towards every call of the executor; the calls are not known yet.
    secrets: Vec<(String, SecretString)>,
}

/// The ceilings. Memory: the size of a slot in the engine's pool.
const MEMORY: Size = Size::mib(256);
const CPU: Period = Period::secs(3600);
const CALLS: u32 = 1_000_000;
const CONNECTIONS: u32 = 1_000;
const BYTES: Size = Size::mib(4096);
const EVENTS: u32 = 10_000_000;
const LOG_LINES: u32 = 10_000;
const LOG_BYTES: Size = Size::mib(16);
const STATE: Size = Size::mib(64);
/// More than a model can choose among.
const TOOLS: usize = 256;
/// One day: nobody waits longer for a turn.
pub(super) const DEADLINE: Period = Period::secs(24 * 3600);
/// Turns of one executor, running or waiting.
pub(super) const TURNS: u32 = 100_000;

impl Default for GrantSection {
    fn default() -> Self {
        Self {
            egress: None,
            private: None,
            secrets: None,
            callbacks: None,
            tools: Vec::new(),
            wasi_http: false,
            random: None,
            precise_clock: false,
            folder: None,
            memory: Size::mib(64),
            cpu: Period::secs(60),
            calls: count::<1_000>(),
            connections: count::<16>(),
            bytes_in: Size::mib(256),
            bytes_out: Size::mib(64),
            events: count::<200_000>(),
            output: Size::mib(64),
            log_lines: count::<100>(),
            log_bytes: Size::kib(64),
            state: Size::mib(1),
        }
    }
}

impl GrantSection {
    /// Checks the section and makes a grant, still without secrets. `builtin` is the preset of a built-in component. Keys
    /// in problems are relative to the executor's section.
    pub(super) fn settle(self, builtin: Option<&Preset>, folder: &Path) -> Result<Grant, Problem> {
        at_most("memory", self.memory, MEMORY)?;
        at_most("cpu", self.cpu, CPU)?;
        at_most("calls", self.calls.get(), CALLS)?;
        at_most("connections", self.connections.get(), CONNECTIONS)?;
        at_most("bytes_in", self.bytes_in, BYTES)?;
        at_most("bytes_out", self.bytes_out, BYTES)?;
        at_most("events", self.events.get(), EVENTS)?;
        at_most("output", self.output, BYTES)?;
        at_most("log_lines", self.log_lines.get(), LOG_LINES)?;
        at_most("log_bytes", self.log_bytes, LOG_BYTES)?;
        at_most("state", self.state, STATE)?;
        let folder = self.folder.map(|path| folder.join(path));
        if let Some(path) = folder.as_ref().filter(|path| !path.is_dir()) {
            return Err(problem("folder", format!("{} is not a folder", path.display())));
        }
        at_most("tools", self.tools.len(), TOOLS)?;
        if let Some(index) = self.tools.iter().position(|name| !ToolSpec::is_name(name)) {
            let what = "it is no name of a tool: 1 to 128 letters, digits, `_` and `-`";
            return Err(problem(&format!("tools[{index}]"), what.into()));
        }
        let is_open = |is_absent: bool| is_absent && builtin.is_some();
        let open = Open {
            egress: is_open(self.egress.is_none()),
            private: is_open(self.private.is_none()),
            secrets: Vec::new(),
        };
        Ok(Grant {
            egress: self.egress.unwrap_or_default(),
            private: self.private.unwrap_or_default(),
            secrets: Secrets::new(),
            callbacks: self.callbacks.unwrap_or_else(|| builtin.is_some_and(|preset| preset.callbacks)),
            tools: self.tools,
            wasi: Wasi {
                random: self.random.unwrap_or(builtin.is_some()),
                precise_clock: self.precise_clock,
                folder,
                http: self.wasi_http,
            },
            limits: Limits {
                memory: bytes(self.memory),
                cpu: self.cpu.get(),
                calls: self.calls.get(),
                connections: number(self.connections),
                received_bytes: bytes(self.bytes_in),
                sent_bytes: bytes(self.bytes_out),
                events: self.events.get(),
                output_bytes: bytes(self.output),
                log_lines: self.log_lines.get(),
                log_bytes: u32::try_from(self.log_bytes.bytes()).unwrap_or(u32::MAX),
                state_bytes: bytes(self.state),
                ..Limits::default()
            },
            open,
        })
    }
}

pub(super) fn at_most<T: PartialOrd + std::fmt::Display>(
    key: &str,
    value: T,
    most: T,
) -> Result<(), Problem> {
    match value > most {
        true => Err(problem(key, format!("{value} is more than an executor can have; {most} is the most"))),
        false => Ok(()),
    }
}

fn problem(key: &str, what: String) -> Problem {
    let key =
        if ["deadline", "concurrency", "queue"].contains(&key) { key.into() } else { format!("grant.{key}") };
    Problem { key, what }
}

fn bytes(size: Size) -> usize {
    usize::try_from(size.bytes()).unwrap_or(usize::MAX)
}

fn number(count: NonZeroU32) -> usize {
    usize::try_from(count.get()).unwrap_or(usize::MAX)
}

impl Grant {
    /// The memory that one turn may use, in bytes.
    pub fn memory(&self) -> usize {
        self.limits.memory
    }

    /// Grants a secret towards `to`, or, if that is empty, towards every call that the executor may make.
    pub(super) fn insert_secret(
        &mut self,
        name: &str,
        value: SecretString,
        to: Vec<Pattern>,
    ) -> Result<(), InvalidSecret> {
        let is_open = to.is_empty() && self.open.egress;
        let to = if to.is_empty() { self.egress.clone() } else { to };
        self.secrets.insert(name, value.clone(), to)?;
        if is_open {
            self.open.secrets.push((name.to_owned(), value));
        }
        Ok(())
    }

    /// Discards the written calls and secrets: the calls follow from the component's needs, with this one secret.
    pub(super) fn reopen(&mut self, name: &str, value: SecretString) -> Result<(), InvalidSecret> {
        (self.egress, self.private, self.secrets) = (Vec::new(), Vec::new(), Secrets::new());
        self.open = Open { egress: true, private: true, secrets: Vec::new() };
        self.insert_secret(name, value, Vec::new())
    }

    /// Fills in what the section leaves to a built-in component: the calls in its needs, their hosts, and its secrets
    /// towards them. For any other component this does nothing.
    pub fn fill_in(&mut self, needs: &[String], settings: &Map<String, Value>) {
        let needed = patterns(needs, settings);
        let open = std::mem::take(&mut self.open);
        if open.private {
            self.private = needed.iter().map(HostPattern::from).collect();
        }
        if open.egress {
            self.egress = needed;
        }
        for (name, value) in open.secrets {
            // The secret was checked when it was granted.
            let _ = self.secrets.insert(name, value, self.egress.clone());
        }
    }
}

/// The calls that a component needs. A need with a setting that has no value is left out.
fn patterns(needs: &[String], settings: &Map<String, Value>) -> Vec<Pattern> {
    needs.iter().filter_map(|need| fill_in(need, settings).ok()?.parse().ok()).collect()
}

/// The secrets that a component uses. One whose setting has no value is left out.
fn names(needs: &[String], settings: &Map<String, Value>) -> Vec<String> {
    needs.iter().filter_map(|need| fill_in(need, settings).ok()).collect()
}

impl Executor {
    /// The limits of its component.
    pub fn limits(&self) -> Limits {
        Limits {
            deadline: self.deadline,
            concurrency: number(self.concurrency),
            queue: number(self.queue),
            ..self.grant.limits
        }
    }

    /// What its component may reach: what it needs, if that is granted.
    pub fn access(
        &self,
        component: &Component,
        settings: &Map<String, Value>,
        denials: Denials,
    ) -> Arc<Access> {
        let needs = &component.description().needs;
        Arc::new(Access {
            executor: self.name.as_str().to_owned(),
            patterns: self.grant.egress.clone(),
            private: self.grant.private.clone(),
            secrets: self.grant.secrets.clone(),
            needs: Some(Needs {
                patterns: patterns(&needs.egress, settings),
                secrets: names(&needs.secrets, settings),
            }),
            bounds: Bounds { timeout: self.deadline, ..Bounds::default() },
            denials,
            ..Access::default()
        })
    }
}

/// The default deadline of a turn, which is that of the Python bridge.
pub(super) const TURN: Duration = Duration::from_secs(600);
