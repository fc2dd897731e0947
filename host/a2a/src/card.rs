//! The agent card: one address that serves both versions.
//!
//! Who states 1.x gets the fields of 1.0 and no other. Everybody else gets a union: the same fields, and beside them
//! those that only 0.3 knows (`url`, `preferredTransport`, `security`, …), since a client that looks for the first time
//! states nothing, and each version ignores the other's. It promises only what is served.
//!
//! Written, and signed where that is asked for, once for each change: every GET is a copy of a pointer, and the ETag
//! changes exactly when a byte does. Both documents have the same signatures, which are of the card of 1.0. The card
//! is public, since it says how to authenticate. A card for another address than the configured one is written when it is
//! asked for.

use std::time::SystemTime;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, ETAG, HeaderValue, IF_NONE_MATCH, LAST_MODIFIED, VARY};
use http::{HeaderMap, Method, Response, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::respond::{self, Body};
use crate::sign::CardSigner;
use crate::tell;
use crate::version::Version;

/// What the card says about the agent.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CardConfig {
    /// The agent's name. Example: `name = "Research desk"`
    pub name: String,
    /// What it is for, in a sentence or two. Example: `description = "Answers questions about our papers."`
    pub description: String,
    /// The agent's own version. Example: `version = "2.1.0"`
    pub version: String,
    /// Who runs it. Example: `provider = { organization = "ACME", url = "https://acme.example" }`
    pub provider: Option<Provider>,
    /// Where to read more. Example: `documentation_url = "https://acme.example/agent"`
    pub documentation_url: Option<String>,
    /// A picture. Example: `icon_url = "https://acme.example/agent.png"`
    pub icon_url: Option<String>,
    /// Media types that it takes. Example: `default_input_modes = ["text/plain", "application/json"]`
    pub default_input_modes: Vec<String>,
    /// Media types that it answers with. Example: `default_output_modes = ["text/plain"]`
    pub default_output_modes: Vec<String>,
    /// Whether clients may stream. Example: `streaming = false`
    pub streaming: bool,
    /// Whether the card offers push notifications. Example: `push_notifications = true`
    pub push_notifications: bool,
    /// Whether there is a card for callers with a token: this one with `extended_skills`. Example: `extended_card = true`
    pub extended_card: bool,
    /// What only the extended card shows. Example: `extended_skills = [{ id = "admin", name = "Admin", description = "Restarts.", tags = ["ops"] }]`
    pub extended_skills: Vec<Skill>,
    /// Extensions of the protocol. Example: `extensions = [{ uri = "https://acme.example/ext", required = true }]`
    pub extensions: Vec<Extension>,
    /// What it can do. Example: `skills = [{ id = "chat", name = "Chat", description = "Talks.", tags = ["chat"] }]`
    pub skills: Vec<Skill>,
}

/// Who runs an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// The organization's name.
    pub organization: String,
    /// Its site.
    pub url: String,
}

/// An extension of the protocol that an agent knows.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Extension {
    /// Its name.
    pub uri: String,
    /// Refuse callers that do not name it.
    #[serde(default)]
    pub required: bool,
    /// How the agent uses it.
    #[serde(default)]
    pub description: Option<String>,
}

/// One thing that an agent can do.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    /// Unique in the card.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Things to say to it.
    #[serde(default)]
    pub examples: Vec<String>,
    /// Media types that it takes, where they are not the card's.
    #[serde(default)]
    pub input_modes: Vec<String>,
    /// Media types that it answers with, where they are not the card's.
    #[serde(default)]
    pub output_modes: Vec<String>,
}

/// The card, ready to send.
#[derive(Debug)]
pub(crate) struct Card {
    one: Document,
    union: Document,
    since: HeaderValue,
}

#[derive(Debug)]
struct Document {
    body: Bytes,
    etag: HeaderValue,
}

/// How long a client may use the card without asking again: a changed agent is known within a minute.
const CACHE: HeaderValue = HeaderValue::from_static("max-age=60");

/// The bindings.
const JSONRPC: &str = "JSONRPC";
const REST: &str = "HTTP+JSON";

/// The name of the security scheme.
const BEARER: &str = "bearer";

