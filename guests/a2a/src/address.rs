//! URLs, as far as they must be compared and put together.

/// Where the card of an agent is, below its URL.
const CARD: &str = "/.well-known/agent-card.json";

/// A scheme, a host and a port.
#[derive(Debug, PartialEq, Eq)]
struct Origin {
    scheme: String,
    host: String,
    port: String,
}

/// The URL of an agent's card: the URL itself if it is that of a JSON document.
pub(crate) fn card_url(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    if path.ends_with(".json") { url.to_owned() } else { format!("{}{CARD}", url.trim_end_matches('/')) }
}

/// Whether two URLs have the same scheme, host and port.
pub(crate) fn is_same_origin(a: &str, b: &str) -> bool {
    matches!((Origin::of(a), Origin::of(b)), (Some(a), Some(b)) if a == b)
}

/// The URL without its path.
pub(crate) fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + "://".len());
    let end = url.get(host..).and_then(|rest| rest.find(['/', '?', '#']));
    end.and_then(|end| url.get(..host + end)).unwrap_or(url)
}

/// Encodes a text as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

impl Origin {
    fn of(url: &str) -> Option<Self> {
        let (scheme, rest) = origin(url).split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let default = match scheme.as_str() {
            "http" => "80",
            "https" => "443",
            _ => return None,
        };
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
            _ => (rest, ""),
        };
        // Who writes a name before the host means to mislead.
        if host.is_empty() || host.contains('@') {
            return None;
        }
        let port = if port.is_empty() { default } else { port };
        Some(Self { scheme, host: host.to_ascii_lowercase(), port: port.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_is_at_the_url_or_below_it() {
        for (url, card) in [
            ("http://h:1", "http://h:1/.well-known/agent-card.json"),
            ("http://h:1/agents/x/", "http://h:1/agents/x/.well-known/agent-card.json"),
            ("http://h/card.json", "http://h/card.json"),
            ("http://h/.well-known/agent.json?v=1", "http://h/.well-known/agent.json?v=1"),
        ] {
            assert_eq!(card_url(url), card);
        }
    }

    #[test]
    fn origins_are_compared_and_not_texts() {
        for (a, b, same) in [
            ("http://h:1/x", "http://h:1/y?z", true),
            ("http://H", "HTTP://h:80/", true),
            ("https://h:443", "https://h/a", true),
            ("http://[::1]:1/", "http://[::1]:1", true),
            ("http://[::1]", "http://[::1]:80/", true),
            ("http://h:1", "http://h:2", false),
            ("http://h", "https://h", false),
            ("http://h", "http://h.evil", false),
            ("http://h", "http://h@evil/", false),
            ("http://h@evil/", "http://h@evil/", false),
            ("h:1", "h:1", false),
            ("ftp://h", "ftp://h", false),
        ] {
            assert_eq!(is_same_origin(a, b), same, "{a} {b}");
        }
        assert_eq!(origin("http://h:1/a/b?c"), "http://h:1");
    }

    #[test]
    fn an_id_is_one_segment_of_a_path() {
        assert_eq!(segment("a-1/../b?c=%"), "a-1%2F..%2Fb%3Fc%3D%25");
    }
}
