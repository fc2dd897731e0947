//! The agent's card: where the agent is, and what it speaks there.
//!
//! Of the interfaces that the card lists, the newest version is taken, and JSON-RPC before HTTP+JSON. An interface must be
//! at the origin of `url`, or the settings name it: a card is the agent's word, and the operator's is what counts for where
//! messages and the token go.

use serde_json::Value;
use talaria_guest::{Failure, FailureKind};
use talaria_upstream::{PROBE_TIMEOUT_MS, excerpt};

use crate::address::{card_url, is_same_origin, origin};
use crate::fault::error;
use crate::peer::{Binding, Peer, Version, get};
use crate::{Settings, Wanted};

/// The largest card. Those with many skills have some ten KiB.
const BYTES: u32 = 1 << 20;
/// The interfaces of a card that are looked at.
const INTERFACES: usize = 32;
/// The extension by which a talaria sends the pieces of an answer as pieces of its artifact.
const PIECES: &str = "urn:talaria:stream:artifact";

/// The card of an agent.
pub(crate) struct Card(Value);

/// An interface, as the card lists it.
struct Interface {
    url: String,
    binding: String,
    version: String,
    tenant: Option<String>,
}

impl Card {
    /// Reads the agent's card.
    pub(crate) fn read(settings: &Settings) -> Result<Self, Failure> {
        let url = card_url(&settings.url);
        let card = get(&url, &settings.token, BYTES, PROBE_TIMEOUT_MS)?;
        if !card.is_object() {
            return Err(error(&format!("its card at {url} is no JSON object")));
        }
        Ok(Self(card))
    }

    /// Whether the agent says that it answers only callers that it knows.
    pub(crate) fn wants_token(&self) -> bool {
        let is_set = |name| self.0.get(name).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        is_set("securityRequirements") || is_set("security")
    }

    /// Chooses the interface to speak to.
    pub(crate) fn peer(&self, settings: &Settings) -> Result<Peer, Failure> {
        let interfaces = self.interfaces();
        let mut known: Vec<(&Interface, Version, Binding)> = interfaces
            .iter()
            .filter_map(|interface| Some((interface, interface.version()?, interface.binding()?)))
            .filter(|(_, version, _)| match settings.version {
                Wanted::Auto => true,
                Wanted::V1 => *version == Version::V1,
                Wanted::V03 => *version == Version::V03,
            })
            .filter(|(_, version, binding)| (*version, *binding) != (Version::V03, Binding::Rest))
            .collect();
        // Stable, so that the card's own order decides between equals.
        known.sort_by_key(|(_, version, binding)| (*version != Version::V1, *binding != Binding::JsonRpc));
        let is_ours = |url: &str| !settings.interface_url.is_empty() || is_same_origin(url, &settings.url);
        let chosen = known.iter().find(|(interface, ..)| is_ours(&interface.url)).or(known.first());
        let Some((interface, version, binding)) = chosen else {
            return Err(no_interface(&interfaces, settings));
        };
        if !is_ours(&interface.url) {
            return Err(elsewhere(&interface.url, settings));
        }
        let url = match settings.interface_url.as_str() {
            "" => interface.url.clone(),
            other => other.to_owned(),
        };
        let tenant = Some(settings.tenant.clone()).filter(|tenant| !tenant.is_empty());
        Ok(Peer {
            url,
            binding: *binding,
            version: *version,
            tenant: tenant.or_else(|| interface.tenant.clone()),
            streams: self.0.pointer("/capabilities/streaming") == Some(&Value::Bool(true)),
            token: settings.token.clone(),
            extension: self.has_pieces().then(|| PIECES.to_owned()),
        })
    }

    fn has_pieces(&self) -> bool {
        let listed = self.0.pointer("/capabilities/extensions").and_then(Value::as_array);
        listed.is_some_and(|listed| {
            listed.iter().any(|extension| extension.get("uri").and_then(Value::as_str) == Some(PIECES))
        })
    }

    /// The interfaces in the fields of 1.0, then those in the fields of 0.3.
    fn interfaces(&self) -> Vec<Interface> {
        let text = |from: &Value, name: &str| {
            from.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let list = |name: &str| self.0.get(name).and_then(Value::as_array).into_iter().flatten();
        let new = list("supportedInterfaces").filter_map(|interface| {
            Some(Interface {
                url: text(interface, "url")?,
                binding: text(interface, "protocolBinding")?,
                version: text(interface, "protocolVersion").unwrap_or_else(|| "1.0".into()),
                tenant: text(interface, "tenant"),
            })
        });
        let old = text(&self.0, "protocolVersion").unwrap_or_else(|| "0.3".into());
        let main = text(&self.0, "url").map(|url| Interface {
            url,
            binding: text(&self.0, "preferredTransport").unwrap_or_else(|| "JSONRPC".into()),
            version: old.clone(),
            tenant: None,
        });
        let others = list("additionalInterfaces").filter_map(|interface| {
            Some(Interface {
                url: text(interface, "url")?,
                binding: text(interface, "transport")?,
                version: old.clone(),
                tenant: None,
            })
        });
        new.chain(main).chain(others).take(INTERFACES).collect()
    }
}

impl Interface {
    fn version(&self) -> Option<Version> {
        match self.version.split('.').next() {
            Some("1") => Some(Version::V1),
            Some("0") if self.version.starts_with("0.3") || self.version.starts_with("0.2") => {
                Some(Version::V03)
            }
            _ => None,
        }
    }

