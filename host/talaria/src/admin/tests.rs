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
