//! The card as JSON.

use serde_json::{Map, Value, json};

use super::Addresses;
use super::config::{CardConfig, Extension, Skill};
use crate::sign::CardSigner;
use crate::stream_form;
use crate::version::Version;

/// The names of the bindings.
const JSONRPC: &str = "JSONRPC";
const REST: &str = "HTTP+JSON";
const GRPC: &str = "GRPC";

/// The name of the security scheme.
const BEARER: &str = "bearer";

// === impl CardConfig ===

impl CardConfig {
    /// Returns the card of a server at these addresses for a reader of `version`. `secured` says whether callers need a token,
    /// `extended` whether this is the extended card.
    fn document(&self, addresses: &Addresses, secured: bool, extended: bool, version: Version) -> Value {
        let Addresses { url, grpc } = addresses;
        let interface = |url: &str, binding: &str, version: Version| json!({ "url": url, "protocolBinding": binding, "protocolVersion": version.as_str() });
        let mut interfaces = vec![
            interface(url, JSONRPC, Version::V1),
            interface(url, REST, Version::V1),
            interface(url, JSONRPC, Version::V03),
            // Clients of 0.3 append `/v1` themselves.
            interface(url, REST, Version::V03),
        ];
        if let Some(grpc) = grpc {
            interfaces.insert(2, interface(grpc, GRPC, Version::V1));
            interfaces.push(interface(grpc, GRPC, Version::V03));
        }
        let mut card = Map::new();
        let mut put = |name: &str, value: Value| card.insert(name.into(), value);
        put("name", json!(self.name));
        put("description", json!(self.description));
        put("supportedInterfaces", Value::Array(interfaces));
        if let Some(provider) = &self.provider {
            put("provider", json!(provider));
        }
        put("version", json!(self.version));
        if let Some(url) = &self.documentation_url {
            put("documentationUrl", json!(url));
        }
        put("capabilities", self.capabilities());
        if secured {
            // Each version reads its own member of the same scheme. `Bearer` has the same spelling in both, because the Python SDK
            // copies the value of 0.3 into the field of 1.0.
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
        // The fields below exist only in 0.3.
        put("protocolVersion", json!("0.3.0"));
        put("url", json!(url));
        put("preferredTransport", json!(JSONRPC));
        let transports =
            [(url, JSONRPC), (url, REST)].into_iter().chain(grpc.iter().map(|grpc| (grpc, GRPC)));
        put(
            "additionalInterfaces",
            transports.map(|(url, transport)| json!({ "url": url, "transport": transport })).collect(),
        );
        put("supportsAuthenticatedExtendedCard", json!(self.extended_card));
        if secured {
            put("security", json!([{ BEARER: [] }]));
        }
        Value::Object(card)
    }

    /// Returns the card of 1.0 and the card for both versions, signed if there is a signer. The extended ones are for callers
    /// with a token.
    pub(crate) fn documents(
        &self,
        addresses: &Addresses,
        secured: bool,
        extended: bool,
        signer: Option<&CardSigner>,
    ) -> (Value, Value) {
        let document = |version| self.document(addresses, secured, extended, version);
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

    /// The configured extensions, followed by the server's own.
    pub(crate) fn all_extensions(&self) -> impl Iterator<Item = Extension> {
        let own = |(_, uri, description): &(_, &str, &str)| Extension {
            uri: (*uri).to_owned(),
            required: false,
            description: Some((*description).to_owned()),
        };
        let own = stream_form::EXTENSIONS.iter().filter(|_| self.streaming).map(own);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rust_sdk_reads_the_card_and_writes_the_fields_of_1_0() {
        let addresses =
            Addresses { url: "http://127.0.0.1:8000".into(), grpc: Some("127.0.0.1:8000".into()) };
        let card = CardConfig::default().document(&addresses, true, false, Version::V03);
        let read: a2a::AgentCard = serde_json::from_value(card.clone()).unwrap();
        let written = serde_json::to_value(read).unwrap();
        assert_eq!(written, CardConfig::default().document(&addresses, true, false, Version::V1));
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
