//! Expected replies, and the callbacks that arrive for them.

use std::sync::Arc;

use talaria_turns::{CallbackStore, ExpectedReply, Principal, StoreError, StoredCallback, Timestamp};

use super::key;

fn expected_reply(message: &str, chat: Option<&str>) -> ExpectedReply {
    ExpectedReply {
        message: message.into(),
        chat: chat.map(Into::into),
        task: key("a"),
        executor: "it".into(),
        at: Timestamp::from_millis(7),
        closed: None,
    }
}

fn callback(text: &str, is_reply: bool) -> StoredCallback {
    let digest = std::array::from_fn(|at| text.as_bytes().get(at).copied().unwrap_or_default());
    StoredCallback {
        is_reply,
        is_late: false,
        digest,
        at: Timestamp::from_millis(9),
        body: text.as_bytes().to_vec(),
    }
}

pub(crate) async fn callbacks_are_read_back_in_the_order_of_arrival(store: Arc<dyn CallbackStore>) {
    for (message, chat) in [("one", Some("chat")), ("two", None)] {
        store.expect(&expected_reply(message, chat)).await.unwrap();
    }
    let callbacks = [callback("first", false), callback("second", true), callback("", true)];
    store.put("two", &callbacks[1]).await.unwrap();
    for callback in &callbacks {
        store.put("one", callback).await.unwrap();
    }
    for (place, callback) in callbacks.iter().enumerate() {
        assert_eq!(store.callback("one", place).await.unwrap().as_ref(), Some(callback));
    }
    assert_eq!(store.callback("one", callbacks.len()).await.unwrap(), None);
    let (_, headers) = store.expected().await.unwrap();
    let mine: Vec<_> = headers.iter().filter(|header| *header.message == *"one").collect();
    let expected: Vec<_> =
        callbacks.iter().map(|callback| (callback.is_reply, callback.body.len())).collect();
    assert_eq!(mine.iter().map(|header| (header.is_reply, header.bytes)).collect::<Vec<_>>(), expected);
    assert_eq!(mine[1].digest, callbacks[1].digest);
}

pub(crate) async fn an_expected_reply_is_stored_unchanged_and_replaced_as_a_whole(
    store: Arc<dyn CallbackStore>,
) {
    let first = expected_reply("one", Some("chat"));
    store.expect(&first).await.unwrap();
    store.put("one", &StoredCallback { is_late: true, ..callback("hi", true) }).await.unwrap();
    assert!(store.expected().await.unwrap().1[0].is_late);
    store.withdraw(&["one".into(), "nobody's".into()], Timestamp::from_millis(8)).await.unwrap();
    let closed = ExpectedReply { closed: Some(Timestamp::from_millis(8)), ..first };
    assert_eq!(store.expected().await.unwrap().0, [closed]);
    let mut again = expected_reply("one", None);
    again.task.owner = Principal::anyone();
    store.expect(&again).await.unwrap();
    let (all, callbacks) = store.expected().await.unwrap();
    assert_eq!((all, callbacks.len()), (vec![again], 1), "its callbacks stay");
    assert!(!callbacks[0].is_late, "it is in time for the new expectation");
    assert_eq!(store.callback("one", 0).await.unwrap(), Some(callback("hi", true)));
}

pub(crate) async fn deleting_an_expected_reply_deletes_its_callbacks(store: Arc<dyn CallbackStore>) {
    for message in ["one", "two"] {
        store.expect(&expected_reply(message, None)).await.unwrap();
        store.put(message, &callback("hi", true)).await.unwrap();
    }
    store.delete(&["one".into(), "nobody's".into()]).await.unwrap();
    let (all, callbacks) = store.expected().await.unwrap();
    assert_eq!((all.len(), callbacks.len()), (1, 1));
    assert_eq!(store.callback("one", 0).await.unwrap(), None);
    let rejected = store.put("one", &callback("late", true)).await;
    assert!(matches!(rejected, Err(StoreError::NotFound)), "{rejected:?}");
}
