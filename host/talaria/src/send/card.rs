//! Which address of an agent to call, out of its card: both the 1.0 form and the 0.3 form, and the union of the two.

use serde_json::{Map, Value};

use crate::cli::Protocol;

/// An agent card, as far as calling is concerned.
#[derive(Debug)]
pub(super) struct Card {
    /// What we could call, in the card's order.
    interfaces: Vec<Interface>,
    /// What we could not: `GRPC 1.0`, …
    others: Vec<String>,
    /// Whether the agent says that it does not stream.
    unstreamed: bool,
}

/// An address, and what is spoken there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    /// Where to post.
    pub(super) url: String,
    /// In which version.
    pub(super) protocol: Protocol,
    /// To be sent along.
    pub(super) tenant: Option<String>,
}

// === impl Card ===

impl Card {
    /// Reads a card; `None` if it is none.
    pub(super) fn read(card: Map<String, Value>) -> Option<Self> {
        let streaming = card.get("capabilities").and_then(|capabilities| capabilities.get("streaming"));
        let unstreamed = streaming.and_then(Value::as_bool) == Some(false);
        let mut read = Self { interfaces: Vec::new(), others: Vec::new(), unstreamed };
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
            // 0.3, and before it 0.2, which has the same send.
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

    /// Whether a stream may be asked for. A card that does not say is taken for a yes: the agent refuses by itself.
    pub(super) fn may_stream(&self) -> bool {
        !self.unstreamed
    }

    /// The first address of the wanted version, else of the newest.
    pub(super) fn interface(&self, wanted: Option<Protocol>) -> Result<Interface, String> {
        let newest = self.interfaces.iter().map(|interface| interface.protocol).max();
        let Some(newest) = newest else {
            return Err(format!(
                "the agent offers {} only; `talaria send` speaks A2A 1.0 and 0.3 over JSON-RPC",
                self.others.join(", ")
            ));
        };
        let wanted = wanted.unwrap_or(newest);
        self.interfaces.iter().find(|interface| interface.protocol == wanted).cloned().ok_or_else(|| {
            format!(
                "the agent does not offer A2A {}; leave out --protocol to use {}",
                wanted.as_str(),
                newest.as_str()
            )
        })
    }
}

/// `scheme://host:port` of an address.
pub(super) fn origin(url: &str) -> &str {
    let rest = url.find("://").map_or(0, |at| at + 3);
    let end = url.get(rest..).and_then(|rest| rest.find(['/', '?', '#'])).map_or(url.len(), |at| rest + at);
    url.get(..end).unwrap_or(url)
}

/// Whether two addresses are the same place; the names of this machine's loopback are one.
pub(super) fn same_origin(one: &str, other: &str) -> bool {
    let parts = |url: &str| {
        let uri: http::Uri = url.parse().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
        let host = uri.host()?.to_ascii_lowercase();
        let host = if matches!(host.as_str(), "localhost" | "127.0.0.1" | "[::1]") {
            "localhost".into()
        } else {
            host
        };
        Some((scheme, host, port))
    };
    parts(one).is_some_and(|one| Some(one) == parts(other))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn card(card: Value) -> Option<Card> {
        Card::read(card.as_object().cloned().expect("an object"))
    }

    fn picked(value: Value, wanted: Option<Protocol>) -> Result<(String, Protocol), String> {
        card(value).expect("a card").interface(wanted).map(|interface| (interface.url, interface.protocol))
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
    fn the_newest_version_is_preferred_then_the_cards_order() {
        assert_eq!(picked(union(), None), Ok(("http://a/new".into(), Protocol::V1_0)));
        assert_eq!(picked(union(), Some(Protocol::V0_3)), Ok(("http://a/old".into(), Protocol::V0_3)));
    }

    #[test]
    fn an_old_card_is_enough() {
        let plain = json!({ "name": "a", "url": "http://a/" });
        assert_eq!(picked(plain.clone(), None), Ok(("http://a/".into(), Protocol::V0_3)));
        assert_eq!(
            picked(plain, Some(Protocol::V1_0)),
            Err("the agent does not offer A2A 1.0; leave out --protocol to use 0.3".into())
        );
        let additional = json!({
            "url": "http://a/grpc", "preferredTransport": "GRPC",
            "additionalInterfaces": [{ "url": "http://a/rpc", "transport": "JSONRPC" }],
        });
        assert_eq!(picked(additional, None), Ok(("http://a/rpc".into(), Protocol::V0_3)));
    }

    #[test]
    fn what_we_do_not_speak_is_named() {
        let grpc = json!({ "supportedInterfaces": [
            { "url": "a:1", "protocolBinding": "GRPC", "protocolVersion": "1.0" },
            { "url": "http://a", "protocolBinding": "JSONRPC", "protocolVersion": "2.0" },
        ] });
        assert_eq!(
            picked(grpc, None),
            Err("the agent offers GRPC 1.0, JSONRPC 2.0 only; `talaria send` speaks A2A 1.0 and 0.3 over JSON-RPC".into())
        );
        assert!(card(json!({ "openapi": "3.1.0" })).is_none());
    }

    #[test]
    fn origins_are_compared_as_places() {
        assert_eq!(origin("http://a:1/b?c"), "http://a:1");
        assert_eq!(origin("https://a"), "https://a");
        assert!(same_origin("http://localhost:8000", "http://127.0.0.1:8000/x"));
        assert!(same_origin("https://A.example", "https://a.example:443/"));
        assert!(!same_origin("http://a.example", "https://a.example"));
        assert!(!same_origin("http://localhost:1", "http://127.0.0.1:2"));
        assert!(!same_origin("http://a.example", "http://a.example.evil"));
    }
}
