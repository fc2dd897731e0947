//! The shape of `talaria.toml`: one struct a section, exactly as written.
//!
//! These structs are also the reference: the JSON Schema (`docs/talaria.schema.json`) and the table
//! (`docs/configuration.md`) are generated from them. So every field has a sentence, a `Default:` line where the
//! default is not a plain value, and an `Example:`. Unknown keys are errors everywhere.
//!
//! Nothing is decided here: what the environment and the flags add, and what must fit together, is
//! [`Config::load`](super::Config::load)'s part.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use talaria_a2a::ReplyAs;
use talaria_turns::StreamAs;

use talaria_executors::ExecutorName;
use talaria_executors::config::{ExecutorSection, RouteRule};

use super::oci::Oci;
use super::value::StoreUrl;
use talaria_config::{HttpUrl, Period, SecretRef, Size, count};

/// The whole file.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table of sections")]
#[schemars(rename = "talaria.toml")]
pub(crate) struct File {
    /// The public server.
    pub(crate) a2a: A2a,
    /// Push notifications.
    pub(crate) push: Push,
    /// Where executors receive out-of-band replies. It listens if an executor is granted `callbacks`.
    pub(crate) callback: Option<Callback>,
    /// The operator's server: health, metrics, pushes that were given up.
    pub(crate) admin: Admin,
    /// Where tasks are kept.
    pub(crate) store: Store,
    /// Which executors there are.
    pub(crate) executors: Executors,
    /// One executor each, by name. `chat-completions` and `conformance` exist without a section, and so does
    /// `plugin-callback` where it is the default or a fallback.
    pub(crate) executor: BTreeMap<ExecutorName, ExecutorSection>,
    /// Which executor takes which messages: the first rule that fits, else `executors.default`. See `docs/routes.md`.
    ///
    /// Example: `route = [{ skill = "papers", executor = "hermes-runs" }]`
    pub(crate) route: Vec<RouteRule>,
    /// The WebAssembly engine.
    pub(crate) engine: Engine,
    /// The registries that components come from.
    pub(crate) oci: Oci,
    /// How much is taken on at once.
    pub(crate) limits: Limits,
    /// The gateway to start and to keep up, as a workspace's image needs it. Without this section none is started.
    pub(crate) gateway: Option<talaria_hermes::gateway::Section>,
}

/// `[a2a]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "a2a")]
pub(crate) struct A2a {
    /// The address to listen on. Beyond loopback it needs `a2a.auth.tokens`, or `a2a.auth.open = true`.
    ///
    /// Default: `127.0.0.1:8000`; in a workspace (`WORKSPACE_ID` is set) `0.0.0.0:8000`
    ///
    /// Example: `listen = "127.0.0.1:9000"`
    #[schemars(with = "Option<String>")]
    pub(crate) listen: Option<SocketAddr>,
    /// The address that the agent card tells callers to use. A card that is signed needs it.
    ///
    /// Default: the address that the card was asked for at (`Host`, and what `trusted_proxies` forward)
    ///
    /// Example: `url = "https://agents.example.com/hermes"`
    pub(crate) url: Option<HttpUrl>,
    /// The proxies whose `Forwarded` and `X-Forwarded-Host`, `-Proto` and `-Port` say where a request was sent, for a card
    /// without `url`: addresses, or ranges of them.
    ///
    /// Example: `trusted_proxies = ["10.0.0.0/8"]`
    pub(crate) trusted_proxies: Vec<String>,
    /// What a blocking send is answered with when its turn only returned text. A message that names a task is
    /// answered with that task; see `docs/decisions/034-send-replies.md`.
    ///
    /// Default: `"auto"`; in a workspace (`WORKSPACE_ID` is set) `"message"`
    ///
    /// Example: `reply = "task"`
    pub(crate) reply: Option<ReplyAs>,
    /// How a stream, or a push, tells an answer that comes in pieces. A caller may have another form by the `stream` of its
    /// token, or by naming the extension `urn:talaria:stream:FORM`; see `docs/decisions/033-stream-forms.md`.
    ///
    /// Example: `stream = "artifact"`
    #[schemars(schema_with = "stream_schema")]
    pub(crate) stream: StreamAs,
    /// The origins whose pages browsers let call, such as `https://app.example`. There is no wildcard.
    ///
    /// Example: `cors = ["https://app.example"]`
    pub(crate) cors: Vec<String>,
    /// The largest request body; a larger one is refused unread.
    ///
    /// Example: `max_body = "4MiB"`
    pub(crate) max_body: Size,
    /// Who may call.
    pub(crate) auth: Auth,
    /// What the agent card says.
    pub(crate) card: Card,
}

