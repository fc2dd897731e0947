//! The shape of `talaria.toml`: one struct per section, exactly as written.
//!
//! The JSON Schema (`docs/talaria.schema.json`) and the reference (`docs/configuration.md`) are generated from these
//! structs. Every field therefore has a sentence, a `Default:` line if the default is not a plain value, and an `Example:`.
//! Unknown keys are errors everywhere.
//!
//! These structs only hold values. [`Config::load`](super::Config::load) adds the environment and the flags, and checks
//! that everything fits together.

mod a2a;
mod callback;
mod caller;
mod tools;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use talaria_executors::ExecutorName;
use talaria_executors::config::{ExecutorSection, RouteRule};

use super::egress::Egress;
use super::oci::Oci;
use super::value::StoreUrl;
use talaria_config::{Period, SecretRef, Size, count};

pub(crate) use a2a::{A2a, Auth, Card, Extension, Grpc, Signing, Skill};
pub(crate) use callback::{Callback, PlainCallback};
pub(crate) use caller::CallerLimits;
pub(crate) use tools::{ToolServer, Tools};

/// The whole file.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table of sections")]
#[schemars(rename = "talaria.toml")]
pub(crate) struct File {
    /// The public server.
    pub(crate) a2a: A2a,
    /// Push notifications.
    pub(crate) push: Push,
    /// The listener for out-of-band replies to executors. It is opened if an executor is granted `callbacks`.
    pub(crate) callback: Option<Callback>,
    /// The operator's server: health, metrics, turns, executors, the console.
    pub(crate) admin: Admin,
    /// The store of tasks.
    pub(crate) store: Store,
    /// The executors, as a whole.
    pub(crate) executors: Executors,
    /// One executor each, by name. `chat-completions` and `conformance` exist without a section; so does `plugin-callback`
    /// if it is the default or a fallback.
    pub(crate) executor: BTreeMap<ExecutorName, ExecutorSection>,
    /// Which executor takes which messages: the first rule that matches, else `executors.default`. See `docs/routes.md`.
    ///
    /// Example: `route = [{ skill = "papers", executor = "hermes-runs" }]`
    pub(crate) route: Vec<RouteRule>,
    /// The WebAssembly engine.
    pub(crate) engine: Engine,
    /// How outbound calls leave the host.
    pub(crate) egress: Egress,
    /// The registries that components are pulled from.
    pub(crate) oci: Oci,
    /// How much the host accepts.
    pub(crate) limits: Limits,
    /// What traces record. Where they are sent, if at all, is in the environment. See `docs/telemetry.md`.
    pub(crate) telemetry: Telemetry,
    /// What is redacted before callers read it.
    pub(crate) redact: Redact,
    /// The tools of the agent, over MCP: its team, people, memory. Served in a workspace only. See `docs/workspace.md`. And
    /// the servers of further tools for executors, see `docs/tools.md`.
    pub(crate) tools: Option<Tools>,
    /// The gateway that the host starts and supervises, as the image of a workspace needs it. Without this section, no gateway
    /// is started.
    pub(crate) gateway: Option<talaria_hermes::gateway::Section>,
}

/// `[push]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "push")]
pub(crate) struct Push {
    /// Allows webhooks on loopback and private addresses. Link-local addresses, where clouds keep their credentials, are
    /// never called.
    ///
    /// Example: `allow_private = true`
    pub(crate) allow_private: bool,
    /// How long one delivery may take.
    ///
    /// Example: `timeout = "5s"`
    pub(crate) timeout: Period,
    /// The number of attempts to deliver one notification before its webhook is given up. With the default pauses, twelve
    /// attempts take twenty minutes.
    ///
    /// Example: `tries = 3`
    pub(crate) tries: NonZeroU32,
    /// The pause after the first attempt. It doubles with each attempt, up to five minutes, less a random part.
    ///
    /// Example: `pause = "10s"`
    pub(crate) pause: Period,
}

/// `[telemetry]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "telemetry")]
pub(crate) struct Telemetry {
    /// Records the texts of messages and answers in traces, scrubbed and cut at 4 KiB. `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`
    /// does the same.
    ///
    /// Example: `content = true`
    pub(crate) content: bool,
}

