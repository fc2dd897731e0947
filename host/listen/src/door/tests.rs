//! The rules of the door, over HTTP/1.1 and HTTP/2.

use super::*;

const ADVICE: Advice = Advice { host: "name it", origin: "list it" };

fn local() -> Door<Full<Bytes>> {
    Door::local(["agents.example".to_owned()], ADVICE, |refusal| refusal.response())
}

/// A request with these headers. One that names its host in its address is one of HTTP/2.
fn request(uri: &str, headers: &[(&str, &str)]) -> Request<()> {
    let version = if uri.starts_with('/') { Version::HTTP_11 } else { Version::HTTP_2 };
    let mut request = Request::post(uri).version(version);
    for (name, value) in headers {
        request = request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    request.body(()).unwrap()
}

fn status(door: &Door<Full<Bytes>>, request: &Request<()>) -> u16 {
    door.refuse(request).map_or(200, |response| response.status().as_u16())
}

#[test]
fn a_local_server_answers_to_addresses_and_its_own_names_only() {
    for (host, answer) in [
        ("127.0.0.1", 200),
        ("127.0.0.1:8000", 200),
        ("10.0.0.1:80", 200),
        ("[::1]", 200),
        ("[::1]:8000", 200),
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("agents.example", 200),
        ("Agents.Example:443", 200),
        ("evil.example", 403),
        ("evil.example:8000", 403),
        ("agents.example.evil", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("evil.example:127.0.0.1", 403),
        ("127.0.0.1@evil.example", 403),
        ("127.0.0.1:80x", 403),
        ("127.0.0.1:", 403),
        ("[::1", 403),
        ("[::1]x", 403),
        ("[evil.example]", 403),
        ("2130706433", 403),
        ("", 403),
    ] {
        let headers = [("host", host)];
        assert_eq!(status(&local(), &request("/", &headers)), answer, "{host}");
        assert_eq!(status(&local().any_host(), &request("/", &headers)), 200, "{host}");
        if let Ok(uri) = format!("http://{host}/").parse::<Uri>() {
            assert_eq!(status(&local(), &request(&uri.to_string(), &[])), answer, "{host} over HTTP/2");
        }
    }
    assert_eq!(status(&local(), &request("/", &[("host", "\u{e4}")])), 400);
}

#[test]
fn a_request_names_its_host_once() {
    for door in [local(), local().any_host()] {
        assert_eq!(status(&door, &request("/", &[])), 400, "missing");
        let twice = [("host", "127.0.0.1"), ("host", "127.0.0.1")];
        assert_eq!(status(&door, &request("/", &twice)), 400, "twice");
        let other = request("http://127.0.0.1/", &[("host", "evil.example")]);
        assert_eq!(status(&door, &other), 400, "contradicts the address");
        let same = request("http://127.0.0.1/", &[("host", "127.0.0.1")]);
        assert_eq!(status(&door, &same), 200);
        let mut old = request("/", &[]);
        *old.version_mut() = Version::HTTP_10;
        assert_eq!(status(&door, &old), 200, "HTTP/1.0 knows no host");
    }
}

#[test]
fn a_page_of_another_site_is_refused_whatever_the_host() {
    for (host, origin, answer) in [
        ("127.0.0.1:8000", "http://127.0.0.1:8000", 200),
        ("localhost:8000", "http://localhost:8000", 200),
        ("agents.example", "https://agents.example", 200),
        ("agents.example:443", "https://agents.example", 200),
        ("127.0.0.1", "https://app.example", 200),
        ("127.0.0.1:8000", "http://127.0.0.1:3000", 403),
        ("127.0.0.1:8000", "http://localhost:8000", 403),
        ("127.0.0.1", "http://app.example", 403),
        ("127.0.0.1", "https://app.example.evil", 403),
        ("127.0.0.1", "https://evil.example", 403),
        ("127.0.0.1", "null", 403),
        ("127.0.0.1", "", 403),
        ("127.0.0.1", "chrome-extension://127.0.0.1", 403),
        ("127.0.0.1", "\u{e4}", 403),
    ] {
        for door in [local(), local().any_host()] {
            let door = door.origins(["https://app.example".to_owned()]);
            let (host_header, origin_header) = (("host", host), ("origin", origin));
            assert_eq!(
                status(&door, &request("/", &[host_header, origin_header])),
                answer,
                "{origin} to {host}"
            );
            let over_h2 = request(&format!("http://{host}/"), &[origin_header]);
            assert_eq!(status(&door, &over_h2), answer, "{origin} to {host} over HTTP/2");
            let cross_site = [host_header, origin_header, ("sec-fetch-site", "cross-site")];
            assert_eq!(status(&door, &request("/", &cross_site)), answer, "the origin decides");
            let twice = [host_header, origin_header, origin_header];
            assert_eq!(status(&door, &request("/", &twice)), 403, "two origins");
        }
    }
}

#[test]
fn without_an_origin_the_browser_says_which_site_asks() {
    let here = ("host", "127.0.0.1:8000");
    for (site, answer) in
        [("none", 200), ("same-origin", 200), ("same-site", 403), ("cross-site", 403), ("?", 403)]
    {
        let fetch = ("sec-fetch-site", site);
        for door in [local(), local().any_host()] {
            assert_eq!(status(&door, &request("/", &[here, fetch])), answer, "{site}");
            let link = [here, fetch, ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
            let mut followed = request("/", &link);
            assert_eq!(status(&door, &followed), answer, "a form that is posted is no link");
            *followed.method_mut() = Method::GET;
            assert_eq!(status(&door, &followed), 200, "a link may be followed from {site}");
            let frame = [here, fetch, ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
            let mut framed = request("/", &frame);
            *framed.method_mut() = Method::GET;
            assert_eq!(status(&door, &framed), answer, "a frame is no window of its own");
        }
    }
    assert_eq!(status(&local(), &request("/", &[here])), 200, "a program says nothing");
}

#[test]
fn refusals_are_counted_and_say_what_to_do() {
    let refused = Arc::new(AtomicU64::new(0));
    let door = local().counted(Arc::clone(&refused));
    for (headers, text) in [
        (vec![("host", "evil.example")], "to its own name; name it"),
        (vec![("host", "127.0.0.1"), ("origin", "null")], "may not call this server; list it"),
        (vec![], "the Host header is missing"),
    ] {
        let response = door.refuse(&request("/", &headers)).unwrap();
        let body = format!("{:?}", response.body());
        assert!(body.contains(text), "{body}");
    }
    assert!(door.refuse(&request("/", &[("host", "127.0.0.1")])).is_none());
    assert_eq!(refused.load(Ordering::Relaxed), 3);
}
