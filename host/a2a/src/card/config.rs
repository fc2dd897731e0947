//! The configurable part of the card.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// The organization that runs an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// The organization's name.
    pub organization: String,
    /// Its site.
    pub url: String,
}

/// A protocol extension that an agent supports.
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

/// A skill of an agent.
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