/// `[admin]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "admin")]
pub(crate) struct Admin {
    /// The address to listen on, for health, metrics, the turns of all callers, changes of executors and the console. Beyond
    /// loopback it needs `admin.token`.
    ///
    /// Default: `127.0.0.1:8001`, if that is free
    ///
    /// Example: `listen = "127.0.0.1:9001"`
    #[schemars(with = "Option<String>")]
    pub(crate) listen: Option<SocketAddr>,
    /// The environment variable or the file that holds the token. Every path but those in `admin.open` needs it, as
    /// `Authorization: Bearer TOKEN`.
    ///
    /// Default: none, which is allowed on loopback only
    ///
    /// Example: `token = { env = "ADMIN_TOKEN" }`
    pub(crate) token: Option<SecretRef>,
    /// The paths that need no token, for probes of an orchestrator and for scrapers.
    ///
    /// Example: `open = ["healthz"]`
    pub(crate) open: Vec<OpenPath>,
}

/// A path of the admin server that can be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "open_path")]
pub(crate) enum OpenPath {
    Healthz,
    Readyz,
    Metrics,
}

/// `[store]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "store")]
pub(crate) struct Store {
    /// Where tasks are stored: `sqlite:PATH`, relative to this file, or `memory:`, which loses them when the process ends.
    ///
    /// Default: `sqlite:talaria.db`; with `--demo` `memory:`
    ///
    /// Example: `url = "sqlite:/var/lib/talaria/talaria.db"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<StoreUrl>,
    /// How long a task is stored after its end.
    ///
    /// Example: `keep_for = "30days"`
    pub(crate) keep_for: Period,
    /// The largest size of the store. New messages are rejected when an eighth of it is left, which is for the turns under
    /// way. A store in memory takes at most an eighth of `limits.memory`.
    ///
    /// Example: `max_size = "50GiB"`
    pub(crate) max_size: Size,
    /// The free space on the disk of `sqlite:PATH` below which new messages are rejected.
    ///
    /// Default: `256MiB`, on small disks 5 % of the disk
    ///
    /// Example: `min_free = "2GiB"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min_free: Option<Size>,
}

/// `[executors]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "executors")]
pub(crate) struct Executors {
    /// A folder of executors: each `NAME.wasm` in it is the executor `NAME`, configured by a `NAME.toml` beside it
    /// with the keys of `[executor.NAME]`. The folder is read every second: executors are loaded, swapped or taken
    /// out of service while the host runs.
    ///
    /// Default: `executors`, if that folder exists
    ///
    /// Example: `dir = "/etc/talaria/executors"`
    pub(crate) dir: Option<PathBuf>,
    /// A folder for the host's own use: the last good versions of executors, for rollbacks and for a start with a broken
    /// version, and the log of changes, `audit.jsonl`.
    ///
    /// Default: beside the store's file, with the ending `.executors`; none with `memory:`
    ///
    /// Example: `state = "/var/lib/talaria/executors"`
    pub(crate) state: Option<PathBuf>,
    /// The executor of messages that no rule matches. `MOLECULE_A2A_PLATFORM_ENABLED=true` makes it
    /// `plugin-callback`.
    ///
    /// Example: `default = "my-agent"`
    pub(crate) default: ExecutorName,
    /// Lets callers choose the executor of a message, by `metadata["talaria/executor"]`. Otherwise such a message is rejected.
    ///
    /// Example: `caller_may_choose = true`
    pub(crate) caller_may_choose: bool,
    /// The time between two probes of an executor. The default executor decides whether the host is ready; a probe also
    /// decides whether a `fallback` takes the turns of an executor.
    ///
    /// Example: `probe_every = "30s"`
    pub(crate) probe_every: Period,
}

/// `[engine]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "engine")]
pub(crate) struct Engine {
    /// The number of instances of compiled components (Rust and the like) that can run at once.
    ///
    /// Example: `slots = 200`
    pub(crate) slots: NonZeroU32,
    /// The number of instances of components with an interpreter (JavaScript, Python) that can run at once.
    ///
    /// Example: `scripted_slots = 20`
    pub(crate) scripted_slots: NonZeroU32,
    /// The folder for compiled components and, below it, pulled ones. No other user may be able to write to it.
    ///
    /// Default: `$XDG_CACHE_HOME/talaria`, else `~/.cache/talaria`, else none
    ///
    /// Example: `cache_dir = "/var/cache/talaria"`
    pub(crate) cache_dir: Option<PathBuf>,
}

