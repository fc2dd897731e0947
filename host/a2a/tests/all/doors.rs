//! The door of the server: what a web page can make a browser send changes nothing and reads nothing, over both versions of
//! HTTP, both bindings and both versions of the protocol.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use secrecy::SecretString;
use serde_json::{Value, json};
use talaria_a2a::Token;
use talaria_turns::Limits;

use crate::kit::{Answer, Host, message, patiently};
use crate::wire::{ALL, Ask, Prepared, Wire};

const JSON: (&str, &str) = ("content-type", "application/json");
const V1: (&str, &str) = ("A2A-Version", "1.0");
const EVIL: (&str, &str) = ("origin", "https://evil.example");
const CROSS_SITE: (&str, &str) = ("sec-fetch-site", "cross-site");
const SAME_SITE: (&str, &str) = ("sec-fetch-site", "same-site");

/// Sends a request with another `Host` than the server's address.
async fn to(host: &Host, named: &str, prepared: &Prepared, more: &[(&str, &str)]) -> Answer {
    let Prepared { method, path, headers, body } = prepared;
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: {named}\r\n");
    for (name, value) in headers.iter().chain(more) {
        bytes.push_str(&format!("{name}: {value}\r\n"));
    }
    bytes.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    host.exchange(bytes.as_bytes()).await
}

/// Sends a request over HTTP/2; the host is in its `:authority`.
async fn over_h2(host: &Host, named: &str, prepared: &Prepared, more: &[(&str, &str)]) -> (u16, Value) {
    let Prepared { method, path, headers, body } = prepared;
    let mut request = http::Request::builder().method(*method).uri(format!("http://{named}{path}"));
    for (name, value) in headers.iter().chain(more) {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body.clone()))).unwrap();
    let io = TokioIo::new(host.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let clients = tokio_util::task::TaskTracker::new();
    clients.spawn(connection);
    let answer = patiently(sender.send_request(request)).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

/// Checks that an error has the form of its binding and version.
fn check_shape(wire: Wire, status: u16, body: &Value) {
    let error = &body["error"];
    assert!(error["message"].as_str().is_some_and(|message| message.len() > 20), "{wire:?}: {body}");
    if wire.is_rest() {
        assert_eq!(error["code"], status, "{wire:?}: {body}");
        assert_eq!(body["message"].is_string(), wire.is_old(), "clients of 0.3 read it at the top: {body}");
    } else {
        assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), &Value::Null), "{wire:?}: {body}");
        assert!(error["code"].as_i64().is_some_and(|code| code < 0), "{wire:?}: {body}");
    }
    let (details, data) = (&error["details"], &error["data"]);
    let details = if wire.is_rest() { details } else { data };
    assert!(details[0]["reason"].is_string(), "{wire:?}: {body}");
}

#[tokio::test]
async fn a_page_of_another_site_sends_nothing() {
    let host = Host::start().await;
    for wire in ALL {
        let ask = wire.prepare(&Ask::Send(wire.params("hi")));
        for page in [vec![EVIL], vec![("origin", "null")], vec![CROSS_SITE], vec![SAME_SITE]] {
            let answer = to(&host, &host.address.to_string(), &ask, &page).await;
            assert_eq!(answer.status, 403, "{wire:?} {page:?}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
            check_shape(wire, 403, &answer.json());
            let (status, body) = over_h2(&host, &host.address.to_string(), &ask, &page).await;
            assert_eq!(status, 403, "{wire:?} {page:?} over HTTP/2");
            check_shape(wire, 403, &body);
        }
    }
    assert_eq!(host.made(), 0, "no task was created");
    assert_eq!(host.counts.requests_refused(), 32);
}

#[tokio::test]
async fn a_name_that_leads_here_by_rebinding_reads_no_task() {
    let host = Host::start().await;
    let sent = host.call("SendMessage", &json!({ "message": message("ask") })).await;
    let id = sent["result"]["task"]["id"].as_str().unwrap();
    let port = host.address.port();
    let rebound = format!("evil.example:{port}");
    let page = ("origin", format!("http://{rebound}"));
    let page = (page.0, page.1.as_str());
    for wire in ALL {
        for ask in [Ask::Get(id), Ask::Send(wire.params("hi")), Ask::Cancel(id)] {
            let ask = wire.prepare(&ask);
            let answer = to(&host, &rebound, &ask, &[page]).await;
            assert_eq!(answer.status, 403, "{wire:?}");
            check_shape(wire, 403, &answer.json());
            assert!(answer.json().to_string().contains("`a2a.url`"), "it says what to do: {answer:?}");
            assert_eq!(over_h2(&host, &rebound, &ask, &[page]).await.0, 403, "{wire:?} over HTTP/2");
        }
    }
    let list = Prepared { method: "GET", path: "/tasks".into(), headers: vec![V1], body: String::new() };
    assert_eq!(to(&host, &rebound, &list, &[]).await.status, 403);
    for named in [format!("localhost:{port}"), format!("127.0.0.1:{port}"), "[::1]".into()] {
        assert_eq!(to(&host, &named, &list, &[]).await.status, 200, "{named}");
        assert_eq!(over_h2(&host, &named, &list, &[]).await.0, 200, "{named} over HTTP/2");
    }
    assert_eq!(host.made(), 1);
}

#[tokio::test]
async fn the_host_of_the_url_and_any_host_with_a_token_are_answered() {
    let list = |token: Option<&'static str>| {
        let headers = token.map(|token| ("authorization", token)).into_iter().chain([V1]).collect();
        Prepared { method: "GET", path: "/tasks".into(), headers, body: String::new() }
    };
    let named = Host::with(|config| config.url = "https://Agents.example/a".into(), Limits::default()).await;
    assert_eq!(to(&named, "agents.example", &list(None), &[]).await.status, 200);
    let own = ("origin", "https://agents.example");
    assert_eq!(to(&named, "127.0.0.1:1", &list(None), &[own]).await.status, 200, "a proxy changed the host");
    assert_eq!(to(&named, "evil.example", &list(None), &[]).await.status, 403);

    let token = |config: &mut talaria_a2a::Config| {
        config.tokens = vec![Token::new("peer", SecretString::from("s3cret")).unwrap()];
    };
    let tokened = Host::with(token, Limits::default()).await;
    assert_eq!(to(&tokened, "any.example", &list(Some("Bearer s3cret")), &[]).await.status, 200);
    assert_eq!(to(&tokened, "any.example", &list(None), &[]).await.status, 401);
    assert_eq!(to(&tokened, "any.example", &list(Some("Bearer s3cret")), &[EVIL]).await.status, 403);
}

