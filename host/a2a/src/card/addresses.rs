//! The addresses in the card.
//!
//! gRPC has an address without a scheme and without a path: `host:port`. By default it is that of the card's URL, since all
//! bindings share a port; a URL with a path has none, because what is below a path of a proxy cannot be called with gRPC.

use http::Uri;

/// What the card says about gRPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcAddress {
    /// Whether the card offers gRPC. It is served in any case.
    pub offered: bool,
    /// The address; by default the host of the card's URL.
    pub address: Option<String>,
    /// The port, where it is not that of the card's URL.
    pub port: Option<u16>,
}

/// The addresses of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) url: String,
    /// `None` if gRPC is not offered, or has no address.
    pub(crate) grpc: Option<String>,
}

impl Default for GrpcAddress {
    fn default() -> Self {
        Self { offered: true, address: None, port: None }
    }
}

// === impl Addresses ===

impl Addresses {
    pub(crate) fn new(url: impl Into<String>, grpc: &GrpcAddress) -> Self {
        let url = url.into();
        let grpc = grpc.offered.then(|| grpc.address.clone().or_else(|| of_url(&url, grpc.port))).flatten();
        Self { url, grpc }
    }
}

fn of_url(url: &str, port: Option<u16>) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    let by_default = match url.scheme_str()? {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let has_path = !matches!(url.path(), "" | "/");
    if has_path && port.is_none() {
        return None;
    }
    let port = port.or(url.port_u16()).unwrap_or(by_default);
    Some(format!("{}:{port}", url.host()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_grpc_is_a_host_and_a_port() {
        let on = |port| GrpcAddress { port, ..GrpcAddress::default() };
        for (url, port, address) in [
            ("http://127.0.0.1:8000", None, Some("127.0.0.1:8000")),
            ("http://127.0.0.1:8000", Some(9), Some("127.0.0.1:9")),
            ("https://agents.example", None, Some("agents.example:443")),
            ("http://agents.example/", None, Some("agents.example:80")),
            ("http://[::1]:8000", None, Some("[::1]:8000")),
            ("https://agents.example/papers", None, None),
            ("https://agents.example/papers", Some(50051), Some("agents.example:50051")),
            ("agents.example", None, None),
        ] {
            assert_eq!(Addresses::new(url, &on(port)).grpc.as_deref(), address, "{url}");
        }
        let fixed = GrpcAddress { address: Some("a:1".into()), ..GrpcAddress::default() };
        assert_eq!(Addresses::new("https://b/c", &fixed).grpc.as_deref(), Some("a:1"));
        let off = GrpcAddress { offered: false, ..fixed };
        assert_eq!(Addresses::new("https://b", &off).grpc, None);
    }
}
