//! The body of a callback from a gateway's plugin.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use talaria_fuzz::wire;
use talaria_mailbox::{CallbackKind, CallbackWire as _, fuzz};

/// The wire alone: its crate depends on the engine, which would be compiled here for nothing.
#[path = "../../../../host/hermes/src/wire.rs"]
mod hermes_wire;

use hermes_wire::HermesWire;

fuzz_target!(|body: &[u8]| {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let wire = HermesWire::new(None);
    let post = match wire.parse(body) {
        Ok(post) => post,
        Err(error) if error.0 == "invalid json" => {
            assert_eq!(json, None, "what is JSON is not called otherwise");
            return;
        }
        Err(_) => {
            let fits = |value: &Value| {
                let text =
                    |name: &str| matches!(value.get(name), None | Some(Value::Null | Value::String(_)));
                value.get("content").is_some_and(Value::is_string) && text("reply_to") && text("chat_id")
            };
            // The parser rejects a repeated member, which a `Value` cannot represent.
            let doubled = ["\"content\"", "\"reply_to\"", "\"chat_id\"", "\\u"];
            let text = String::from_utf8_lossy(body);
            let may_be_doubled =
                doubled.iter().any(|name| text.matches(name).count() > 1) || text.contains("\\u");
            assert!(may_be_doubled || !json.as_ref().is_some_and(fits), "{json:?} is a post");
            return;
        }
    };
    assert!(std::str::from_utf8(body).is_ok(), "only text is a post");
    // Skipped members may hold a number, or a depth, that a `Value` cannot represent.
    let Some(json) = json else { return };
    let said = json["content"].as_str().expect("only a text is content");
    assert!(said.ends_with(&post.content), "only what the gateway put before it is taken off");
    let given = |name: &str| json[name].as_str().filter(|text| !text.is_empty());
    assert_eq!((post.reply_to.as_deref(), post.chat.as_deref()), (given("reply_to"), given("chat_id")));

    let [first, second] = fuzz::route(&wire, &post);
    for went in [&first, &second].into_iter().flatten() {
        match post.reply_to.as_deref() {
            Some(named) => assert_eq!(went.message, named, "a reply goes to the message that it names"),
            None => {
                assert_eq!(post.chat.as_deref(), Some("c"), "a notice goes to its chat");
                // Two answers of the chat are missing, so it is ambiguous which turn this one belongs to.
                assert!(!went.is_reply && went.message == "a", "a wrong answer is worse than none");
            }
        }
        assert_eq!(went.is_late, went.message == "b");
        assert!(
            !(post.kind == CallbackKind::DeliveryFailed && went.is_reply),
            "that it was not delivered is no answer"
        );
        wire::one_document(std::str::from_utf8(&went.body).expect("text"));
        let body: Value = serde_json::from_slice(&went.body).expect("JSON");
        assert_eq!(body["content"], post.content, "the turn is given what was said");
        assert_eq!(body["kind"] == "reply", went.is_reply);
    }
    if first.as_ref().is_some_and(|went| went.is_reply) {
        assert_eq!(second, None, "the same answer counts once");
    }
});
