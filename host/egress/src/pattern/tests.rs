//! Patterns: the grammar, its error messages, and the algebra behind the policy.

use proptest::prelude::*;

use super::{InvalidPattern, Pattern};
use crate::target::Target;

fn pattern(text: &str) -> Pattern {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn target(method: &str, url: &str) -> Target {
    Target::parse(method, url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn allows(text: &str, method: &str, url: &str) -> bool {
    pattern(text).matches(&target(method, url))
}

fn problem(text: &str) -> InvalidPattern {
    match text.parse::<Pattern>() {
        Ok(pattern) => panic!("{text:?} was read as {pattern}"),
        Err(error) => error,
    }
}

#[test]
fn an_exact_pattern_allows_that_call_and_no_other() {
    let granted = "POST http://127.0.0.1:8642/v1/chat/completions";
    assert!(allows(granted, "POST", "http://127.0.0.1:8642/v1/chat/completions"));
    assert!(allows(granted, "post", "HTTP://127.0.0.1:8642/v1/chat/completions?stream=1"));
    for (method, url) in [
        ("GET", "http://127.0.0.1:8642/v1/chat/completions"),
        ("POST", "https://127.0.0.1:8642/v1/chat/completions"),
        ("POST", "http://127.0.0.1:8643/v1/chat/completions"),
        ("POST", "http://127.0.0.1/v1/chat/completions"),
        ("POST", "http://127.0.0.2:8642/v1/chat/completions"),
        ("POST", "http://127.0.0.1:8642/v1/chat/completions/"),
        ("POST", "http://127.0.0.1:8642/v1/chat"),
        ("POST", "http://127.0.0.1:8642/V1/chat/completions"),
        ("POST", "http://127.0.0.1:8642/v1/chat/%63ompletions"),
    ] {
        assert!(!allows(granted, method, url), "{method} {url}");
    }
}

#[test]
fn an_unknown_method_is_a_mistake() {
    let mistake = problem("PSOT https://api.example.com/v1/*");
    assert_eq!(mistake.position, 0);
    assert!(mistake.problem.starts_with("unknown method `PSOT`; write one of GET, HEAD, POST"), "{mistake}");
    // The suggestion for a call with a rare method can be pasted.
    let suggested = Pattern::of(&target("PROPFIND", "https://dav.example.com/a")).to_string();
    assert_eq!(pattern(&suggested).to_string(), "* https://dav.example.com/a");
}

#[test]
fn a_wildcard_matches_only_its_own_part() {
    assert!(allows("* https://*.example.com/v1/*", "DELETE", "https://a.b.Example.com/v1/x/y"));
    assert!(allows("* https://*.example.com/v1/*", "GET", "https://a.example.com:443/v1/"));
    for url in [
        "https://example.com/v1/x",
        "https://evilexample.com/v1/x",
        "https://a.example.com.evil.org/v1/x",
        "https://a.example.com:8443/v1/x",
        "https://a.example.com/v1",
        "https://a.example.com/v2/x",
    ] {
        assert!(!allows("* https://*.example.com/v1/*", "GET", url), "{url}");
    }
    assert!(allows("GET http://localhost:*/*", "GET", "http://localhost:9999"));
    assert!(allows("GET http://[::1]:80/*", "GET", "http://[0:0:0:0:0:0:0:1]/x"));
    assert!(!allows("GET http://127.0.0.1/*", "GET", "http://[::ffff:127.0.0.1]/x"));
}

#[test]
fn display_is_the_normal_form() {
    for (given, normal) in [
        ("post http://Example.COM:80/v1", "POST http://example.com/v1"),
        ("* HTTPS://*.Example.com:443/*", "* https://*.example.com/*"),
        ("GET http://[0::1]:*/a%2Db*", "GET http://[::1]:*/a%2Db*"),
    ] {
        assert_eq!(pattern(given).to_string(), normal);
    }
}

#[test]
fn a_bad_pattern_says_where_and_what_to_write() {
    let error = problem("POST http://127.0.0.1:8642");
    assert_eq!(error.position, 26);
    assert_eq!(
        error.to_string(),
        "bad egress pattern \"POST http://127.0.0.1:8642\" at position 26: the path is missing; \
         write \"POST http://127.0.0.1:8642/*\" for every path"
    );
    for (text, position, fix) in [
        ("http://h/", 0, "write \"POST http://h/\""),
        ("", 0, "the method is missing"),
        ("P(ST http://h/", 0, "not an HTTP method"),
        ("CONNECT http://h/", 0, "never allowed"),
        ("TRACE http://h/", 0, "never allowed"),
        ("GET  http://h/", 4, "write http or https"),
        ("GET h/", 4, "write http://host/path"),
        ("GET ftp://h/", 4, "write http or https"),
        ("GET http:///x", 11, "the host is missing"),
        ("GET http://*/x", 11, "name it"),
        ("GET http://a.*.com/x", 13, "letters, digits"),
        ("GET http://*.127.0.0.1/x", 11, "write the address alone"),
        ("GET http://me@h/x", 13, "{secret:NAME}"),
        ("GET http://h:0/x", 13, "1 to 65535"),
        ("GET http://h:99999/x", 13, "1 to 65535"),
        ("GET http://h:+80/x", 13, "1 to 65535"),
        ("GET http://h:/x", 13, "1 to 65535"),
        ("GET http://h::80/x", 13, "1 to 65535"),
        ("GET http://127.1/x", 11, "all four parts"),
        ("GET http://[::1/x", 11, "in brackets"),
        ("GET http://h/a?b=c", 14, "remove it"),
        ("GET http://h/a*b", 14, "%2A"),
        ("GET http://h/**", 13, "%2A"),
        ("GET http://h/a/../b", 12, ".. segment"),
        ("GET http://h/a%2e%2E/*", 12, ""),
    ] {
        if fix.is_empty() {
            // Dots inside a longer name are not a dot segment.
            pattern(text);
            continue;
        }
        let error = problem(text);
        assert_eq!(error.position, position, "{error}");
        assert!(error.problem.contains(fix), "{error} does not say {fix:?}");
    }
}

#[test]
fn urls_that_two_parsers_could_read_differently_are_rejected() {
    for url in [
        "http://h/a/../b",
        "http://h/a/./b",
        "http://h/..",
        "http://h/a/%2e%2e/b",
        "http://h/a/.%2E/b",
        "http://h/a/%252e%252e/b",
        "http://h/a/..;x=1/b",
        "http://h/a/%2e%2e;/b",
        "http://h/a%2fb",
        "http://h/a%2Fb",
        "http://h/a%252fb",
        "http://h/a%5cb",
        "http://h/a%5C..%5Cb",
        "http://h/a\\b",
        "http://h\\@evil/",
        "http://h/a%00",
        "http://h/a%0d%0ab",
        "http://h/%c0%ae%c0%ae/b",
        "http://h/%25252525252e",
        "http://h/a%",
        "http://h/a%2",
        "http://h/a%zz",
        "http://h/a b",
        "http://h/a\nb",
        "http://h/a\u{e9}",
        "http://h/a*",
        "http://h/a{b}",
        "http://h/?key={secret:K}",
        "http://h/a#b",
        "http://h/a?b=<c",
        "http://h?b>c",
        "http://h/?q=\"",
        "http://user@h/",
        "http://user:pw@h/",
        "http://h:80:90/",
        "http://h:80@evil/",
        "http://h%2eexample/",
        "http://h./",
        "http://.h/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://[::1%25eth0]/",
        "http://[::1]x/",
        "http:///x",
        "http:/h/x",
        "//h/x",
        "/x",
        "h/x",
        "ftp://h/x",
        "",
    ] {
        match Target::parse("GET", url) {
            Ok(target) => panic!("{url:?} was read as {target}"),
            Err(error) => assert_eq!(error.kind(), crate::ErrorKind::InvalidRequest, "{url:?}: {error}"),
        }
    }
    assert!(Target::parse("GET", &format!("http://h/{}", "a".repeat(9000))).is_err());
    let error = Target::parse("GET", "http://h/a?b=<c").expect_err("not a URL");
    assert_eq!(
        error.message(),
        "bad URL at position 13: a character that a query may not hold; percent-encode it"
    );
    assert!(
        Target::parse("GET", "http://h/a%20b/c%C3%A9/d.e/...?q=../%2f{}^|`")
            .is_ok_and(|target| target.uri().is_ok())
    );
}

#[test]
fn a_star_is_not_the_method_of_a_call() {
    let error = Target::parse("*", "http://h/").expect_err("not a method");
    assert!(error.message().contains("a call has one"), "{error}");
    assert!(allows("* http://h/", "M-SEARCH", "http://h/"));
}

#[test]
fn the_url_that_is_sent_is_the_one_that_was_matched() {
    let uri = target("GET", "HTTP://Example.com:80/a//b;c=1?d=/../e").uri().expect("a URI");
    assert_eq!(uri, "http://example.com/a//b;c=1?d=/../e");
    let uri = target("GET", "https://[::0001]:8443?x").uri().expect("a URI");
    assert_eq!(uri, "https://[::1]:8443/?x");
}

#[test]
fn patterns_are_strings_in_configuration() {
    use serde::Deserialize;
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};

    let text: StrDeserializer<'_, Error> = "GET http://h/x".into_deserializer();
    assert_eq!(Pattern::deserialize(text), Ok(pattern("GET http://h/x")));
    let text: StrDeserializer<'_, Error> = "GET http://h".into_deserializer();
    let error = Pattern::deserialize(text).expect_err("no path");
    assert!(error.to_string().contains("\"GET http://h/*\""), "{error}");
}

// === properties ===

fn hosts() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c](\\.[a-c]){0,3}",
        "[a-z][a-z0-9-]{0,5}(\\.[a-z]{1,4}){0,2}",
        any::<std::net::Ipv4Addr>().prop_map(|address| address.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|address| format!("[{address}]")),
    ]
}

