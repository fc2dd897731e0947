//! The admin server without a host behind it: routes and tokens.

use std::net::SocketAddr;

use bytes::Bytes;
use http::header::WWW_AUTHENTICATE;
use http_body_util::Full;
use secrecy::SecretString;

use super::*;

fn config(token: Option<&str>) -> config::Admin {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let open = vec![OpenPath::Healthz, OpenPath::Readyz, OpenPath::Metrics];
    config::Admin { listen, chosen: true, token: token.map(SecretString::from), open }
}

fn admin(token: Option<&str>) -> Admin {
    Admin::new(&config(token), Metrics::new("0")).unwrap()
}

async fn ask(admin: &Admin, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    admin.handle(request.body(Full::<Bytes>::default()).unwrap()).await
}

async fn status(admin: &Admin, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    ask(admin, method, path, headers).await.status().as_u16()
}

#[tokio::test]
async fn it_is_alive_before_it_is_ready() {
    let admin = admin(None);
    assert_eq!(status(&admin, "GET", "/healthz", &[]).await, 200);
    assert_eq!(status(&admin, "GET", "/readyz", &[]).await, 503);
    assert_eq!(status(&admin, "GET", "/metrics", &[]).await, 200);
}

#[tokio::test]
async fn unknown_paths_and_methods_say_what_there_is() {
    let admin = admin(None);
    for path in [
        "/health",
        "/assets/none.js",
        "/turns/a/b",
        "/healthz/",
        "/metrics/x",
        "/push",
        "/push/undelivered/t/i",
        "/push/undelivered//i/retry",
    ] {
        assert_eq!(status(&admin, "GET", path, &[]).await, 404, "{path}");
    }
    assert_eq!(status(&admin, "HEAD", "/readyz", &[]).await, 503);
    for (method, path, allowed) in
        [("POST", "/healthz", "GET, HEAD"), ("GET", "/push/undelivered/t/i/retry", "POST")]
    {
        let reply = ask(&admin, method, path, &[]).await;
        assert_eq!(
            (reply.status().as_u16(), &reply.headers()[ALLOW]),
            (405, &HeaderValue::from_static(allowed)),
            "{path}"
        );
    }
}

#[tokio::test]
async fn with_a_token_only_the_open_paths_are_public() {
    let probed = admin(Some("s3cret"));
    for (path, answer) in [("/healthz", 200), ("/readyz", 503), ("/metrics", 200), ("/executors", 401)] {
        assert_eq!(status(&probed, "GET", path, &[]).await, answer, "{path}");
    }
    let admin = Admin::new(
        &config::Admin { open: vec![OpenPath::Healthz], ..config(Some("s3cret")) },
        Metrics::new("0"),
    )
    .unwrap();
    for (path, right) in [("/readyz", 503), ("/metrics", 200), ("/push/undelivered", 503), ("/nothing", 404)]
    {
        let reply = ask(&admin, "GET", path, &[]).await;
        assert_eq!(reply.status(), 401, "{path}");
        assert_eq!(reply.headers()[WWW_AUTHENTICATE], "Bearer");
        assert_eq!(status(&admin, "GET", path, &[("authorization", "Bearer wrong")]).await, 401, "{path}");
        assert_eq!(status(&admin, "GET", path, &[("authorization", "Bearer s3cret")]).await, right, "{path}");
    }
    assert_eq!(status(&admin, "GET", "/healthz", &[]).await, 200);
}

#[tokio::test]
async fn a_taken_port_fails_the_start_only_if_it_is_configured() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = taken.local_addr().unwrap();
    let chosen = bind(&config::Admin { listen, ..config(None) }).await.unwrap_err();
    assert_eq!(chosen.to_string(), format!("cannot listen on {listen}; choose another with `admin.listen`"));
    let warning = bind(&config::Admin { listen, chosen: false, ..config(None) }).await.unwrap().unwrap_err();
    assert!(
        warning.starts_with(&format!("no health and no metrics: cannot listen on {listen}")),
        "{warning}"
    );
}

