//! What a peer posts, and the answers that it gets.

use std::sync::Arc;

use serde_json::json;
use talaria_mailbox::Limits;
use talaria_store::Memory;

use crate::kit::{Host, accepted, next, stale};

#[tokio::test]
async fn a_reply_goes_to_the_message_it_names_whatever_its_chat() {
    let host = Host::new().await;
    let (mut one, mut two) = (host.expect("m1").await, host.expect("m2").await);
    assert_eq!(host.post("same", Some("m2"), "two").await, accepted());
    assert_eq!(host.post("same", Some("m1"), "one").await, accepted());
    assert_eq!(next(&mut one).await.unwrap()["content"], "one");
    assert_eq!(
        next(&mut two).await.unwrap(),
        json!({ "kind": "reply", "chat_id": "same", "reply_to": "m2", "content": "two" })
    );
}

#[tokio::test]
async fn a_late_or_doubled_reply_is_acknowledged_as_stale() {
    let host = Host::new().await;
    let mut one = host.expect("m1").await;
    assert_eq!(host.post("c", Some("m1"), "answer").await, accepted());
    assert_eq!(host.post("c", Some("m1"), "answer").await, stale(), "doubled");
    assert_eq!(next(&mut one).await.unwrap()["content"], "answer");
    drop(one);
    assert_eq!(host.post("c", Some("m1"), "answer").await, stale(), "doubled and late");
    assert_eq!(host.post("c", Some("unknown"), "answer").await, stale());
    assert_eq!(host.mailbox.counts().late, 0, "nothing new came late");
}

#[tokio::test]
async fn a_notice_is_accepted_but_does_not_answer() {
    let host = Host::new().await;
    assert_eq!(host.post("c", None, "no home channel").await, stale(), "nobody reads it");
    let mut one = host.expect_in("c", "m1").await;
    for body in [
        json!({ "chat_id": "c", "content": "one", "reply_to": null }),
        json!({ "chat_id": "c", "content": "two", "reply_to": "" }),
        json!({ "chat_id": "c", "content": "three" }),
    ] {
        assert_eq!(host.send("POST", "", &[], &body.to_string()).await, accepted(), "{body}");
        let notice = next(&mut one).await.unwrap();
        assert_eq!((&notice["kind"], &notice["content"]), (&json!("notice"), &body["content"]));
    }
    assert_eq!(host.post("c", Some("m1"), "answer").await, accepted());
    assert_eq!(next(&mut one).await.unwrap()["kind"], "reply");
}

#[tokio::test]
async fn only_a_peer_with_the_secret_is_heard() {
    let host = Host::with_secret("s3cret").await;
    let mut one = host.expect("m1").await;
    let body = json!({ "content": "x", "reply_to": "m1" }).to_string();
    let unauthorized = (401, json!({ "ok": false, "error": "unauthorized" }));
    for headers in [
        vec![],
        vec![("x-secret", "")],
        vec![("x-secret", "s3cre")],
        vec![("x-secret", "s3crett")],
        vec![("x-secret", "s3cret"), ("x-secret", "s3cret")],
    ] {
        assert_eq!(host.send("POST", "", &headers, &body).await, unauthorized, "{headers:?}");
        assert_eq!(
            host.send("POST", "", &headers, "not json").await,
            unauthorized,
            "before the body is read"
        );
    }
    assert_eq!(host.send("POST", "", &[("X-Secret", "s3cret")], &body).await, accepted());
    assert_eq!(next(&mut one).await.unwrap()["content"], "x");
}

#[tokio::test]
async fn without_a_secret_only_the_unguessable_path_is_heard() {
    let host = Host::with_token("0123456789abcdef").await;
    let mut one = host.expect("m1").await;
    let body = json!({ "content": "x", "reply_to": "m1" }).to_string();
    let unauthorized = (401, json!({ "ok": false, "error": "unauthorized" }));
    for path in
        ["", "/", "/0123456789abcde", "/0123456789abcdef0", "/0123456789ABCDEF", "/x/0123456789abcdef"]
    {
        assert_eq!(host.send("POST", path, &[], &body).await, unauthorized, "{path}");
    }
    assert_eq!(host.send("POST", "more", &[], &body).await.0, 404);
    assert_eq!(host.send("GET", "", &[], "").await.0, 405, "which tells that it listens");
    assert_eq!(one.reply_url(), format!("{}/0123456789abcdef", host.url));
    assert_eq!(host.send("POST", "/0123456789abcdef", &[], &body).await, accepted());
    assert_eq!(next(&mut one).await.unwrap()["content"], "x");
}

#[tokio::test]
async fn a_web_page_posts_no_callback() {
    for (host, path, header) in [
        (Host::with_secret("s3cret").await, "", ("x-secret", "s3cret")),
        (Host::with_token("0123456789abcdef").await, "/0123456789abcdef", ("x-other", "")),
    ] {
        let mut one = host.expect("m1").await;
        let body = json!({ "content": "x", "reply_to": "m1" }).to_string();
        for page in [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")]
        {
            let (status, answer) = host.send("POST", path, &[header, page], &body).await;
            assert_eq!((status, &answer["ok"]), (403, &json!(false)), "{page:?}");
        }
        assert_eq!(host.send("POST", path, &[header], &body).await, accepted());
        assert_eq!(next(&mut one).await.unwrap()["content"], "x");
    }
}

#[tokio::test]
async fn rejects_what_is_not_a_callback() {
    let host = Host::new().await;
    let mut one = host.expect("m1").await;
    let invalid = (400, json!({ "ok": false, "error": "invalid json" }));
    let incomplete = (400, json!({ "ok": false, "error": "a string is required at `/content`" }));
    for body in ["", "{", "nonsense"] {
        assert_eq!(host.send("POST", "", &[], body).await, invalid, "{body}");
    }
    for body in ["[]", "null", "{}", r#"{"reply_to":"m1"}"#, r#"{"reply_to":"m1","content":7}"#] {
        assert_eq!(host.send("POST", "", &[], body).await, incomplete, "{body}");
    }
    assert_eq!(host.send("GET", "", &[], "").await.0, 405);
    assert_eq!(host.send("POST", "/more", &[], "{}").await.0, 404);
    assert_eq!(host.post("c", Some("m1"), "answer").await, accepted(), "the rejected ones changed nothing");
    assert_eq!(next(&mut one).await.unwrap()["content"], "answer");
}

#[tokio::test]
async fn rejects_a_body_over_the_limit() {
    let limits = Limits { body: 1_000, ..Limits::default() };
    let host = Host::on(Arc::new(Memory::new(10)), None, limits).await;
    let _one = host.expect("m1").await;
    assert_eq!(host.post("c", Some("m1"), &"x".repeat(1_000)).await.0, 413);
    assert_eq!(host.post("c", Some("m1"), &"x".repeat(500)).await, accepted());
}

#[tokio::test]
async fn a_peer_must_try_again_when_there_is_no_room() {
    let limits = Limits { bytes: 10, ..Limits::default() };
    let host = Host::on(Arc::new(Memory::new(10)), None, limits).await;
    let (mut one, two) = (host.expect("m1").await, host.expect("m2").await);
    assert_eq!(host.post("c", Some("m2"), "12345678").await, accepted());
    assert_eq!(host.post("c", Some("m1"), "123").await.0, 503);
    drop(two);
    assert_eq!(host.post("c", Some("m1"), "123").await, accepted(), "what has ended makes room");
    assert_eq!(next(&mut one).await.unwrap()["content"], "123");
}
