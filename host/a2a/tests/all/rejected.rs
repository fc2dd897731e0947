//! Bad input in every version and binding: the same reason everywhere, and nothing changes.

use secrecy::SecretString;
use serde_json::{Value, json};
use talaria_a2a::{Config, Token};
use talaria_turns::Limits;

use crate::kit::{Host, message};
use crate::wire::{ALL, Ask, Wire};

/// Returns the HTTP status and the code for a reason.
fn expected(wire: Wire, reason: &str) -> (u16, i64) {
    let (status, code) = match reason {
        "TASK_NOT_FOUND" => (404, -32001),
        "PUSH_NOTIFICATION_NOT_SUPPORTED" => (400, -32003),
        "UNSUPPORTED_OPERATION" => (400, -32004),
        "CONTENT_TYPE_NOT_SUPPORTED" => (400, -32005),
        "INVALID_PARAMS" => (400, -32602),
        other => panic!("{other}"),
    };
    if wire.is_rest() { (status, i64::from(status)) } else { (200, code) }
}

async fn assert_rejected(
    wire: Wire,
    host: &Host,
    headers: &[(&str, &str)],
    ask: &Ask<'_>,
    reason: &str,
    field: &str,
) {
    let answer = wire.ask_as(host, headers, ask).await;
    let (status, code, found, at) = wire.error(&answer);
    assert_eq!((&*found, &*at), (reason, field), "{wire:?} {ask:?}");
    assert_eq!((status, code), expected(wire, reason), "{wire:?} {ask:?}");
}

#[tokio::test]
async fn rejects_ids_that_are_missing_malformed_or_too_long() {
    let host = Host::start().await;
    let huge = "x".repeat(257);
    for wire in ALL {
        for asks in [Ask::Get, Ask::Cancel, Ask::Subscribe] {
            assert_rejected(wire, &host, &[], &asks("none"), "TASK_NOT_FOUND", "").await;
            assert_rejected(wire, &host, &[], &asks(&huge), "INVALID_PARAMS", "id").await;
            if wire.is_rest() {
                assert_rejected(wire, &host, &[], &asks("a%0Ab"), "INVALID_PARAMS", "id").await;
            } else {
                assert_rejected(wire, &host, &[], &asks("a\nb"), "INVALID_PARAMS", "id").await;
                assert_rejected(wire, &host, &[], &asks(""), "INVALID_PARAMS", "id").await;
            }
        }
        for at in ["taskId", "contextId", "messageId"] {
            for asks in [Ask::Send, Ask::Stream] {
                for bad in [json!(huge), json!(7), json!("\u{0}"), json!([])] {
                    let mut message = wire.message("hi");
                    message[at] = bad;
                    let ask = asks(json!({ "message": message }));
                    assert_rejected(wire, &host, &[], &ask, "INVALID_PARAMS", &format!("message.{at}")).await;
                }
            }
        }
        for asks in [Ask::Send, Ask::Stream] {
            let mut message = wire.message("hi");
            message["taskId"] = json!("none");
            assert_rejected(wire, &host, &[], &asks(json!({ "message": message })), "TASK_NOT_FOUND", "")
                .await;
            assert_rejected(wire, &host, &[], &asks(json!({})), "INVALID_PARAMS", "message").await;
        }
        assert_rejected(wire, &host, &[], &Ask::PushConfigs("t"), "PUSH_NOTIFICATION_NOT_SUPPORTED", "")
            .await;
    }
    assert_eq!(host.made(), 0);
}