impl Default for CardConfig {
    fn default() -> Self {
        Self {
            name: "Talaria".into(),
            description: "An agent behind a Talaria bridge".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            provider: None,
            documentation_url: None,
            icon_url: None,
            default_input_modes: vec!["text/plain".into()],
            default_output_modes: vec!["text/plain".into()],
            streaming: true,
            push_notifications: false,
            extended_card: false,
            extended_skills: Vec::new(),
            extensions: Vec::new(),
            skills: vec![Skill {
                id: "chat".into(),
                name: "Chat".into(),
                description: "Takes a message and answers it".into(),
                tags: vec!["chat".into()],
                examples: Vec::new(),
                input_modes: Vec::new(),
                output_modes: Vec::new(),
            }],
        }
    }
}

// === impl CardConfig ===

impl CardConfig {
    /// The document. `url` is where the server is reached, `secured` whether it asks for a token, `version` who reads it.
    fn document(&self, url: &str, secured: bool, extended: bool, version: Version) -> Value {
        let interface = |binding: &str, version: Version| json!({ "url": url, "protocolBinding": binding, "protocolVersion": version.as_str() });
        let mut card = Map::new();
        let mut put = |name: &str, value: Value| card.insert(name.into(), value);
        put("name", json!(self.name));
        put("description", json!(self.description));
        put(
            "supportedInterfaces",
            json!([
                interface(JSONRPC, Version::V1),
                interface(REST, Version::V1),
                interface(JSONRPC, Version::V03),
                // Clients of 0.3 add the `/v1` themselves.
                interface(REST, Version::V03),
            ]),
        );
        if let Some(provider) = &self.provider {
            put("provider", json!(provider));
        }
        put("version", json!(self.version));
        if let Some(url) = &self.documentation_url {
            put("documentationUrl", json!(url));
        }
        put("capabilities", self.capabilities());
        if secured {
            // Each version reads the member that it knows, in the same scheme.
            // The name is spelt the same in both: the Python SDK reads that of 0.3 into the field of 1.0.
            let one = json!({ "scheme": "Bearer" });
            let scheme = match version {
                Version::V1 => json!({ "httpAuthSecurityScheme": one }),
                Version::V03 => json!({ "httpAuthSecurityScheme": one, "type": "http", "scheme": "Bearer" }),
            };
            put("securitySchemes", json!({ BEARER: scheme }));
            put("securityRequirements", json!([{ "schemes": { BEARER: { "list": [] } } }]));
        }
        put("defaultInputModes", json!(self.default_input_modes));
        put("defaultOutputModes", json!(self.default_output_modes));
        let more = if extended { self.extended_skills.as_slice() } else { &[] };
        put("skills", self.skills.iter().chain(more).map(Skill::document).collect());
        if let Some(url) = &self.icon_url {
            put("iconUrl", json!(url));
        }
        if version == Version::V1 {
            return Value::Object(card);
        }
        // From here on, 0.3 alone.
        put("protocolVersion", json!("0.3.0"));
        put("url", json!(url));
        put("preferredTransport", json!(JSONRPC));
        put(
            "additionalInterfaces",
            json!([{ "url": url, "transport": JSONRPC }, { "url": url, "transport": REST }]),
        );
        put("supportsAuthenticatedExtendedCard", json!(self.extended_card));
        if secured {
            put("security", json!([{ BEARER: [] }]));
        }
        Value::Object(card)
    }

    /// The documents, that of 1.0 and that for both, signed where there is a signer. The extended ones are for callers
    /// that proved who they are.
    pub(crate) fn documents(
        &self,
        url: &str,
        secured: bool,
        extended: bool,
        signer: Option<&CardSigner>,
    ) -> (Value, Value) {
        let document = |version| self.document(url, secured, extended, version);
        let (mut one, mut union) = (document(Version::V1), document(Version::V03));
        if let Some(signer) = signer {
            let signatures = signer.signatures(&one);
            for card in [&mut one, &mut union].into_iter().filter_map(Value::as_object_mut) {
                card.insert("signatures".into(), signatures.clone());
            }
        }
        (one, union)
    }

    fn capabilities(&self) -> Value {
        let mut capabilities = json!({
            "streaming": self.streaming,
            "pushNotifications": self.push_notifications,
            "extendedAgentCard": self.extended_card,
        });
        if let Some(capabilities) = capabilities.as_object_mut()
            && self.all_extensions().next().is_some()
        {
            let extensions = self.all_extensions().map(|extension| extension.document()).collect();
            capabilities.insert("extensions".into(), extensions);
        }
        capabilities
    }

    /// Those of the configuration, and the server's own.
    pub(crate) fn all_extensions(&self) -> impl Iterator<Item = Extension> {
        let own = |(_, uri, description): &(_, &str, &str)| Extension {
            uri: (*uri).to_owned(),
            required: false,
            description: Some((*description).to_owned()),
        };
        let own = tell::EXTENSIONS.iter().filter(|_| self.streaming).map(own);
        self.extensions.iter().cloned().chain(own)
    }
}

