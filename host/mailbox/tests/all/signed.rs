//! Another callback transport, written without a change in the mailbox: its own path, bodies signed with HMAC, its own JSON
//! and its own answers.

use std::sync::Arc;

use aws_lc_rs::hmac;
use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Value, json};
use talaria_mailbox::{Answer, Callback, CallbackKind, CallbackWire, DeliveredAs, InvalidCallback, Limits};
use talaria_store::Memory;

use crate::kit::{Host, next};

const SIGNATURE: &str = "x-signature";

struct SignedWire {
    key: hmac::Key,
}

#[derive(Deserialize)]
struct Event {
    event: String,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "inReplyTo")]
    in_reply_to: Option<String>,
    room: String,
    text: String,
}

impl SignedWire {
    fn new(key: &str) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()) }
    }

    /// The header of a signed body.
    fn sign(&self, body: &str) -> String {
        let tag = hmac::sign(&self.key, body.as_bytes());
        tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn signature(head: &Parts) -> Option<Vec<u8>> {
    let text = head.headers.get(SIGNATURE)?.to_str().ok()?;
    let bytes = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok());
    bytes.collect()
}

impl CallbackWire for SignedWire {
    fn path(&self) -> &str {
        "/hooks/agent"
    }

    fn verify_head(&self, head: &Parts) -> bool {
        signature(head).is_some_and(|signature| signature.len() == 32)
    }

    fn verify_body(&self, head: &Parts, body: &[u8]) -> bool {
        // Compares in constant time.
        signature(head).is_some_and(|signature| hmac::verify(&self.key, body, &signature).is_ok())
    }

    fn parse(&self, body: &[u8]) -> Result<Callback, InvalidCallback> {
        let Event { event, data } =
            serde_json::from_slice(body).map_err(|error| InvalidCallback(error.to_string().into()))?;
        let kind = match event.as_str() {
            "undeliverable" => CallbackKind::DeliveryFailed,
            "repeated" => CallbackKind::Recovered,
            _ => CallbackKind::Plain,
        };
        Ok(Callback { reply_to: data.in_reply_to, chat: Some(data.room), kind, content: data.text })
    }

    fn turn_body(&self, callback: &Callback, message: &str, delivered_as: DeliveredAs) -> Value {
        let mut body = callback.turn_body(message, delivered_as);
        body["signed"] = true.into();
        body
    }

    fn answer(&self, answer: &Answer<'_>) -> Response<Full<Bytes>> {
        let (status, result) = match answer {
            Answer::Accepted => (StatusCode::ACCEPTED, "queued"),
            Answer::Stale => (StatusCode::ACCEPTED, "ignored"),
            Answer::Unauthorized => (StatusCode::FORBIDDEN, "bad signature"),
            Answer::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "bad event"),
            Answer::Rejected(status, reason) => (*status, *reason),
        };
        talaria_listen::json(status, json!({ "result": result }).to_string())
    }
}

async fn host() -> (Host, SignedWire) {
    let wire = Arc::new(SignedWire::new("key"));
    let host = Host::with_wire(wire, Arc::new(Memory::new(10)), Limits::default()).await;
    (host, SignedWire::new("key"))
}

fn event(event: &str, reply_to: Option<&str>, text: &str) -> String {
    json!({ "event": event, "data": { "inReplyTo": reply_to, "room": "c", "text": text } }).to_string()
}

fn answered(status: u16, result: &str) -> (u16, Value) {
    (status, json!({ "result": result }))
}

#[tokio::test]
async fn a_new_wire_needs_no_change_in_the_mailbox() {
    let (host, peer) = host().await;
    assert!(host.url.ends_with("/hooks/agent"), "{}", host.url);
    let mut one = host.expect_in("c", "m1").await;
    let post = |body: String| {
        let (host, signature) = (&host, peer.sign(&body));
        async move { host.send("POST", "", &[(SIGNATURE, &signature)], &body).await }
    };
    assert_eq!(post(event("working", None, "a moment")).await, answered(202, "queued"));
    assert_eq!(next(&mut one).await.unwrap()["kind"], "notice");
    assert_eq!(post(event("undeliverable", Some("m1"), "sorry")).await, answered(202, "queued"));
    assert_eq!(next(&mut one).await.unwrap()["kind"], "delivery-failed");
    assert_eq!(post(event("repeated", None, "the answer")).await, answered(202, "queued"));
    assert_eq!(
        next(&mut one).await.unwrap(),
        json!({
            "kind": "reply", "chat_id": "c", "reply_to": "m1", "content": "the answer", "recovered": true,
            "signed": true,
        })
    );
    assert_eq!(post(event("answer", Some("m1"), "the answer")).await, answered(202, "ignored"));
    assert_eq!(post("{}".into()).await, answered(422, "bad event"));
}

#[tokio::test]
async fn a_body_with_a_wrong_signature_is_rejected_before_it_is_parsed() {
    let (host, peer) = host().await;
    let _one = host.expect_in("c", "m1").await;
    let body = event("answer", Some("m1"), "forged");
    let (other_key, other_body) = (SignedWire::new("other").sign(&body), peer.sign("another body"));
    let too_short = peer.sign(&body).split_off(2);
    for signature in [other_key.as_str(), &other_body, &too_short, "zz", ""] {
        let headers = [(SIGNATURE, signature)];
        assert_eq!(
            host.send("POST", "", &headers, &body).await,
            answered(403, "bad signature"),
            "{signature}"
        );
    }
    assert_eq!(host.send("POST", "", &[], &body).await, answered(403, "bad signature"));
    assert_eq!(host.mailbox.counts().bytes, 0);
}
