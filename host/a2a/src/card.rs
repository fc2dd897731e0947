//! The agent card: one document that serves both versions.
//!
//! A union: the fields of 1.0, and beside them those that only 0.3 knows (`url`, `preferredTransport`, `security`, …).
//! Each version ignores the other's. It promises only what is served; what grows later flips its flag here.
//!
//! Written once, when the server is made: every GET is a copy of a pointer, and the ETag changes exactly when a
//! byte does. The card is public, since it says how to authenticate.

use std::time::SystemTime;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, ETAG, HeaderValue, IF_NONE_MATCH, LAST_MODIFIED, VARY};
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::Full;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::respond::{self, Body};
use crate::version::{self, Version};

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
    body: Bytes,
    etag: HeaderValue,
    since: HeaderValue,
}

/// How long a client may use the card without asking again: a changed agent is known within a minute.
const CACHE: HeaderValue = HeaderValue::from_static("max-age=60");

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
    /// The document. `url` is where the server is reached, `secured` whether it asks for a token.
    fn document(&self, url: &str, secured: bool) -> Value {
        let interface = |version: Version| json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": version.as_str() });
        let mut card = Map::new();
        let mut put = |name: &str, value: Value| card.insert(name.into(), value);
        put("name", json!(self.name));
        put("description", json!(self.description));
        put("supportedInterfaces", json!([interface(Version::V1), interface(Version::V03)]));
        if let Some(provider) = &self.provider {
            put("provider", json!(provider));
        }
        put("version", json!(self.version));
        if let Some(url) = &self.documentation_url {
            put("documentationUrl", json!(url));
        }
        put(
            "capabilities",
            json!({ "streaming": false, "pushNotifications": false, "extendedAgentCard": false }),
        );
        if secured {
            // Each version reads the member that it knows, in the same scheme.
            let scheme = json!({ "httpAuthSecurityScheme": { "scheme": "Bearer" }, "type": "http", "scheme": "bearer" });
            put("securitySchemes", json!({ BEARER: scheme }));
            put("securityRequirements", json!([{ "schemes": { BEARER: { "list": [] } } }]));
        }
        put("defaultInputModes", json!(self.default_input_modes));
        put("defaultOutputModes", json!(self.default_output_modes));
        put("skills", self.skills.iter().map(Skill::document).collect());
        if let Some(url) = &self.icon_url {
            put("iconUrl", json!(url));
        }
        // From here on, 0.3 alone.
        put("protocolVersion", json!("0.3.0"));
        put("url", json!(url));
        put("preferredTransport", json!("JSONRPC"));
        put("additionalInterfaces", json!([{ "url": url, "transport": "JSONRPC" }]));
        put("supportsAuthenticatedExtendedCard", json!(false));
        if secured {
            put("security", json!([{ BEARER: [] }]));
        }
        Value::Object(card)
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
    pub(crate) fn new(config: &CardConfig, url: &str, secured: bool) -> Self {
        let body = Bytes::from(config.document(url, secured).to_string());
        let header = |text: String| HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
        Self {
            etag: header(format!("\"{:016x}\"", fnv1a(&body))),
            since: header(httpdate::fmt_http_date(SystemTime::now())),
            body,
        }
    }

    /// Answers GET and HEAD.
    pub(crate) fn respond(&self, method: &Method, headers: &HeaderMap) -> Response<Body> {
        let fresh = self.is_known_to(headers);
        let mut response = if fresh {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else if method == Method::HEAD {
            let mut response = respond::json(StatusCode::OK, Bytes::new());
            response.headers_mut().insert(CONTENT_LENGTH, self.body.len().into());
            response
        } else {
            respond::json(StatusCode::OK, self.body.clone())
        };
        let headers = response.headers_mut();
        headers.insert(ETAG, self.etag.clone());
        headers.insert(LAST_MODIFIED, self.since.clone());
        headers.insert(CACHE_CONTROL, CACHE);
        headers.insert(VARY, HeaderValue::from_static(version::NAME));
        response
    }

    fn is_known_to(&self, headers: &HeaderMap) -> bool {
        let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        known
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag).as_bytes() == self.etag.as_bytes())
    }
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
        let card = Card::new(&config, "http://a", false);
        assert_eq!(card.etag, Card::new(&config, "http://a", false).etag);
        assert_ne!(card.etag, Card::new(&config, "http://b", false).etag);
        assert_ne!(card.etag, Card::new(&config, "http://a", true).etag);
    }

    #[test]
    fn the_rust_sdk_reads_the_card_and_writes_its_part_of_it() {
        let card = CardConfig::default().document("http://127.0.0.1:8000", true);
        let read: a2a::AgentCard = serde_json::from_value(card.clone()).unwrap();
        let written = serde_json::to_value(read).unwrap();
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