#[tokio::test]
async fn rejects_invalid_configurations() {
    let host = Host::start().await;
    for wire in ALL {
        let push = match wire {
            Wire::Rpc | Wire::Rest => "taskPushNotificationConfig",
            Wire::OldRpc => "pushNotificationConfig",
            Wire::OldRest => "pushNotification",
        };
        for (name, value, reason, field) in [
            ("historyLength", json!(-1), "INVALID_PARAMS", "configuration.historyLength"),
            ("historyLength", json!("many"), "INVALID_PARAMS", "configuration.historyLength"),
            ("historyLength", json!(2_147_483_648_u64), "INVALID_PARAMS", "configuration.historyLength"),
            (
                "acceptedOutputModes",
                json!("text/plain"),
                "INVALID_PARAMS",
                "configuration.acceptedOutputModes",
            ),
            ("acceptedOutputModes", json!([1]), "INVALID_PARAMS", "configuration.acceptedOutputModes[0]"),
            (push, json!({ "url": "https://example.com" }), "PUSH_NOTIFICATION_NOT_SUPPORTED", ""),
        ] {
            for asks in [Ask::Send, Ask::Stream] {
                let mut params = wire.params("hi");
                params["configuration"] = json!({ name: value });
                assert_rejected(wire, &host, &[], &asks(params), reason, field).await;
            }
        }
    }
    assert_eq!(host.made(), 0);
    for wire in ALL {
        // No media type is rejected: the answer comes in the types that there are.
        for modes in [
            json!([]),
            Value::Null,
            json!(["*/*"]),
            json!(["application/json"]),
            json!(["image/png", "audio/*"]),
        ] {
            let mut params = wire.params("hi");
            params["configuration"] = json!({ "acceptedOutputModes": modes });
            assert_eq!(wire.ask(&host, &Ask::Send(params)).await.status, 200, "{wire:?} {modes}");
        }
    }
}

#[tokio::test]
async fn the_turn_gets_the_media_types_that_the_caller_accepts() {
    let host = Host::start().await;
    for wire in ALL {
        for (modes, received) in [
            (json!(["text/plain", "application/json"]), r#"["text/plain","application/json"]"#),
            (json!([]), "none"),
        ] {
            let mut params = wire.params("modes");
            params["configuration"] = json!({ "acceptedOutputModes": modes, "blocking": true });
            // Metadata of the caller must not replace it.
            params["metadata"] = json!({ "talaria/output-modes": ["image/png"] });
            let answer = wire.ask(&host, &Ask::Send(params)).await.json().to_string();
            assert!(answer.contains(&json!(received).to_string()), "{wire:?} {modes}: {answer}");
        }
    }
}

#[tokio::test]
async fn the_task_of_another_caller_looks_like_a_missing_one() {
    fn two_callers(config: &mut Config) {
        let token = |name: &str, secret: &str| Token::new(name, SecretString::from(secret)).unwrap();
        config.tokens = vec![token("owner", "one"), token("other", "two")];
    }
    let host = Host::with(two_callers, Limits::default()).await;
    let (owner, other) = (("authorization", "Bearer one"), ("authorization", "Bearer two"));
    let asked = host.call_as(&[owner], "SendMessage", &json!({ "message": message("ask") })).await.json();
    let id = asked["result"]["task"]["id"].as_str().unwrap();
    for wire in ALL {
        let mut answer = wire.message("hi");
        answer["taskId"] = json!(id);
        let answer = json!({ "message": answer });
        for ask in [
            Ask::Get(id),
            Ask::Cancel(id),
            Ask::Subscribe(id),
            Ask::Send(answer.clone()),
            Ask::Stream(answer),
        ] {
            assert_rejected(wire, &host, &[other], &ask, "TASK_NOT_FOUND", "").await;
            assert_eq!(wire.ask_as(&host, &[], &ask).await.status, 401, "{wire:?} {ask:?}");
        }
        let task = wire.ask_as(&host, &[owner], &Ask::Get(id)).await;
        assert!(task.json().to_string().to_lowercase().contains("input"), "{wire:?}: nothing changed");
    }
    assert_eq!(host.made(), 1);
}

/// If a stream request is answered without a stream, clients of 0.3 fail and never show the error.
#[tokio::test]
async fn an_error_is_sent_as_an_event_to_a_client_of_0_3_that_wants_a_stream() {
    let host = Host::start().await;
    let accept = ("accept", "text/event-stream");
    for ask in [Ask::Subscribe("none"), Ask::Stream(json!({}))] {
        let answer = Wire::OldRpc.ask_as(&host, &[accept], &ask).await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some("text/event-stream")),
            "{ask:?}"
        );
        let event = String::from_utf8(answer.body).unwrap();
        let data = event.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
        let error: Value = serde_json::from_str(data).unwrap();
        assert!(error["error"]["code"].is_i64(), "{error}");
        let answer = Wire::Rpc.ask_as(&host, &[accept], &ask).await;
        assert_eq!(
            answer.header("content-type"),
            Some("application/json"),
            "clients of 1.0 read either: {ask:?}"
        );
    }
}