fn paths() -> impl Strategy<Value = String> {
    prop_oneof!["(/[ab]{0,2}){1,3}", "(/[a-zA-Z0-9_~!$&'()+,;=:@-]{1,6}){1,4}/?"]
}

fn ports() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just(":80".into()),
        Just(":443".into()),
        (1u16..).prop_map(|p| format!(":{p}"))
    ]
}

fn urls() -> impl Strategy<Value = (String, String)> {
    let methods = prop_oneof![Just("GET"), Just("POST"), Just("DELETE")];
    let schemes = prop_oneof![Just("http"), Just("https")];
    (methods, schemes, hosts(), ports(), paths()).prop_map(|(method, scheme, host, port, path)| {
        (method.to_owned(), format!("{scheme}://{host}{port}{path}"))
    })
}

fn patterns() -> impl Strategy<Value = Pattern> {
    let methods = prop_oneof![Just("GET"), Just("POST"), Just("*")];
    let schemes = prop_oneof![Just("http"), Just("https")];
    let hosts = prop_oneof![hosts(), "[a-c](\\.[a-c]){0,2}".prop_map(|name| format!("*.{name}"))];
    let ports = prop_oneof![ports(), Just(":*".to_owned())];
    let star = prop_oneof![Just(""), Just("*")];
    (methods, schemes, hosts, ports, paths(), star).prop_map(|(method, scheme, host, port, path, star)| {
        pattern(&format!("{method} {scheme}://{host}{port}{path}{star}"))
    })
}