// === impl Extension ===

impl Extension {
    fn document(&self) -> Value {
        let mut extension = Map::new();
        extension.insert("uri".into(), json!(self.uri));
        if let Some(description) = &self.description {
            extension.insert("description".into(), json!(description));
        }
        if self.required {
            extension.insert("required".into(), json!(true));
        }
        Value::Object(extension)
    }
}

// === impl Skill ===

impl Skill {
    fn document(&self) -> Value {
        let mut skill = json!({
            "id": self.id, "name": self.name, "description": self.description, "tags": self.tags,
        });
        let lists = [
            ("examples", &self.examples),
            ("inputModes", &self.input_modes),
            ("outputModes", &self.output_modes),
        ];
        if let Some(skill) = skill.as_object_mut() {
            for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
                skill.insert(name.into(), json!(list));
            }
        }
        skill
    }
}

// === impl Card ===

impl Card {
    pub(crate) fn new(config: &CardConfig, url: &str, secured: bool, signer: Option<&CardSigner>) -> Self {
        let (one, union) = config.documents(url, secured, false, signer);
        Self {
            one: Document::new(&one),
            union: Document::new(&union),
            since: header(httpdate::fmt_http_date(SystemTime::now())),
        }
    }

    /// The same card at another address.
    pub(crate) fn at(&self, config: &CardConfig, url: &str, secured: bool) -> Self {
        Self { since: self.since.clone(), ..Self::new(config, url, secured, None) }
    }

    /// Answers GET and HEAD of a caller who states the version `asked`. `vary` names the headers that the card depends on.
    pub(crate) fn respond(
        &self,
        method: &Method,
        headers: &HeaderMap,
        asked: Option<&str>,
        vary: &'static str,
    ) -> Response<Body> {
        let document = if Version::V1.serves(asked) { &self.one } else { &self.union };
        let mut response = if document.is_known_to(headers) {
            let mut response = Response::new(Body::default());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else if method == Method::HEAD {
            let mut response = respond::json(StatusCode::OK, Bytes::new());
            response.headers_mut().insert(CONTENT_LENGTH, document.body.len().into());
            response
        } else {
            respond::json(StatusCode::OK, document.body.clone())
        };
        let headers = response.headers_mut();
        headers.insert(ETAG, document.etag.clone());
        headers.insert(LAST_MODIFIED, self.since.clone());
        headers.insert(CACHE_CONTROL, CACHE);
        headers.insert(VARY, HeaderValue::from_static(vary));
        response
    }
}

// === impl Document ===

impl Document {
    fn new(card: &Value) -> Self {
        let body = Bytes::from(card.to_string());
        Self { etag: header(format!("\"{:016x}\"", fnv1a(&body))), body }
    }

    fn is_known_to(&self, headers: &HeaderMap) -> bool {
        let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        known
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag).as_bytes() == self.etag.as_bytes())
    }
}

fn header(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// FNV-1a: the same on every machine and in every release, which std's hashers do not promise. It tells two cards
/// apart; it keeps nobody out.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_etag_follows_the_bytes() {
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8, "the published test vector");
        let config = CardConfig::default();
        let card = Card::new(&config, "http://a", false, None);
        assert_eq!(card.one.etag, Card::new(&config, "http://a", false, None).one.etag);
        assert_ne!(card.one.etag, Card::new(&config, "http://b", false, None).one.etag);
        assert_ne!(card.one.etag, Card::new(&config, "http://a", true, None).one.etag);
        assert_ne!(card.one.etag, card.union.etag);
    }

    #[test]
    fn the_rust_sdk_reads_the_card_and_writes_its_part_of_it() {
        let card = CardConfig::default().document("http://127.0.0.1:8000", true, false, Version::V03);
        let read: a2a::AgentCard = serde_json::from_value(card.clone()).unwrap();
        let written = serde_json::to_value(read).unwrap();
        assert_eq!(
            written,
            CardConfig::default().document("http://127.0.0.1:8000", true, false, Version::V1)
        );
        for (name, value) in written.as_object().unwrap() {
            if name == "securitySchemes" {
                assert_eq!(
                    value[BEARER]["httpAuthSecurityScheme"],
                    card[name][BEARER]["httpAuthSecurityScheme"]
                );
            } else {
                assert_eq!(value, &card[name], "{name}");
            }
        }
    }
}