    fn binding(&self) -> Option<Binding> {
        match self.binding.to_ascii_uppercase().as_str() {
            "JSONRPC" => Some(Binding::JsonRpc),
            "HTTP+JSON" => Some(Binding::Rest),
            _ => None,
        }
    }
}

fn no_interface(interfaces: &[Interface], settings: &Settings) -> Failure {
    let listed: Vec<_> = interfaces
        .iter()
        .take(4)
        .map(|Interface { binding, version, .. }| excerpt(&format!("{binding} {version}")))
        .collect();
    let listed = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
    let wanted = match settings.version {
        Wanted::Auto => "",
        Wanted::V1 => " (the setting `version` wants 1.0)",
        Wanted::V03 => " (the setting `version` wants 0.3)",
    };
    error(&format!(
        "its card offers no interface that this executor speaks, which are JSONRPC 1.0, HTTP+JSON 1.0 and JSONRPC \
         0.3{wanted}; the card lists {listed}"
    ))
}

/// The failure of a card that leads to another origin.
fn elsewhere(url: &str, settings: &Settings) -> Failure {
    let shown = excerpt(url);
    Failure::new(
        FailureKind::Denied,
        format!(
            "[agent error] its card leads to {shown}, which is not at {}; if that is the agent too, set \
             settings.interface_url = \"{shown}\", and grant it with egress = [\"POST {}/*\"] where the grant lists calls",
            origin(&settings.url),
            origin(&shown),
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(more: Value) -> Settings {
        let mut settings = json!({ "url": "http://h:1/agent" });
        settings.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        serde_json::from_value(settings).unwrap()
    }

    fn one(url: &str, binding: &str, version: &str) -> Value {
        json!({ "url": url, "protocolBinding": binding, "protocolVersion": version })
    }

    fn chosen(interfaces: &[Value], more: Value) -> Result<(String, Binding, Version), String> {
        let card = Card(json!({ "supportedInterfaces": interfaces }));
        let peer = card.peer(&settings(more));
        peer.map(|peer| (peer.url, peer.binding, peer.version)).map_err(|failure| failure.message)
    }

    #[test]
    fn the_newest_version_and_json_rpc_come_first() {
        let (rpc, rest) = (one("http://h:1/rpc", "JSONRPC", "1.0"), one("http://h:1/v1", "HTTP+JSON", "1.0"));
        let (old, grpc) = (one("http://h:1/old", "JSONRPC", "0.3"), one("h:2", "GRPC", "1.0"));
        let new = Ok(("http://h:1/rpc".to_owned(), Binding::JsonRpc, Version::V1));
        for interfaces in [vec![&rpc], vec![&grpc, &rest, &old, &rpc], vec![&rpc, &rest]] {
            let interfaces: Vec<Value> = interfaces.into_iter().cloned().collect();
            assert_eq!(chosen(&interfaces, json!({})), new);
        }
        let all = [rpc.clone(), rest.clone(), old.clone(), grpc.clone()];
        assert_eq!(
            chosen(&[old.clone(), rest], json!({})),
            Ok(("http://h:1/v1".to_owned(), Binding::Rest, Version::V1))
        );
        assert_eq!(
            chosen(&all, json!({ "version": "0.3" })),
            Ok(("http://h:1/old".to_owned(), Binding::JsonRpc, Version::V03))
        );
        let none = chosen(&[grpc], json!({})).unwrap_err();
        assert!(none.contains("the card lists GRPC 1.0"), "{none}");
    }

    #[test]
    fn the_fields_of_0_3_count_too() {
        let card = Card(
            json!({ "protocolVersion": "0.3.0", "url": "http://h:1/", "capabilities": { "streaming": true } }),
        );
        let peer = card.peer(&settings(json!({ "tenant": "t" }))).unwrap();
        assert_eq!((peer.version, peer.binding, peer.streams), (Version::V03, Binding::JsonRpc, true));
        assert_eq!(peer.tenant.as_deref(), Some("t"));
        let card = Card(json!({
            "url": "h:2", "preferredTransport": "GRPC", "protocolVersion": "0.3.0",
            "additionalInterfaces": [{ "url": "http://h:1/x", "transport": "JSONRPC" }],
        }));
        assert_eq!(card.peer(&settings(json!({}))).unwrap().url, "http://h:1/x");
    }

    #[test]
    fn another_origin_needs_the_operators_word() {
        let there = one("http://other:9/rpc", "JSONRPC", "1.0");
        let refused = chosen(std::slice::from_ref(&there), json!({})).unwrap_err();
        assert_eq!(
            refused,
            "[agent error] its card leads to http://other:9/rpc, which is not at http://h:1; if that is the agent too, set \
             settings.interface_url = \"http://other:9/rpc\", and grant it with egress = [\"POST http://other:9/*\"] where \
             the grant lists calls"
        );
        let here = one("http://h:1/old", "JSONRPC", "0.3");
        assert_eq!(
            chosen(&[there.clone(), here], json!({})),
            Ok(("http://h:1/old".to_owned(), Binding::JsonRpc, Version::V03))
        );
        assert_eq!(
            chosen(&[there], json!({ "interface_url": "http://i:2/x" })),
            Ok(("http://i:2/x".to_owned(), Binding::JsonRpc, Version::V1))
        );
    }

    #[test]
    fn a_token_and_pieces_are_as_the_card_says() {
        let card = Card(json!({
            "securityRequirements": [{ "schemes": {} }], "supportedInterfaces": [one("http://h:1", "JSONRPC", "1.0")],
            "capabilities": { "extensions": [{ "uri": "urn:x" }, { "uri": PIECES }] },
        }));
        assert!(card.wants_token());
        assert_eq!(card.peer(&settings(json!({}))).unwrap().extension.as_deref(), Some(PIECES));
        assert!(!Card(json!({ "security": [] })).wants_token());
    }
}