#[tokio::test]
async fn a_request_without_one_host_is_malformed() {
    let host = Host::start().await;
    for hosts in ["", "host: 127.0.0.1\r\nhost: 127.0.0.1\r\n"] {
        let bytes = format!("GET /tasks HTTP/1.1\r\n{hosts}A2A-Version: 1.0\r\n\r\n");
        let answer = host.exchange(bytes.as_bytes()).await;
        assert_eq!(answer.status, 400, "{hosts:?}");
        assert_eq!(answer.json()["error"]["code"], 400);
    }
}

#[tokio::test]
async fn a_body_that_is_not_declared_as_json_changes_nothing() {
    let host = Host::start().await;
    for wire in ALL {
        let mut ask = wire.prepare(&Ask::Send(wire.params("hi")));
        ask.headers.retain(|header| *header != JSON);
        for media in [
            None,
            Some("text/plain"),
            Some("text/plain; charset=application/json"),
            Some("application/x-www-form-urlencoded"),
            Some("multipart/form-data; boundary=x"),
            Some(""),
        ] {
            let more: Vec<_> = media.map(|media| ("content-type", media)).into_iter().collect();
            let answer = to(&host, "127.0.0.1", &ask, &more).await;
            assert_eq!(answer.status, 415, "{wire:?} {media:?}");
            check_shape(wire, 415, &answer.json());
            let details = answer.json().to_string();
            assert!(details.contains("CONTENT_TYPE_NOT_SUPPORTED"), "{details}");
            assert_eq!(
                over_h2(&host, "127.0.0.1", &ask, &more).await.0,
                415,
                "{wire:?} {media:?} over HTTP/2"
            );
        }
        let twice = [JSON, ("content-type", "text/plain")];
        assert_eq!(to(&host, "127.0.0.1", &ask, &twice).await.status, 415, "{wire:?}");
    }
    assert_eq!(host.made(), 0, "no task was created");
    for media in ["application/json", "application/json; charset=utf-8", "application/a2a+json"] {
        for wire in ALL {
            let mut ask = wire.prepare(&Ask::Send(wire.params("hi")));
            ask.headers.retain(|header| *header != JSON);
            let answer = to(&host, "127.0.0.1", &ask, &[("content-type", media)]).await;
            assert_eq!(answer.status, 200, "{wire:?} {media}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_request_without_a_body_needs_no_media_type() {
    let host = Host::start().await;
    let sent = host.call("SendMessage", &json!({ "message": message("ask") })).await;
    let id = sent["result"]["task"]["id"].as_str().unwrap();
    let cancelled = host.request("POST", &format!("/tasks/{id}:cancel"), &[V1], b"").await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
}

#[tokio::test]
async fn a_link_to_the_card_may_be_followed_and_a_frame_may_not_show_it() {
    let host = Host::start().await;
    let navigates = ("sec-fetch-mode", "navigate");
    for (dest, status) in [("document", 200), ("iframe", 403)] {
        let headers = [CROSS_SITE, navigates, ("sec-fetch-dest", dest)];
        let answer = host.request("GET", "/.well-known/agent-card.json", &headers, b"").await;
        assert_eq!(answer.status, status, "{dest}");
    }
}

#[tokio::test]
async fn callers_without_a_name_list_nothing_where_strangers_call() {
    let host = Host::with(|config| config.anyone_may_list = false, Limits::default()).await;
    let sent = host.call("SendMessage", &json!({ "message": message("ask") })).await;
    let id = sent["result"]["task"]["id"].clone();
    let rpc = host.call("ListTasks", &json!({})).await;
    assert_eq!(rpc["error"]["code"], -32004, "{rpc}");
    let rest = host.request("GET", "/tasks", &[V1], b"").await;
    assert_eq!((rest.status, &rest.json()["error"]["status"]), (400, &json!("FAILED_PRECONDITION")));
    assert!(rest.json()["error"]["message"].as_str().unwrap().contains("only for callers with a token"));
    let known = host.call("GetTask", &json!({ "id": id })).await;
    assert_eq!(known["result"]["id"], id, "a caller that knows the task reads it");

    let named = |config: &mut talaria_a2a::Config| {
        config.anyone_may_list = false;
        config.tokens = vec![Token::new("peer", SecretString::from("s3cret")).unwrap()];
    };
    let host = Host::with(named, Limits::default()).await;
    let list = host.call_as(&[("authorization", "Bearer s3cret")], "ListTasks", &json!({})).await;
    assert_eq!(list.json()["result"]["totalSize"], 0, "{list:?}");
}
