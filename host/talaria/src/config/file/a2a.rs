//! `[a2a]`: the public server, its callers and its card.

use std::net::SocketAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use talaria_a2a::ReplyAs;
use talaria_config::{HttpUrl, SecretRef, Size};
use talaria_turns::StreamAs;

use super::CallerLimits;

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
    /// The address of this server on the agent card. A signed card needs it.
    ///
    /// Default: the address that the card was requested at (`Host`, or what `trusted_proxies` forward)
    ///
    /// Example: `url = "https://agents.example.com/hermes"`
    pub(crate) url: Option<HttpUrl>,
    /// The addresses of proxies, or ranges of them. For a card without `url`, their `Forwarded` and `X-Forwarded-Host`,
    /// `-Proto` and `-Port` headers give the address that a request was sent to.
    ///
    /// Example: `trusted_proxies = ["10.0.0.0/8"]`
    pub(crate) trusted_proxies: Vec<String>,
    /// The form of the reply to a blocking send whose turn returned only text. A message that names a task is always
    /// answered with that task; see `docs/decisions/034-send-replies.md`.
    ///
    /// Default: `"auto"`; in a workspace (`WORKSPACE_ID` is set) `"message"`
    ///
    /// Example: `reply = "task"`
    pub(crate) reply: Option<ReplyAs>,
    /// How streams and push notifications send an answer that arrives in pieces. A caller gets another form by the `stream`
    /// of its token, or by naming the extension `urn:talaria:stream:FORM`; see `docs/decisions/033-stream-forms.md`.
    ///
    /// Example: `stream = "artifact"`
    #[schemars(schema_with = "stream_schema")]
    pub(crate) stream: StreamAs,
    /// The origins whose pages may call from a browser, such as `https://app.example`. There is no wildcard.
    ///
    /// Example: `cors = ["https://app.example"]`
    pub(crate) cors: Vec<String>,
    /// The size of the largest request body; a larger one is rejected unread.
    ///
    /// Example: `max_body = "4MiB"`
    pub(crate) max_body: Size,
    /// The callers.
    pub(crate) auth: Auth,
    /// gRPC, which is served on the port of the other bindings.
    pub(crate) grpc: Grpc,
    /// The agent card.
    pub(crate) card: Card,
}

/// `[a2a.grpc]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "a2a.grpc")]
pub(crate) struct Grpc {
    /// A port for gRPC alone, beside that of the other bindings: for a proxy that speaks HTTP/1.1 to the one and HTTP/2 to the
    /// other. Callers need the same tokens there.
    ///
    /// Default: none; gRPC is served at `a2a.listen`
    ///
    /// Example: `listen = "127.0.0.1:50051"`
    #[schemars(with = "Option<String>")]
    pub(crate) listen: Option<SocketAddr>,
    /// The address of gRPC on the agent card: a host and a port, without a scheme.
    ///
    /// Default: the host of the card's address, with its port or that of `listen`; none if that address has a path and there is
    /// no `listen`
    ///
    /// Example: `address = "agents.example.com:443"`
    pub(crate) address: Option<String>,
    /// Whether the agent card offers gRPC.
    ///
    /// Example: `offered = false`
    pub(crate) offered: bool,
}

/// The forms of a stream. `turns`, which owns [`StreamAs`], does not depend on schemas.
fn stream_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "oneOf": [
            { "description": "Pieces as messages of working statuses, then the whole answer as one artifact.", "const": "status" },
            { "description": "Pieces as appended parts of the artifact.", "const": "artifact" },
            { "description": "The whole answer as one artifact, no pieces.", "const": "whole" },
        ],
    })
}

/// `[a2a.auth]`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "a2a.auth")]
pub(crate) struct Auth {
    /// The callers. Each sends its token as `Authorization: Bearer TOKEN`. The file refers to the token and never holds it.
    ///
    /// Example: `tokens = [{ name = "platform", token = { env = "PLATFORM_TOKEN" } }]`
    pub(crate) tokens: Vec<Token>,
    /// Lets everybody who can reach the address call without a token. In a workspace, `false` needs no `tokens`, since the
    /// platform has a token.
    ///
    /// Default: `false`; on loopback, or in a workspace (`WORKSPACE_ID` is set), `true` while there are no tokens
    ///
    /// Example: `open = true`
    pub(crate) open: Option<bool>,
}