/// The same URL in a disguise: other case, or some characters percent-encoded once or twice.
fn disguise(url: &str, choices: &[u8]) -> String {
    let mut disguised = String::new();
    for (at, char) in url.chars().enumerate() {
        let choice = choices.get(at % choices.len().max(1)).copied().unwrap_or(0);
        match choice % 6 {
            1 => disguised.push(char.to_ascii_uppercase()),
            2 => disguised.push_str(&format!("%{:02x}", u32::from(char))),
            3 => disguised.push_str(&format!("%{:02X}", u32::from(char))),
            4 => disguised.push_str(&format!("%25{:02x}", u32::from(char))),
            _ => disguised.push(char),
        }
    }
    disguised
}

proptest! {
    #[test]
    fn display_and_from_str_round_trip(one in patterns()) {
        prop_assert_eq!(pattern(&one.to_string()), one);
    }

    #[test]
    fn a_denial_suggests_a_pattern_that_allows_exactly_this((method, url) in urls(), (other_method, other) in urls()) {
        let wanted = target(&method, &url);
        let suggested = pattern(&Pattern::of(&wanted).to_string());
        prop_assert!(suggested.matches(&wanted));
        let other = target(&other_method, &other);
        let same = other.method == wanted.method && other.to_string() == wanted.to_string();
        prop_assert_eq!(suggested.matches(&other), same);
    }

    #[test]
    fn a_denied_url_stays_denied_in_any_disguise(
        granted in patterns(), (method, url) in urls(), choices in prop::collection::vec(any::<u8>(), 1..40)
    ) {
        prop_assume!(!granted.matches(&target(&method, &url)));
        // Only the path is encoded: a scheme or host with a percent sign is rejected anyway. The case of the path is kept,
        // because another case is another path, which the pattern may allow by itself.
        let Some(path_at) = url.find("://").and_then(|at| url[at + 3..].find('/').map(|slash| at + 3 + slash)) else {
            return Ok(());
        };
        let (origin, path) = url.split_at(path_at);
        let same_case = |choice: &u8| if choice % 6 == 1 { 0 } else { *choice };
        let path = disguise(path, &choices.iter().map(same_case).collect::<Vec<_>>());
        let origin = if choices[0] % 2 == 0 { origin.to_ascii_uppercase() } else { origin.to_owned() };
        if let Ok(disguised) = Target::parse(&method.to_ascii_lowercase(), &format!("{origin}{path}")) {
            // If a prefix ends before the first encoded character, it matches the plain path as well.
            prop_assert!(!granted.matches(&disguised), "{} allows {}", granted, disguised);
        }
    }

    #[test]
    fn a_dot_segment_is_rejected_in_any_disguise(
        before in "(/[a-z]{1,4}){0,3}", dots in prop_oneof![Just("."), Just("..")], after in "(/[a-z]{0,4}){0,2}",
        choices in prop::collection::vec(any::<u8>(), 1..8)
    ) {
        let url = format!("http://h{before}/{}{after}", disguise(dots, &choices));
        prop_assert!(Target::parse("GET", &url).is_err(), "{} was accepted", url);
    }

    #[test]
    fn the_meet_allows_exactly_what_both_allow(one in patterns(), two in patterns(), (method, url) in urls()) {
        let target = target(&method, &url);
        let both = one.matches(&target) && two.matches(&target);
        prop_assert_eq!(one.meet(&two).is_some_and(|meet| meet.matches(&target)), both);
        prop_assert_eq!(one.meet(&two), two.meet(&one));
        if let Some(meet) = one.meet(&two) {
            prop_assert!(one.covers(&meet) && two.covers(&meet));
        }
        prop_assert!(one.covers(&one));
    }

    #[test]
    fn parsing_never_panics(method in ".{0,8}", url in ".{0,40}", pattern in ".{0,40}") {
        let _ = Target::parse(&method, &url);
        let _ = Target::parse("GET", &format!("http://{url}"));
        let _ = pattern.parse::<Pattern>();
        let _ = format!("GET http://{pattern}").parse::<Pattern>();
    }
}