/// The forms of a stream; `turns`, which owns [`StreamAs`], knows no schemas.
fn stream_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "oneOf": [
            { "description": "Pieces as messages of working statuses, then the whole as one artifact.", "const": "status" },
            { "description": "Pieces as appended pieces of the artifact.", "const": "artifact" },
            { "description": "The whole as one artifact, no pieces.", "const": "whole" },
        ],
    })
}

/// `[a2a.auth]`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "a2a.auth")]
pub(crate) struct Auth {
    /// The callers: each sends its token as `Authorization: Bearer TOKEN`. The token itself is given by reference.
    ///
    /// Example: `tokens = [{ name = "platform", token = { env = "PLATFORM_TOKEN" } }]`
    pub(crate) tokens: Vec<Token>,
    /// Lets everybody who reaches the address call, without a token. In a workspace `false` needs no `tokens`: the
    /// platform has one.
    ///
    /// Default: `false`; on loopback, or in a workspace (`WORKSPACE_ID` is set), nobody needs a token unless there are tokens
    ///
    /// Example: `open = true`
    pub(crate) open: Option<bool>,
}

/// A caller.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table like { name = \"…\", token = { env = \"…\" } }")]
#[schemars(rename = "a2a.auth.tokens")]
pub(crate) struct Token {
    /// Who calls with this token; tasks belong to this name.
    ///
    /// Example: `name = "platform"`
    pub(crate) name: String,
    /// Where the token is: an environment variable or a file. A file is read again every two seconds: a new token in
    /// it counts from then on.
    ///
    /// Example: `token = { file = "/run/secrets/platform" }`
    pub(crate) token: SecretRef,
    /// How streams and pushes tell this caller an answer that comes in pieces.
    ///
    /// Default: `a2a.stream`
    ///
    /// Example: `stream = "whole"`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "stream_schema")]
    pub(crate) stream: Option<StreamAs>,
}

/// `[a2a.card]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "a2a.card")]
pub(crate) struct Card {
    /// The agent's name.
    ///
    /// Example: `name = "Research agent"`
    pub(crate) name: String,
    /// What the agent is for, in a sentence.
    ///
    /// Example: `description = "Finds and summarises papers."`
    pub(crate) description: String,
    /// The agent's version.
    ///
    /// Default: the version of talaria
    ///
    /// Example: `version = "2.1.0"`
    pub(crate) version: Option<String>,
    /// What the agent can do, for callers that choose among agents.
    ///
    /// Default: one skill, `chat`
    ///
    /// Example: `skills = [{ id = "papers", name = "Papers", description = "Finds papers.", tags = ["search"] }]`
    pub(crate) skills: Option<Vec<Skill>>,
    /// Offers streaming; without it the streaming operations are refused.
    ///
    /// Example: `streaming = false`
    pub(crate) streaming: bool,
    /// Offers push notifications; without it the operations on them are refused.
    ///
    /// Example: `push_notifications = false`
    pub(crate) push_notifications: bool,
    /// Offers the extended card to callers. Without tokens nobody has a name, and it is not offered.
    ///
    /// Example: `extended_card = false`
    pub(crate) extended_card: bool,
    /// The protocol extensions that the card declares; a caller that does not name a required one is refused.
    ///
    /// Example: `extensions = [{ uri = "https://example.com/ext/v1", required = false }]`
    pub(crate) extensions: Vec<Extension>,
    /// Signs the card, the extended one too, so that callers can tell that nobody changed it. Not signed without this.
    pub(crate) signing: Option<Signing>,
}

/// `[a2a.card.signing]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table like { key = { file = \"…\" }, kid = \"…\" }")]
#[schemars(rename = "a2a.card.signing")]
pub(crate) struct Signing {
    /// Where the private key is: PKCS#8 in PEM, Ed25519 or P-256. `openssl genpkey -algorithm ed25519 -out card-key.pem`
    /// makes one, `openssl pkey -in card-key.pem -pubout` shows the public half for callers.
    ///
    /// Example: `key = { file = "/run/secrets/card-key.pem" }`
    pub(crate) key: SecretRef,
    /// The key's id, by which callers find the public half.
    ///
    /// Example: `kid = "desk-2026"`
    pub(crate) kid: String,
    /// Where the public key is published, as a JSON Web Key Set.
    ///
    /// Default: the signature does not say
    ///
    /// Example: `jku = "https://acme.example/.well-known/jwks.json"`
    pub(crate) jku: Option<HttpUrl>,
}