/// Sends a body of JSON.
async fn post(admin: &Admin, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let mut request = Request::builder().method("POST").uri(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    admin.handle(request.body(Full::<Bytes>::from(body.to_owned())).unwrap()).await
}

async fn json(reply: Reply) -> serde_json::Value {
    use http_body_util::BodyExt as _;
    let body = reply.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn without_a_token_a_web_form_does_nothing() {
    let admin = admin(None);
    for path in ["/turns/t/cancel", "/turns/t/answer"] {
        assert_eq!(status(&admin, "POST", path, &[]).await, 403, "{path}");
        assert_eq!(
            status(&admin, "POST", path, &[("x-talaria-console", "1")]).await,
            503,
            "{path}: it starts"
        );
    }
    assert_eq!(status(&admin, "PUT", "/log", &[]).await, 403);
    for (method, path) in [
        ("PUT", "/executors/a"),
        ("DELETE", "/executors/a"),
        ("POST", "/executors/a/reload"),
        ("PUT", "/executors/a/settings"),
    ] {
        assert_eq!(status(&admin, method, path, &[("x-talaria-console", "1")]).await, 403, "{path}");
    }
    for path in ["/", "/session", "/openapi.json"] {
        assert_eq!(status(&admin, "GET", path, &[]).await, 200, "{path}");
    }
}

#[tokio::test]
async fn a_session_reads_with_its_cookie_and_acts_with_its_second_secret() {
    let admin = admin(Some("s3cret"));
    for path in ["/", "/assets/app.js", "/session"] {
        assert_eq!(status(&admin, "GET", path, &[]).await, 200, "{path} shows nothing of the host");
    }
    let asked = json(ask(&admin, "GET", "/session", &[]).await).await;
    assert_eq!(asked, serde_json::json!({ "needed": true, "signed_in": false, "csrf": null }));
    assert_eq!(post(&admin, "/session", &[], r#"{"token":"wrong"}"#).await.status(), 401);
    assert_eq!(post(&admin, "/session", &[], r#"{"token":"a b"}"#).await.status(), 401);
    assert_eq!(post(&admin, "/session", &[], r#"{"tokens":"x"}"#).await.status(), 400);
    let reply = post(&admin, "/session", &[], r#"{"token":"s3cret"}"#).await;
    assert_eq!(reply.status(), 201);
    let set = reply.headers()[http::header::SET_COOKIE].to_str().unwrap().to_owned();
    let cookie = set.split(';').next().unwrap().to_owned();
    let csrf = json(reply).await["csrf"].as_str().unwrap().to_owned();
    let session = [("cookie", cookie.as_str())];
    let acting = [("cookie", cookie.as_str()), ("x-csrf-token", csrf.as_str())];
    assert_eq!(status(&admin, "GET", "/turns", &session).await, 503, "let in; the host starts");
    for (method, path) in [
        ("POST", "/turns/t/cancel"),
        ("PUT", "/executors/a"),
        ("POST", "/push/undelivered/t/i/retry"),
        ("DELETE", "/session"),
    ] {
        assert_eq!(status(&admin, method, path, &session).await, 403, "{path}");
    }
    assert_eq!(status(&admin, "POST", "/turns/t/cancel", &acting).await, 503);
    assert_eq!(status(&admin, "GET", "/turns", &[("cookie", "talaria_session=x")]).await, 401);
    assert_eq!(status(&admin, "DELETE", "/session", &acting).await, 200);
    assert_eq!(status(&admin, "GET", "/turns", &session).await, 401, "signed out");
    let bearer = [("authorization", "Bearer s3cret")];
    assert_eq!(
        status(&admin, "POST", "/turns/t/cancel", &bearer).await,
        503,
        "a program needs the token alone"
    );
}

#[tokio::test]
async fn signing_in_is_refused_after_many_wrong_tokens() {
    let admin = admin(Some("s3cret"));
    for _ in 0..20 {
        assert_eq!(post(&admin, "/session", &[], r#"{"token":"wrong"}"#).await.status(), 401);
    }
    assert_eq!(post(&admin, "/session", &[], r#"{"token":"s3cret"}"#).await.status(), 429);
    assert_eq!(status(&admin, "GET", "/turns", &[("authorization", "Bearer s3cret")]).await, 503);
}

#[test]
fn the_description_has_every_path_and_method_and_no_other() {
    let document: serde_json::Value = serde_json::from_str(openapi::DOCUMENT).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let described: Vec<&String> = paths.keys().collect();
    let known: Vec<&str> = route::PATHS.iter().map(|(path, _)| *path).collect();
    assert_eq!(described.len(), known.len(), "{described:?} are not {known:?}");
    for (path, methods) in route::PATHS {
        let entry = paths.get(*path).unwrap_or_else(|| panic!("{path} is not described"));
        let verbs: Vec<&str> = entry.as_object().unwrap().keys().map(String::as_str).collect();
        let (mut verbs, mut methods) = (verbs, methods.to_vec());
        verbs.sort_unstable();
        methods.sort_unstable();
        assert_eq!(verbs, methods, "{path}");
        // A real path, and what the router takes there.
        let real = path.replace("{task}", "t").replace("{id}", "i").replace("{name}", "n");
        let real = real.replace("{file}", "app.js");
        let route = Route::of(&real);
        assert_ne!(route, Route::Unknown, "{path}");
        if route != Route::A2a {
            let mut taken: Vec<String> = route
                .methods()
                .iter()
                .filter(|m| **m != Method::HEAD)
                .map(|m| m.as_str().to_lowercase())
                .collect();
            taken.sort_unstable();
            assert_eq!(taken, methods, "{path}");
        }
    }
}

#[test]
fn every_route_is_in_the_list_of_paths() {
    let named = |path: &str| Route::of(&path.replace(['{', '}'], "")).name();
    let listed: std::collections::BTreeSet<&str> = route::PATHS.iter().map(|(path, _)| named(path)).collect();
    let source = include_str!("route.rs");
    let names = source.split("=> \"").skip(1).map(|rest| rest.split('"').next().unwrap());
    for name in names.filter(|name| *name != "unknown") {
        assert!(listed.contains(name), "the route {name} is not in PATHS");
    }
}
