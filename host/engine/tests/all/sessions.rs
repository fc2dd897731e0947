//! The session variables of a turn, as its guest sees them.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_rig::Rig;
use talaria_turns::{Message, Turn};
use tokio::task::JoinSet;

/// In the order of the record.
const NAMES: [&str; 11] = [
    "platform",
    "source",
    "chat-id",
    "chat-name",
    "thread-id",
    "user-id",
    "user-name",
    "key",
    "id",
    "message-id",
    "cwd",
];

fn with(turn: Turn, metadata: Value) -> Turn {
    let message = Message { metadata: metadata.as_object().cloned(), ..(*turn.message).clone() };
    Turn { message: Arc::new(message), ..turn }
}

#[tokio::test]
async fn unset_variables_are_distinguished_from_empty_ones() {
    let rig = Rig::new("probe").await;
    let turn = with(
        rig.turn("session"),
        json!({ "session": { "chat_name": "", "user_id": "u", "session_key": "k" } }),
    );
    let seen: Value = serde_json::from_str(rig.execute(turn).await.text()).unwrap();
    assert_eq!((&seen["chat-name"], &seen["thread-id"]), (&json!(""), &json!("")), "the record cannot tell");
    let set: Vec<&Value> = seen["set"].as_array().unwrap().iter().collect();
    let of = |name: &str| set[NAMES.iter().position(|known| *known == name).unwrap()];
    assert_eq!((of("chat-name"), of("thread-id")), (&json!(""), &Value::Null));
    assert_eq!((of("user-id"), of("key"), of("platform")), (&json!("u"), &json!("k"), &Value::Null));
    assert_eq!((&seen["platform"], &seen["async-delivery"]), (&json!("a2a"), &json!(false)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_turns_never_see_each_others_variables() {
    let rig = Arc::new(Rig::new("probe").await);
    let mut turns = JoinSet::new();
    for turn in 0..400_usize {
        let rig = Arc::clone(&rig);
        turns.spawn(async move {
            // Every other turn leaves some variables out, so that a foreign value would show.
            let members = [
                "platform",
                "source",
                "chat_id",
                "chat_name",
                "thread_id",
                "user_id",
                "user_name",
                "session_key",
                "session_id",
                "message_id",
                "cwd",
            ];
            let set = |at: usize| (turn + at).is_multiple_of(2);
            let session: serde_json::Map<String, Value> = members
                .iter()
                .enumerate()
                .filter(|(at, _)| set(*at))
                .map(|(_, name)| ((*name).to_owned(), format!("{name}-{turn}").into()))
                .collect();
            let asked =
                Turn { async_delivery: set(0), ..with(rig.turn("session"), json!({ "session": session })) };
            let (context, message) = (asked.context.to_string(), asked.message.id.to_string());
            let seen: Value = serde_json::from_str(rig.execute(asked).await.text()).unwrap();
            for (at, (name, member)) in NAMES.iter().zip(members).enumerate() {
                let given = format!("{member}-{turn}");
                let default = match *name {
                    "platform" => "a2a",
                    "chat-id" => &context,
                    "message-id" => &message,
                    _ => "",
                };
                let expected = if set(at) { given.as_str() } else { default };
                assert_eq!(seen[*name], expected, "turn {turn}: {name}");
                assert_eq!(
                    seen["set"][at],
                    if set(at) { json!(given) } else { Value::Null },
                    "turn {turn}: {name}"
                );
            }
            assert_eq!(seen["async-delivery"], set(0), "turn {turn}");
        });
    }
    turns.join_all().await;
}