/// A skill on the card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table like { id = \"…\", name = \"…\", description = \"…\" }")]
#[schemars(rename = "a2a.card.skills")]
pub(crate) struct Skill {
    /// Its id, unique on the card.
    ///
    /// Example: `id = "papers"`
    pub(crate) id: String,
    /// Its name, for people.
    ///
    /// Example: `name = "Papers"`
    pub(crate) name: String,
    /// What it does.
    ///
    /// Example: `description = "Finds papers."`
    pub(crate) description: String,
    /// Words to find it by.
    ///
    /// Example: `tags = ["search"]`
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    /// Prompts that show its use.
    ///
    /// Example: `examples = ["papers on sandboxing"]`
    #[serde(default)]
    pub(crate) examples: Vec<String>,
}

/// A protocol extension on the card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table like { uri = \"…\", required = false }")]
#[schemars(rename = "a2a.card.extensions")]
pub(crate) struct Extension {
    /// The URI that names it.
    ///
    /// Example: `uri = "https://example.com/ext/v1"`
    pub(crate) uri: String,
    /// Whether a caller must know it.
    ///
    /// Example: `required = true`
    #[serde(default)]
    pub(crate) required: bool,
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
    /// How often one thing is tried before its webhook is given up. With the default pauses twelve tries take twenty
    /// minutes.
    ///
    /// Example: `tries = 3`
    pub(crate) tries: NonZeroU32,
    /// The pause after the first try. It doubles with each, up to five minutes, less a random part.
    ///
    /// Example: `pause = "10s"`
    pub(crate) pause: Period,
}

/// `[callback]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "callback")]
pub(crate) struct Callback {
    /// The address to listen on; the path is `/a2a/reply`, or `callback.plain.path`. `MOLECULE_A2A_CALLBACK_HOST` and
    /// `MOLECULE_A2A_CALLBACK_PORT` override it.
    ///
    /// Example: `listen = "127.0.0.1:8646"`
    #[schemars(with = "String")]
    pub(crate) listen: SocketAddr,
    /// Where upstreams are told to post, with the path.
    ///
    /// Default: `http://`, the address that is listened on, and the path
    ///
    /// Example: `url = "http://bridge:8646/a2a/reply"`
    pub(crate) url: Option<HttpUrl>,
    /// The secret that upstreams must send as `X-Molecule-A2A-Secret`, or in `callback.plain.secret_header`.
    ///
    /// Default: `MOLECULE_A2A_PLATFORM_SHARED_SECRET`, or the file that `MOLECULE_A2A_PLATFORM_SHARED_SECRET_FILE` names, unless
    /// `[callback.plain]` is there; else nothing
    ///
    /// Example: `secret = { file = "/run/secrets/plugin" }`
    pub(crate) secret: Option<SecretRef>,
    /// Accepts callbacks of another shape than that of the plugin of hermes-agent: JSON of any form. See
    /// [callbacks.md](callbacks.md).
    ///
    /// Default: none; upstreams post as the plugin of hermes-agent does
    pub(crate) plain: Option<PlainCallback>,
}

/// `[callback.plain]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "callback_plain")]
pub(crate) struct PlainCallback {
    /// The path that upstreams post to.
    ///
    /// Example: `path = "/hooks/replies"`
    pub(crate) path: String,
    /// The header that must hold `callback.secret`.
    ///
    /// Example: `secret_header = "x-api-key"`
    pub(crate) secret_header: String,
    /// A JSON pointer to the id of the message that a callback answers. Without an id it is a notice about its chat.
    ///
    /// Example: `message_id = "/data/in_reply_to"`
    pub(crate) message_id: String,
    /// A JSON pointer to the text, which must be a string.
    ///
    /// Example: `content = "/data/text"`
    pub(crate) content: String,
    /// A JSON pointer to the name of the chat.
    ///
    /// Default: none; notices without a message id are dropped
    ///
    /// Example: `chat = "/data/room"`
    pub(crate) chat: Option<String>,
}

/// `[admin]`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "admin")]
pub(crate) struct Admin {
    /// The address to listen on, for `/healthz`, `/readyz`, `/metrics`, `/mailbox` and `/push/undelivered`. Beyond
    /// loopback it needs `admin.token`.
    ///
    /// Default: `127.0.0.1:8001`, if that is free
    ///
    /// Example: `listen = "127.0.0.1:9001"`
    #[schemars(with = "Option<String>")]
    pub(crate) listen: Option<SocketAddr>,
    /// Where the token is that every path but `/healthz` asks for, as `Authorization: Bearer TOKEN`: an environment variable
    /// or a file.
    ///
    /// Default: none, which is enough on loopback
    ///
    /// Example: `token = { env = "ADMIN_TOKEN" }`
    pub(crate) token: Option<SecretRef>,
}

