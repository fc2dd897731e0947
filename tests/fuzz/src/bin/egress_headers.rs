//! Egress headers, both ways: `METHOD URL`, request headers, an empty line, response headers.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use talaria_egress::fuzz::{Call, incoming, outgoing};
use talaria_egress::{Access, Bounds, Pattern, SecretString, Secrets};
use talaria_fuzz::{head_and_body, headers};

const VALUE: &str = "not-for-everybody";
const BOUND: &str = "POST https://bound.example/v1/*";

/// Bounds that an input can exceed.
static ACCESS: LazyLock<Access> = LazyLock::new(|| {
    let mut secrets = Secrets::new();
    secrets.insert("KEY", SecretString::from(VALUE), vec![bound()]).expect("a good secret");
    secrets.insert("UNSET", SecretString::from(""), vec![bound()]).expect("a good secret");
    let bounds = Bounds { headers: 8, header_bytes: 256, ..Bounds::default() };
    Access { executor: "e".into(), secrets, bounds, ..Access::default() }
});

fn bound() -> Pattern {
    BOUND.parse().expect("a pattern")
}

fuzz_target!(|data: &[u8]| {
    let (head, came) = head_and_body(data);
    check_incoming(came);
    let Ok(head) = std::str::from_utf8(head) else { return };
    let (line, lines) = head.split_once('\n').unwrap_or((head, ""));
    let Some(call) = line.split_once(' ').and_then(|(method, url)| Call::parse(method, url).ok()) else {
        return;
    };
    let given: Vec<(String, String)> = lines
        .split('\n')
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.replace("\\r", "\r").replace("\\n", "\n")))
        .collect();
    let names_secret = given.iter().any(|(_, value)| value.contains("{secret:"));
    let holds_secret = given.iter().any(|(_, value)| value.contains(VALUE));
    let Ok(sent) = outgoing(&ACCESS, &call, given.clone()) else { return };

    assert_eq!(sent.len(), given.len(), "none is dropped");
    assert!(sent.len() <= ACCESS.bounds.headers);
    let bytes: usize = sent.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    assert!(bytes <= ACCESS.bounds.header_bytes);
    for (name, value) in &sent {
        assert!(!is_hop(name.as_str()), "{name} is not a guest's to send");
        assert!(!value.as_bytes().iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        let has_value = value.as_bytes().windows(VALUE.len()).any(|window| window == VALUE.as_bytes());
        if has_value && !holds_secret {
            assert!(value.is_sensitive());
        }
        assert!(!has_value || holds_secret || call.fits(&bound()), "the secret went to {call:?}");
        assert!(
            !value.as_bytes().windows(8).any(|window| window == b"{secret:"),
            "a name is left in {value:?}"
        );
    }
    assert!(!names_secret || call.fits(&bound()), "a secret was filled in for {call:?}");
});

fn check_incoming(lines: &[u8]) {
    let came = headers(lines);
    let Ok(seen) = incoming(&came, &ACCESS.bounds) else { return };
    assert!(seen.len() <= ACCESS.bounds.headers.min(came.len()));
    let bytes: usize = seen.iter().map(|(name, value)| name.len() + value.len()).sum();
    assert!(bytes <= ACCESS.bounds.header_bytes);
    for (name, value) in &seen {
        assert!(!matches!(name.as_str(), "set-cookie" | "set-cookie2"), "a cookie is not the guest's");
        assert!(!is_hop(name) || name == "content-length", "{name} belongs to the connection");
        assert!(came.get_all(name).iter().any(|given| given.as_bytes() == value.as_bytes()));
    }
}

fn is_hop(name: &str) -> bool {
    let hops = "host connection transfer-encoding content-length upgrade te trailer expect keep-alive http2-settings";
    hops.split(' ').any(|hop| hop == name) || name.starts_with("proxy-")
}
