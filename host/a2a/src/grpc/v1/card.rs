//! Encodes the card, from the JSON that the other bindings serve: one document decides what every caller reads, and its
//! signatures stay those of its JSON.
//!
//! The host declares bearer tokens only, so no other security scheme is encoded.

use serde_json::Value;

use super::pb;

/// The member of an object; `null` if it has none.
pub(crate) fn at<'v>(value: &'v Value, name: &str) -> &'v Value {
    value.get(name).unwrap_or(&Value::Null)
}

/// The text of a member; empty if it has none.
pub(crate) fn text(value: &Value, name: &str) -> String {
    at(value, name).as_str().unwrap_or_default().to_owned()
}

/// The elements of a list; empty if the member is not a list.
pub(crate) fn list<'v, T>(value: &'v Value, name: &str, read: impl Fn(&'v Value) -> T) -> Vec<T> {
    at(value, name).as_array().into_iter().flatten().map(read).collect()
}

/// A list of texts.
pub(crate) fn texts(value: &Value, name: &str) -> Vec<String> {
    list(value, name, |text| text.as_str().unwrap_or_default().to_owned())
}

/// Encodes the card in 1.0.
pub(crate) fn v1(card: &Value) -> pb::AgentCard {
    let optional = |name| at(card, name).as_str().map(str::to_owned);
    let schemes = at(card, "securitySchemes").as_object().into_iter().flatten();
    let capabilities = at(card, "capabilities");
    let flag = |name| at(capabilities, name).as_bool();
    pb::AgentCard {
        name: text(card, "name"),
        description: text(card, "description"),
        supported_interfaces: list(card, "supportedInterfaces", |interface| pb::AgentInterface {
            url: text(interface, "url"),
            protocol_binding: text(interface, "protocolBinding"),
            tenant: text(interface, "tenant"),
            protocol_version: text(interface, "protocolVersion"),
        }),
        provider: card.get("provider").map(|provider| pb::AgentProvider {
            url: text(provider, "url"),
            organization: text(provider, "organization"),
        }),
        version: text(card, "version"),
        documentation_url: optional("documentationUrl"),
        capabilities: Some(pb::AgentCapabilities {
            streaming: flag("streaming"),
            push_notifications: flag("pushNotifications"),
            extensions: list(capabilities, "extensions", |extension| pb::AgentExtension {
                uri: text(extension, "uri"),
                description: text(extension, "description"),
                required: at(extension, "required").as_bool().unwrap_or(false),
                params: None,
            }),
            extended_agent_card: flag("extendedAgentCard"),
        }),
        security_schemes: schemes.map(|(name, scheme)| (name.clone(), security_scheme(scheme))).collect(),
        security_requirements: list(card, "securityRequirements", |requirement| {
            let schemes = at(requirement, "schemes").as_object().into_iter().flatten();
            let schemes =
                schemes.map(|(name, scopes)| (name.clone(), pb::StringList { list: texts(scopes, "list") }));
            pb::SecurityRequirement { schemes: schemes.collect() }
        }),
        default_input_modes: texts(card, "defaultInputModes"),
        default_output_modes: texts(card, "defaultOutputModes"),
        skills: list(card, "skills", |skill| pb::AgentSkill {
            id: text(skill, "id"),
            name: text(skill, "name"),
            description: text(skill, "description"),
            tags: texts(skill, "tags"),
            examples: texts(skill, "examples"),
            input_modes: texts(skill, "inputModes"),
            output_modes: texts(skill, "outputModes"),
            security_requirements: Vec::new(),
        }),
        signatures: list(card, "signatures", |signature| pb::AgentCardSignature {
            protected: text(signature, "protected"),
            signature: text(signature, "signature"),
            header: None,
        }),
        icon_url: optional("iconUrl"),
    }
}

fn security_scheme(scheme: &Value) -> pb::SecurityScheme {
    let http = at(scheme, "httpAuthSecurityScheme");
    let http = pb::HttpAuthSecurityScheme { scheme: text(http, "scheme"), ..Default::default() };
    pb::SecurityScheme { scheme: Some(pb::security_scheme::Scheme::HttpAuthSecurityScheme(http)) }
}
