//! Expected replies, and the callbacks that arrive for them.

use std::sync::Arc;

use talaria_turns::{CallbackStore, ExpectedReply, Principal, StoreError, StoredCallback, Timestamp};

use super::key;

fn announced(message: &str, chat: Option<&str>) -> ExpectedReply {
    ExpectedReply {
        message: message.into(),
        chat: chat.map(Into::into),
        task: key("a"),
        executor: "it".into(),
        at: Timestamp::from_millis(7),
        closed: None,
    }
}

fn letter(text: &str, is_reply: bool) -> StoredCallback {
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
        store.expect(&announced(message, chat)).await.unwrap();
    }
    let letters = [letter("first", false), letter("second", true), letter("", true)];
    store.put("two", &letters[1]).await.unwrap();
    for kept in &letters {
        store.put("one", kept).await.unwrap();
    }
    for (place, kept) in letters.iter().enumerate() {
        assert_eq!(store.callback("one", place).await.unwrap().as_ref(), Some(kept));
    }
    assert_eq!(store.callback("one", letters.len()).await.unwrap(), None);
    let (_, envelopes) = store.expected().await.unwrap();
    let mine: Vec<_> = envelopes.iter().filter(|envelope| *envelope.message == *"one").collect();
    let expected: Vec<_> = letters.iter().map(|letter| (letter.is_reply, letter.body.len())).collect();
    assert_eq!(mine.iter().map(|envelope| (envelope.is_reply, envelope.bytes)).collect::<Vec<_>>(), expected);
    assert_eq!(mine[1].digest, letters[1].digest);
}

pub(crate) async fn an_expected_reply_is_stored_unchanged_and_replaced_as_a_whole(
    store: Arc<dyn CallbackStore>,
) {
    let first = announced("one", Some("chat"));
    store.expect(&first).await.unwrap();
    store.put("one", &StoredCallback { is_late: true, ..letter("hi", true) }).await.unwrap();
    assert!(store.expected().await.unwrap().1[0].is_late);
    store.withdraw(&["one".into(), "nobody's".into()], Timestamp::from_millis(8)).await.unwrap();
    let closed = ExpectedReply { closed: Some(Timestamp::from_millis(8)), ..first };
    assert_eq!(store.expected().await.unwrap().0, [closed]);
    let mut again = announced("one", None);
    again.task.owner = Principal::anyone();
    store.expect(&again).await.unwrap();
    let (all, letters) = store.expected().await.unwrap();
    assert_eq!((all, letters.len()), (vec![again], 1), "its callbacks stay");
    assert!(!letters[0].is_late, "it is in time for the new expectation");
    assert_eq!(store.callback("one", 0).await.unwrap(), Some(letter("hi", true)));
}

pub(crate) async fn deleting_an_expected_reply_deletes_its_callbacks(store: Arc<dyn CallbackStore>) {
    for message in ["one", "two"] {
        store.expect(&announced(message, None)).await.unwrap();
        store.put(message, &letter("hi", true)).await.unwrap();
    }
    store.delete(&["one".into(), "nobody's".into()]).await.unwrap();
    let (all, letters) = store.expected().await.unwrap();
    assert_eq!((all.len(), letters.len()), (1, 1));
    assert_eq!(store.callback("one", 0).await.unwrap(), None);
    let rejected = store.put("one", &letter("late", true)).await;
    assert!(matches!(rejected, Err(StoreError::NotFound)), "{rejected:?}");
}
