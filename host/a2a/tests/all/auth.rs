//! Callers with tokens: a wrong token is rejected, and each caller sees only its own tasks.

use secrecy::SecretString;
use serde_json::json;
use talaria_a2a::{Config, Token};
use talaria_turns::Limits;

use crate::kit::{Host, message};
use crate::wire::{Ask, Wire};

pub(crate) const PLATFORM: (&str, &str) = ("authorization", "Bearer s3cret");
pub(crate) const PEER: (&str, &str) = ("authorization", "bearer other");

pub(crate) fn two_callers(config: &mut Config) {
    let token = |name: &str, secret: &str| Token::new(name, SecretString::from(secret)).unwrap();
    config.tokens = vec![token("platform", "s3cret"), token("peer", "other")];
}

#[tokio::test]
async fn rejects_a_missing_or_wrong_token() {
    let host = Host::with(two_callers, Limits::default()).await;
    let params = json!({ "message": message("hi") });
    for headers in [vec![], vec![("authorization", "Bearer wrong")], vec![("authorization", "Basic s3cret")]]
    {
        let answer = host.call_as(&headers, "SendMessage", &params).await;
        assert_eq!(answer.status, 401, "{headers:?}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert_eq!(answer.json()["error"]["status"], "UNAUTHENTICATED");
    }
    assert_eq!(host.made(), 0);
    assert_eq!(host.call_as(&[PLATFORM], "SendMessage", &params).await.status, 200);
    assert_eq!(host.made(), 1);
}

/// A client that took the connection for idle would lose its next request on it.
#[tokio::test]
async fn a_response_before_the_body_says_that_the_connection_closes() {
    let host = Host::with(two_callers, Limits::default()).await;
    let head =
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n";
    let early = host.exchange(format!("{head}\r\n").as_bytes()).await;
    assert_eq!((early.status, early.header("connection")), (401, Some("close")));
    let known = format!("{head}Authorization: Bearer other\r\n\r\n{{}}");
    let whole = host.exchange(known.as_bytes()).await;
    assert_eq!((whole.status, whole.header("connection")), (200, None), "rejected after its body");
    let none = host.exchange(b"GET /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await;
    assert_eq!((none.status, none.header("connection")), (401, None), "there is no body");
}

#[tokio::test]
async fn the_task_of_another_caller_looks_like_a_missing_one() {
    let host = Host::with(two_callers, Limits::default()).await;
    let asked = host.call_as(&[PLATFORM], "SendMessage", &json!({ "message": message("ask") })).await.json();
    let id = asked["result"]["task"]["id"].clone();
    let mut answer = message("that one");
    answer["taskId"] = id.clone();
    for (method, params) in [
        ("GetTask", json!({ "id": id })),
        ("tasks/get", json!({ "id": id })),
        ("SendMessage", json!({ "message": answer })),
    ] {
        let foreign = host.call_as(&[PEER], method, &params).await.json();
        assert_eq!(foreign["error"]["code"], -32001, "{method}");
        let mut missing = params.clone();
        if method == "SendMessage" {
            missing["message"]["taskId"] = json!("none")
        } else {
            missing["id"] = json!("none")
        }
        let missing = host.call_as(&[PEER], method, &missing).await.json();
        let error = foreign["error"].to_string().replace(id.as_str().unwrap(), "none");
        assert_eq!(error, missing["error"].to_string(), "{method}: the two answers are equal");
    }
    assert_eq!(host.call_as(&[PLATFORM], "GetTask", &json!({ "id": id })).await.json()["result"]["id"], id);
    assert_eq!(host.made(), 1);
}

#[tokio::test]
async fn a_renewed_token_applies_to_new_requests_and_open_streams_stay_open() {
    let host = Host::with(two_callers, Limits::default()).await;
    let ask = Ask::Stream(Wire::Rpc.params("wait"));
    let mut stream = Wire::Rpc.open(&host, &[PLATFORM], &ask).await.ok().unwrap();
    let id = host.next_waiting().await;
    let renewed = Token::new("platform", SecretString::from("rotated")).unwrap();
    assert_eq!(host.auth.renew(&[renewed]), []);

    let params = json!({ "id": id.as_str() });
    assert_eq!(host.call_as(&[PLATFORM], "GetTask", &params).await.status, 401, "the old token is invalid");
    let task = host.call_as(&[("authorization", "Bearer rotated")], "GetTask", &params).await.json();
    assert_eq!(task["result"]["id"], id.as_str(), "the caller and its tasks stay the same");
    assert_eq!(
        host.call_as(&[PEER], "GetTask", &params).await.status,
        200,
        "the other caller keeps its token"
    );

    host.script.go.add_permits(1);
    let last = stream.rest().await.pop().unwrap();
    assert_eq!(Wire::Rpc.brief(&last), "status completed", "the open stream stays open");
}