/// `[limits]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "limits")]
pub(crate) struct Limits {
    /// The number of turns that run at once, over all executors. Further turns are rejected at once.
    ///
    /// Example: `turns = 200`
    pub(crate) turns: NonZeroU32,
    /// The memory that this process may use. Half of it is for what callers make the host hold: requests, responses, tasks
    /// that are read, and the memories of executors' instances. A request or a turn that does not fit is answered with 429;
    /// one that can never fit is rejected.
    ///
    /// Default: the limit of the process's control group, as a container sets it, else the memory of the machine
    ///
    /// Example: `memory = "512MiB"`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(crate) memory: Option<Size>,
    /// The number of tasks that are stored. Beyond it, the caller that has the most loses its oldest finished tasks; a caller
    /// that has no more than an equal part loses none.
    ///
    /// Example: `tasks = 50_000`
    pub(crate) tasks: NonZeroU32,
    /// The number of talarias that a message may have passed through, so that agents which pass messages on to each other in
    /// a circle are stopped. A message that passed through more is rejected; `0` rejects every message that another talaria
    /// passed on.
    ///
    /// Example: `hops = 2`
    pub(crate) hops: u32,
    /// How long an unfinished task may go without an event, for example while a question is unanswered or a turn hangs,
    /// before it fails.
    ///
    /// Example: `stuck_after = "12h"`
    pub(crate) stuck_after: Period,
    /// How long running turns may take to end at shutdown, before they fail. A second SIGTERM or SIGINT ends the process at
    /// once. Give your orchestrator a little more, such as `terminationGracePeriodSeconds`.
    ///
    /// Example: `grace = "5min"`
    pub(crate) grace: Period,
    /// How much one caller may take, so that the others find room. What is set here applies to every caller but the
    /// workspace's platform; callers without a name share it. The defaults apply only if several callers have names.
    pub(crate) caller: CallerLimits,
}

/// `[redact]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "redact")]
pub(crate) struct Redact {
    /// What is replaced in the replies that callers read: `values`, the values of the secrets that the host holds;
    /// `shapes`, these and everything that looks like a secret, which damages some ordinary code; `off`, nothing. Error
    /// texts of upstreams, logs, heartbeats, snapshots and transcripts are always redacted by values and shapes. See
    /// [redaction.md](redaction.md).
    ///
    /// Example: `replies = "shapes"`
    pub(crate) replies: Replies,
}

/// `redact.replies`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "replies")]
pub(crate) enum Replies {
    #[default]
    Values,
    Shapes,
    Off,
}

impl From<Replies> for talaria_redact::Replies {
    fn from(replies: Replies) -> Self {
        match replies {
            Replies::Values => Self::Values,
            Replies::Shapes => Self::Shapes,
            Replies::Off => Self::Off,
        }
    }
}

// === defaults ===

impl Default for Push {
    fn default() -> Self {
        Self { allow_private: false, timeout: Period::secs(10), tries: count::<12>(), pause: Period::secs(1) }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: None, token: None, open: vec![OpenPath::Healthz, OpenPath::Readyz, OpenPath::Metrics] }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            url: None,
            keep_for: Period::secs(7 * 24 * 3_600),
            max_size: Size::mib(10 << 10),
            min_free: None,
        }
    }
}

impl Default for Executors {
    fn default() -> Self {
        Self {
            dir: None,
            state: None,
            default: ExecutorName::builtin("chat-completions"),
            caller_may_choose: false,
            probe_every: Period::secs(10),
        }
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self { slots: count::<1000>(), scripted_slots: count::<100>(), cache_dir: None }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            turns: count::<1000>(),
            memory: None,
            tasks: count::<10_000>(),
            hops: 8,
            stuck_after: Period::secs(7 * 24 * 3_600),
            grace: Period::secs(20),
            caller: CallerLimits::default(),
        }
    }
}
