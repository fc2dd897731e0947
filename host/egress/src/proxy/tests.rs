use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Proxies, InvalidProxy> {
    Proxies::read(|name| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

fn by(proxies: &Proxies, url: &str) -> Option<String> {
    proxies.of(&url.parse().expect("a URL")).map(|proxy| proxy.to_string())
}

#[test]
fn each_scheme_has_its_proxy_and_lower_case_wins() {
    let proxies = read(&[
        ("HTTPS_PROXY", "http://upper.example:1"),
        ("https_proxy", "http://Lower.example:3128/"),
        ("HTTP_PROXY", "plain.example:8080"),
    ]);
    let proxies = proxies.expect("proxies");
    assert_eq!(by(&proxies, "https://a.example/x").as_deref(), Some("lower.example:3128"));
    assert_eq!(by(&proxies, "http://a.example/x").as_deref(), Some("plain.example:8080"));
    assert_eq!(
        proxies.describe().as_deref(),
        Some("http by plain.example:8080, https by lower.example:3128")
    );
    let none = read(&[("HTTPS_PROXY", " "), ("NO_PROXY", "*")]).expect("no proxies");
    assert_eq!((by(&none, "https://a.example/"), none.describe()), (None, None));
}

#[test]
fn this_machine_is_never_behind_a_proxy() {
    let proxies = read(&[("HTTP_PROXY", "http://p:1"), ("HTTPS_PROXY", "http://p:1")]).expect("proxies");
    for url in ["http://localhost:8642/v1", "http://127.0.0.1:8642/", "https://[::1]/", "http://127.9.9.9/"] {
        assert_eq!(by(&proxies, url), None, "{url}");
    }
    assert!(by(&proxies, "http://10.0.0.1/").is_some());
}

#[test]
fn what_no_proxy_lists_is_called_directly() {
    let list = "internal.example, .dotted.example *.starred.example,exact.example:8443,10.0.0.0/8,192.168.1.7,fd00::/8";
    let proxies = read(&[("HTTP_PROXY", "http://p:1"), ("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", list)]);
    let proxies = proxies.expect("proxies");
    for (url, direct) in [
        ("https://internal.example/", true),
        ("https://a.b.internal.example:8443/", true),
        ("https://notinternal.example/", false),
        ("https://internal.example.com/", false),
        ("https://dotted.example/", true),
        ("https://a.dotted.example/", true),
        ("https://a.starred.example/", true),
        ("https://exact.example:8443/", true),
        ("https://exact.example/", false),
        ("http://10.200.0.1/", true),
        ("http://11.0.0.1/", false),
        ("http://192.168.1.7/", true),
        ("http://192.168.1.8/", false),
        ("http://[fd00::1]/", true),
        ("http://[2a00::1]/", false),
        ("https://other.example/", false),
    ] {
        assert_eq!(by(&proxies, url).is_none(), direct, "{url}");
    }
    let all = read(&[("HTTPS_PROXY", "http://p:1"), ("no_proxy", "*")]).expect("proxies");
    assert_eq!(by(&all, "https://a.example/"), None);
}

#[test]
fn credentials_are_decoded_and_never_shown() {
    let proxies = read(&[("HTTPS_PROXY", "http://us%40er:p%3Aa:ss@proxy.example:3128")]).expect("proxies");
    assert_eq!(proxies.secrets().collect::<Vec<_>>(), [BASE64_STANDARD.encode("us@er:p:a:ss")]);
    let shown = format!("{proxies:?} {:?}", proxies.describe());
    for secret in ["us@er", "us%40er", "a:ss", &BASE64_STANDARD.encode("us@er:p:a:ss")] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(shown.contains("proxy.example"), "{shown}");
}

#[test]
fn an_unusable_proxy_is_an_error_without_its_value() {
    for value in [
        "socks5://user:secret@p:1080",
        "https://user:secret@p:3128",
        "http://",
        "http://user:secret@",
        "http://user:secret@p:port",
        "http://user:secret@p/path",
        "http://p q",
    ] {
        let error = read(&[("https_proxy", value)]).expect_err(value);
        assert_eq!(error.variable, "https_proxy");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