/// A caller.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table like { name = \"…\", token = { env = \"…\" } }")]
#[schemars(rename = "a2a.auth.tokens")]
pub(crate) struct Token {
    /// The name of the caller with this token. Tasks belong to this name.
    ///
    /// Example: `name = "platform"`
    pub(crate) name: String,
    /// The environment variable or the file that holds the token. A file is read every two seconds, so a new token takes
    /// effect without a restart.
    ///
    /// Example: `token = { file = "/run/secrets/platform" }`
    pub(crate) token: SecretRef,
    /// How streams and push notifications send this caller an answer that arrives in pieces.
    ///
    /// Default: `a2a.stream`
    ///
    /// Example: `stream = "whole"`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "stream_schema")]
    pub(crate) stream: Option<StreamAs>,
    /// How much this caller may take, with the keys of `[limits.caller]`.
    ///
    /// Default: `limits.caller`
    ///
    /// Example: `limits = { turns = 10, turns_per_minute = 60 }`
    #[serde(default)]
    pub(crate) limits: CallerLimits,
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
    /// The purpose of the agent, in a sentence.
    ///
    /// Example: `description = "Finds and summarises papers."`
    pub(crate) description: String,
    /// The agent's version.
    ///
    /// Default: the version of Talaria
    ///
    /// Example: `version = "2.1.0"`
    pub(crate) version: Option<String>,
    /// The skills of the agent, for callers that choose among agents.
    ///
    /// Default: one skill, `chat`
    ///
    /// Example: `skills = [{ id = "papers", name = "Papers", description = "Finds papers.", tags = ["search"] }]`
    pub(crate) skills: Option<Vec<Skill>>,
    /// Offers streaming. Otherwise streaming operations are rejected.
    ///
    /// Example: `streaming = false`
    pub(crate) streaming: bool,
    /// Offers push notifications. Otherwise operations on them are rejected.
    ///
    /// Example: `push_notifications = false`
    pub(crate) push_notifications: bool,
    /// Offers the extended card to callers. It is not offered without tokens, because callers then have no names.
    ///
    /// Example: `extended_card = false`
    pub(crate) extended_card: bool,
    /// The protocol extensions that the card declares. A caller that does not name a required one is rejected.
    ///
    /// Example: `extensions = [{ uri = "https://example.com/ext/v1", required = false }]`
    pub(crate) extensions: Vec<Extension>,
    /// Signs the card and the extended card, so that callers can verify them. Without this section they are not signed.
    pub(crate) signing: Option<Signing>,
}

/// `[a2a.card.signing]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table like { key = { file = \"…\" }, kid = \"…\" }")]
#[schemars(rename = "a2a.card.signing")]
pub(crate) struct Signing {
    /// The private key: PKCS#8 in PEM, Ed25519 or P-256. `openssl genpkey -algorithm ed25519 -out card-key.pem`
    /// makes one; `openssl pkey -in card-key.pem -pubout` prints the public key for callers.
    ///
    /// Example: `key = { file = "/run/secrets/card-key.pem" }`
    pub(crate) key: SecretRef,
    /// The id of the key, by which callers find the public key.
    ///
    /// Example: `kid = "desk-2026"`
    pub(crate) kid: String,
    /// The address of the public key, as a JSON Web Key Set.
    ///
    /// Default: none
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
    /// Keywords.
    ///
    /// Example: `tags = ["search"]`
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    /// Example prompts.
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
    /// Whether a caller must support it.
    ///
    /// Example: `required = true`
    #[serde(default)]
    pub(crate) required: bool,
}

// === defaults ===

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
            grpc: Grpc::default(),
            card: Card::default(),
        }
    }
}

impl Default for Grpc {
    fn default() -> Self {
        Self { listen: None, address: None, offered: true }
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
