//! Agent cards: which of an agent's addresses to call. Reads 1.0 cards, 0.3 cards, and cards that are both at once.

use serde_json::{Map, Value};
use talaria_egress::Origin;

use crate::error::ClientError;

/// A version of A2A. Newer versions compare greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// A2A 0.3.
    V0_3,
    /// A2A 1.0.
    V1_0,
}

/// The parts of an agent card that a client needs.
#[derive(Debug)]
pub struct Card {
    /// The interfaces that this client can call, in the card's order.
    interfaces: Vec<Interface>,
    /// The interfaces that it cannot call, like `GRPC 1.0`.
    others: Vec<String>,
    /// Whether the card says that the agent does not stream.
    streaming_disabled: bool,
}

/// An address of an agent, and the protocol version that it speaks over JSON-RPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The address to post requests to.
    pub url: String,
    /// The protocol version.
    pub protocol: Protocol,
    /// The tenant that the card asks callers to send along.
    pub tenant: Option<String>,
}

// === impl Protocol ===

impl Protocol {
    /// Returns the version as the `A2A-Version` header spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_3 => "0.3",
            Self::V1_0 => "1.0",
        }
    }
}

// === impl Card ===

impl Card {
    /// Reads a card. Returns `None` if the document is not an agent card.
    pub fn read(card: Map<String, Value>) -> Option<Self> {
        let streaming = card.get("capabilities").and_then(|capabilities| capabilities.get("streaming"));
        let streaming_disabled = streaming.and_then(Value::as_bool) == Some(false);
        let mut read = Self { interfaces: Vec::new(), others: Vec::new(), streaming_disabled };
        let list = |key: &str| card.get(key).and_then(Value::as_array).into_iter().flatten();
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        for interface in list("supportedInterfaces") {
            let version = text(interface, "protocolVersion").unwrap_or_else(|| "1.0".into());
            let binding = text(interface, "protocolBinding").unwrap_or_default();
            let tenant = text(interface, "tenant").filter(|tenant| !tenant.is_empty());
            read.add(text(interface, "url")?, &binding, &version, tenant);
        }
        let whole = Value::Object(card.clone());
        if let Some(url) = text(&whole, "url") {
            // A 0.3 card, or a 0.2 card, whose `message/send` is the same.
            let binding = text(&whole, "preferredTransport").unwrap_or_else(|| "JSONRPC".into());
            read.add(url, &binding, "0.3", None);
            for interface in list("additionalInterfaces") {
                read.add(
                    text(interface, "url")?,
                    &text(interface, "transport").unwrap_or_default(),
                    "0.3",
                    None,
                );
            }
        }
        (!read.interfaces.is_empty() || !read.others.is_empty()).then_some(read)
    }

    fn add(&mut self, url: String, binding: &str, version: &str, tenant: Option<String>) {
        let protocol = match version.split('.').next() {
            Some("1") => Some(Protocol::V1_0),
            Some("0") => Some(Protocol::V0_3),
            _ => None,
        };
        match protocol {
            Some(protocol) if binding.eq_ignore_ascii_case("JSONRPC") => {
                self.interfaces.push(Interface { url, protocol, tenant });
            }
            _ => self.others.push(format!("{binding} {version}")),
        }
    }

    /// Whether the agent may stream. True unless the card says otherwise: an agent that does not stream rejects the request.
    pub fn may_stream(&self) -> bool {
        !self.streaming_disabled
    }

    /// Returns the first interface of the wanted version, or of the newest version if the caller does not mind.
    pub fn interface(&self, wanted: Option<Protocol>) -> Result<Interface, ClientError> {
        let newest = self.interfaces.iter().map(|interface| interface.protocol).max();
        let newest =
            newest.ok_or_else(|| ClientError::NoCommonInterface { offered: self.others.join(", ") })?;
        let wanted = wanted.unwrap_or(newest);
        let mut interfaces = self.interfaces.iter();
        let found = interfaces.find(|interface| interface.protocol == wanted).cloned();
        found.ok_or(ClientError::VersionNotOffered { wanted, newest })
    }
}

/// Whether two addresses have the same origin. `localhost`, `127.0.0.1` and `[::1]` count as one host. An address that
/// `egress` would not call has no origin.
#[allow(unreachable_pub, reason = "public to the fuzz targets only")]
pub fn same_origin(one: &str, other: &str) -> bool {
    let canonical = |url: &str| {
        let origin: Origin = url.parse().ok()?;
        let text = origin.to_string();
        Some(match origin.host() {
            host @ ("127.0.0.1" | "[::1]") => text.replacen(host, "localhost", 1),
            _ => text,
        })
    };
    canonical(one).is_some_and(|one| Some(one) == canonical(other))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn card(card: Value) -> Option<Card> {
        Card::read(card.as_object().cloned().expect("an object"))
    }

    fn picked(value: Value, wanted: Option<Protocol>) -> Result<(String, Protocol), String> {
        let interface = card(value).expect("a card").interface(wanted);
        interface.map(|interface| (interface.url, interface.protocol)).map_err(|error| error.to_string())
    }

    fn union() -> Value {
        json!({
            "supportedInterfaces": [
                { "url": "http://a:1/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0" },
                { "url": "http://a/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3" },
                { "url": "http://a/new", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
                { "url": "http://a/newer", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
            ],
            "url": "http://a/legacy", "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0",
        })
    }

    #[test]
    fn prefers_the_newest_version_then_the_order_of_the_card() {
        assert_eq!(picked(union(), None), Ok(("http://a/new".into(), Protocol::V1_0)));
        assert_eq!(picked(union(), Some(Protocol::V0_3)), Ok(("http://a/old".into(), Protocol::V0_3)));
    }

    #[test]
    fn reads_a_card_of_0_3() {
        let plain = json!({ "name": "a", "url": "http://a/" });
        assert_eq!(picked(plain.clone(), None), Ok(("http://a/".into(), Protocol::V0_3)));
        assert_eq!(
            picked(plain, Some(Protocol::V1_0)),
            Err("the agent does not offer A2A 1.0; it offers 0.3".into())
        );
        let additional = json!({
            "url": "http://a/grpc", "preferredTransport": "GRPC",
            "additionalInterfaces": [{ "url": "http://a/rpc", "transport": "JSONRPC" }],
        });
        assert_eq!(picked(additional, None), Ok(("http://a/rpc".into(), Protocol::V0_3)));
    }

    #[test]
    fn names_the_interfaces_that_it_cannot_call() {
        let grpc = json!({ "supportedInterfaces": [
            { "url": "a:1", "protocolBinding": "GRPC", "protocolVersion": "1.0" },
            { "url": "http://a", "protocolBinding": "JSONRPC", "protocolVersion": "2.0" },
        ] });
        assert_eq!(
            picked(grpc, None),
            Err("the agent offers GRPC 1.0, JSONRPC 2.0 only; this client speaks A2A 1.0 and 0.3 over JSON-RPC".into())
        );
        assert!(card(json!({ "openapi": "3.1.0" })).is_none());
    }

    #[test]
    fn compares_origins_after_normalising_them() {
        assert!(same_origin("http://localhost:8000", "http://127.0.0.1:8000/x"));
        assert!(same_origin("https://A.example", "https://a.example:443/"));
        assert!(!same_origin("http://a.example", "https://a.example"));
        assert!(!same_origin("http://localhost:1", "http://127.0.0.1:2"));
        assert!(!same_origin("http://a.example", "http://a.example.evil"));
    }
}