/// `[store]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "store")]
pub(crate) struct Store {
    /// Where tasks are kept: `sqlite:PATH`, relative to this file, or `memory:`, where they are gone when the process
    /// ends.
    ///
    /// Default: `sqlite:talaria.db`; with `--demo` `memory:`
    ///
    /// Example: `url = "sqlite:/var/lib/talaria/talaria.db"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<StoreUrl>,
    /// How long a task is kept after it ended.
    ///
    /// Example: `keep_for = "30days"`
    pub(crate) keep_for: Period,
}

/// `[executors]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "executors")]
pub(crate) struct Executors {
    /// A folder of executors: each `NAME.wasm` in it is the executor `NAME`, configured by a `NAME.toml` beside it
    /// with the keys of `[executor.NAME]`. It is looked at every second: what appears, changes or disappears is loaded,
    /// swapped or taken out of service while the host runs.
    ///
    /// Default: `executors`, if that folder exists
    ///
    /// Example: `dir = "/etc/talaria/executors"`
    pub(crate) dir: Option<PathBuf>,
    /// A folder of the host's own: the last good versions of executors, for rollback and for a start with a broken one, and
    /// the log of changes, `audit.jsonl`.
    ///
    /// Default: beside the store's file, with the ending `.executors`; with `memory:` nothing is kept
    ///
    /// Example: `state = "/var/lib/talaria/executors"`
    pub(crate) state: Option<PathBuf>,
    /// The executor that takes a turn when nothing else is said. `MOLECULE_A2A_PLATFORM_ENABLED=true` makes it
    /// `plugin-callback`.
    ///
    /// Example: `default = "my-agent"`
    pub(crate) default: ExecutorName,
    /// Lets a caller choose: `metadata["talaria/executor"]` of a message names its executor. Otherwise such a message is
    /// refused.
    ///
    /// Example: `caller_may_choose = true`
    pub(crate) caller_may_choose: bool,
    /// How often executors are probed again: the default one decides whether the host is ready, and a `fallback` takes over
    /// or steps back.
    ///
    /// Example: `probe_every = "30s"`
    pub(crate) probe_every: Period,
}

/// `[engine]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "engine")]
pub(crate) struct Engine {
    /// How many instances of compiled components (Rust and the like) can run at once.
    ///
    /// Example: `slots = 200`
    pub(crate) slots: NonZeroU32,
    /// How many instances of components that bring an interpreter (JavaScript, Python) can run at once.
    ///
    /// Example: `scripted_slots = 20`
    pub(crate) scripted_slots: NonZeroU32,
    /// The folder for compiled components, and below it for those that were pulled. Nobody else may be able to write to it.
    ///
    /// Default: `$XDG_CACHE_HOME/talaria`, else `~/.cache/talaria`, else nothing is kept
    ///
    /// Example: `cache_dir = "/var/cache/talaria"`
    pub(crate) cache_dir: Option<PathBuf>,
}

/// `[limits]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "limits")]
pub(crate) struct Limits {
    /// How many turns run at once, over all executors; a further one is refused at once.
    ///
    /// Example: `turns = 200`
    pub(crate) turns: NonZeroU32,
    /// How many tasks are kept; the oldest finished ones go first.
    ///
    /// Example: `tasks = 50_000`
    pub(crate) tasks: NonZeroU32,
    /// How long nothing may happen to a task that has not ended: a question that nobody answers, a turn that hangs. Then
    /// it fails.
    ///
    /// Example: `stuck_after = "12h"`
    pub(crate) stuck_after: Period,
}

// === defaults ===

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

impl Default for A2a {
    fn default() -> Self {
        Self {
            listen: None,
            url: None,
            trusted_proxies: Vec::new(),
            reply: None,
            stream: StreamAs::default(),
            cors: Vec::new(),
            max_body: Size::mib(16),
            auth: Auth::default(),
            card: Card::default(),
        }
    }
}

impl Default for Card {
    fn default() -> Self {
        Self {
            name: "Talaria".into(),
            description: "An agent behind Talaria.".into(),
            version: None,
            skills: None,
            streaming: true,
            push_notifications: true,
            extended_card: false,
            extensions: Vec::new(),
            signing: None,
        }
    }
}

impl Default for Push {
    fn default() -> Self {
        Self { allow_private: false, timeout: Period::secs(10), tries: count::<12>(), pause: Period::secs(1) }
    }
}

impl Default for Callback {
    fn default() -> Self {
        Self { listen: loopback(8646), url: None, secret: None, plain: None }
    }
}

impl Default for PlainCallback {
    fn default() -> Self {
        Self {
            path: "/callback".into(),
            secret_header: "x-callback-secret".into(),
            message_id: "/reply_to".into(),
            content: "/content".into(),
            chat: None,
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self { url: None, keep_for: Period::secs(7 * 24 * 3_600) }
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
        Self { turns: count::<1000>(), tasks: count::<10_000>(), stuck_after: Period::secs(7 * 24 * 3_600) }
    }
}
