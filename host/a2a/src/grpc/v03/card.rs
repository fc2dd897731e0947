//! Encodes the card in 0.3, from the JSON that the other bindings serve, as `v1` does.

use serde_json::Value;

use super::pb;
use crate::grpc::v1::card::{at, list, text, texts};

/// Encodes the card in 0.3.
pub(super) fn v03(card: &Value) -> pb::AgentCard {
    let schemes = at(card, "securitySchemes").as_object().into_iter().flatten();
    let capabilities = at(card, "capabilities");
    let flag = |value: &Value, name: &str| at(value, name).as_bool().unwrap_or(false);
    pb::AgentCard {
        name: text(card, "name"),
        description: text(card, "description"),
        url: text(card, "url"),
        provider: card.get("provider").map(|provider| pb::AgentProvider {
            url: text(provider, "url"),
            organization: text(provider, "organization"),
        }),
        version: text(card, "version"),
        documentation_url: text(card, "documentationUrl"),
        capabilities: Some(pb::AgentCapabilities {
            streaming: flag(capabilities, "streaming"),
            push_notifications: flag(capabilities, "pushNotifications"),
            extensions: list(capabilities, "extensions", |extension| pb::AgentExtension {
                uri: text(extension, "uri"),
                description: text(extension, "description"),
                required: flag(extension, "required"),
                params: None,
            }),
        }),
        security_schemes: schemes.map(|(name, scheme)| (name.clone(), security_scheme(scheme))).collect(),
        security: list(card, "security", |requirement| {
            let schemes = requirement.as_object().into_iter().flatten();
            let schemes = schemes.map(|(name, _)| (name.clone(), pb::StringList::default()));
            pb::Security { schemes: schemes.collect() }
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
            security: Vec::new(),
        }),
        supports_authenticated_extended_card: flag(card, "supportsAuthenticatedExtendedCard"),
        preferred_transport: text(card, "preferredTransport"),
        additional_interfaces: list(card, "additionalInterfaces", |interface| pb::AgentInterface {
            url: text(interface, "url"),
            transport: text(interface, "transport"),
        }),
        protocol_version: text(card, "protocolVersion"),
        signatures: list(card, "signatures", |signature| pb::AgentCardSignature {
            protected: text(signature, "protected"),
            signature: text(signature, "signature"),
            header: None,
        }),
        icon_url: text(card, "iconUrl"),
    }
}

fn security_scheme(scheme: &Value) -> pb::SecurityScheme {
    let http = pb::HttpAuthSecurityScheme { scheme: text(scheme, "scheme"), ..Default::default() };
    pb::SecurityScheme { scheme: Some(pb::security_scheme::Scheme::HttpAuthSecurityScheme(http)) }
}
