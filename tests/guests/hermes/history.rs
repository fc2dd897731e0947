//! The endpoint keeps nothing, so each turn is sent with the earlier messages.

use serde_json::{Value, json};

use super::{polite, rig};

#[tokio::test]
async fn the_earlier_messages_are_sent_unless_the_setting_says_otherwise() {
    for (history, told) in [(None, 3), (Some("messages"), 3), (Some("session"), 1), (Some("none"), 1)] {
        let endpoint = polite().await;
        let mut rig = rig(&endpoint).await;
        if let Some(history) = history {
            rig = rig.setting("history", history);
        }
        rig.said("my name is Ada", "Hello Ada").await;
        let turn = rig.turn_of_record("what is my name?").await;
        assert_eq!(rig.execute(turn).await.text(), "hi");
        let body: Value = serde_json::from_slice(&endpoint.request().body).unwrap();
        let messages = body["messages"].as_array().unwrap();
        let known = [
            json!({ "role": "user", "content": "my name is Ada" }),
            json!({ "role": "assistant", "content": "Hello Ada" }),
            json!({ "role": "user", "content": "what is my name?" }),
        ];
        assert_eq!(messages.as_slice(), &known[3 - told..], "{history:?}");
    }
}
