//! The URLs and patterns that the egress policy parses. Lines: a pattern, another pattern, a method, a URL.
#![no_main]

use std::net::{Ipv4Addr, Ipv6Addr};

use libfuzzer_sys::fuzz_target;
use talaria_egress::Pattern;
use talaria_egress::fuzz::Call;

fuzz_target!(|text: &str| {
    let mut lines = text.splitn(4, '\n');
    let mut next = || lines.next().unwrap_or_default();
    let (one, two) = (next().parse::<Pattern>(), next().parse::<Pattern>());
    let call = Call::parse(next(), next());

    for pattern in [&one, &two].into_iter().flatten() {
        assert_eq!(pattern.to_string().parse().as_ref(), Ok(pattern), "a pattern is what it prints");
        assert!(pattern.covers(pattern));
    }
    if let (Ok(one), Ok(two)) = (&one, &two) {
        let meet = one.meet(two);
        assert_eq!(meet, two.meet(one));
        if let Some(meet) = &meet {
            assert!(one.covers(meet) && two.covers(meet), "{one} and {two} meet in {meet}");
            assert_eq!(meet.to_string().parse().as_ref(), Ok(meet));
        }
        if let Ok(call) = &call {
            let both = call.fits(one) && call.fits(two);
            assert_eq!(meet.is_some_and(|meet| call.fits(&meet)), both, "{one} and {two}");
        }
    }
    let Ok(call) = call else { return };
    check_sent(&call);
    for pattern in [one, two].into_iter().flatten().filter(|pattern| call.fits(pattern)) {
        check_within(&pattern, &call);
    }
});

/// Every parser reads the outgoing URL as the policy did.
fn check_sent(call: &Call) {
    let uri = call.uri().expect("what is parsed can be sent");
    assert_eq!(uri.host(), Some(call.host()));
    assert_eq!(uri.path(), call.path());
    let again = Call::parse(call.method(), &uri.to_string()).expect("what is sent can be parsed");
    assert_eq!(again.uri().ok().as_ref(), Some(&uri));
    assert_eq!((again.host(), again.port(), again.path()), (call.host(), call.port(), call.path()));

    // The browsers' parser, which repairs URLs, finds nothing to repair.
    if let Ok(url) = url::Url::parse(&uri.to_string()) {
        assert_eq!(url.port_or_known_default(), Some(call.port()));
        assert_eq!(url.path(), call.path());
        let host = match url.host().expect("a host") {
            url::Host::Domain(name) => name.to_owned(),
            url::Host::Ipv4(address) => address.to_string(),
            url::Host::Ipv6(address) => format!("[{address}]"),
        };
        assert!(same_host(&host, call.host()), "{host} is not {}", call.host());
    }

    let narrowest = call.pattern();
    assert!(call.fits(&narrowest));
    assert_eq!(narrowest.to_string().parse(), Ok(narrowest));
}

/// Normalises an IPv6 address, which has more than one spelling.
fn same_host(one: &str, other: &str) -> bool {
    let address = |host: &str| host.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok();
    one == other || (address(one).is_some() && address(one) == address(other))
}

/// A call that a pattern allows stays within the pattern's host, port and path.
fn check_within(pattern: &Pattern, call: &Call) {
    let pattern = pattern.to_string();
    let (method, rest) = pattern.split_once(' ').expect("a method");
    assert!(method == "*" || method == call.method());
    let (scheme, rest) = rest.split_once("://").expect("a scheme");
    let (authority, path) = rest.split_at(rest.find('/').expect("a path"));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let default = if scheme == "https" { 443 } else { 80 };
    assert!(port == Some("*") || port.map_or(Ok(default), str::parse) == Ok(call.port()));
    match host.strip_prefix("*.") {
        None => assert_eq!(host, call.host()),
        Some(name) => {
            assert!(call.host().ends_with(&format!(".{name}")));
            let is_address = call.host().starts_with('[') || call.host().parse::<Ipv4Addr>().is_ok();
            assert!(!is_address, "an address is below no name");
        }
    }
    match path.strip_suffix('*') {
        None => assert_eq!(path, call.path()),
        Some(prefix) => assert!(call.path().starts_with(prefix)),
    }
}
