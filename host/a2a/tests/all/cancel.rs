//! A task can be cancelled once, whatever it is doing, and only by its owner.

use serde_json::json;

use crate::kit::{Host, message};
use crate::wire::{ALL, Ask, state};

#[tokio::test]
async fn a_running_task_is_cancelled_and_its_streams_say_so() {
    let host = Host::start().await;
    for wire in ALL {
        let mut stream = wire.stream(&host, "stuck").await;
        let id = host.next_waiting().await;
        let task = wire.get(&host, &Ask::Cancel(id.as_str())).await;
        assert_eq!(
            (state(&task["status"]), task["id"].as_str()),
            ("canceled".into(), Some(id.as_str())),
            "{wire:?}"
        );
        let last = stream.rest().await.pop().unwrap();
        assert!(wire.brief(&last).starts_with("status canceled"), "{wire:?}");
        let again = wire.ask(&host, &Ask::Cancel(id.as_str())).await;
        assert_eq!(wire.reason(&again), "TASK_NOT_CANCELABLE", "a task is cancelled once: {wire:?}");
        let kept = wire.get(&host, &Ask::Get(id.as_str())).await;
        assert_eq!(kept["status"], task["status"], "a second cancel changes nothing: {wire:?}");
    }
}

#[tokio::test]
async fn the_state_is_spelt_as_in_the_version() {
    let host = Host::start().await;
    let words = ["TASK_STATE_CANCELED", "TASK_STATE_CANCELED", "canceled", "TASK_STATE_CANCELLED"];
    for (wire, word) in ALL.into_iter().zip(words) {
        let sent = host.call("SendMessage", &json!({ "message": message("ask") })).await;
        let id = sent["result"]["task"]["id"].as_str().unwrap();
        let task = wire.get(&host, &Ask::Cancel(id)).await;
        assert_eq!(
            task["status"]["state"], word,
            "a task that waits for input can be cancelled too: {wire:?}"
        );
    }
}

#[tokio::test]
async fn a_task_that_is_over_cannot_be_cancelled() {
    let host = Host::start().await;
    let sent = host.call("SendMessage", &json!({ "message": message("as-task") })).await;
    let id = sent["result"]["task"]["id"].as_str().unwrap();
    for wire in ALL {
        let answer = wire.ask(&host, &Ask::Cancel(id)).await;
        let (status, code, reason, _) = wire.error(&answer);
        assert_eq!(reason, "TASK_NOT_CANCELABLE", "{wire:?}");
        assert_eq!((status, code), if wire.is_rest() { (400, 400) } else { (200, -32002) }, "{wire:?}");
        let task = wire.get(&host, &Ask::Get(id)).await;
        assert_eq!(state(&task["status"]), "completed", "{wire:?}");
    }
}

#[tokio::test]
async fn a_blocking_send_is_answered_with_the_cancelled_task() {
    let host = Host::start().await;
    let params = json!({ "message": message("stuck") });
    let send = host.call("SendMessage", &params);
    let cancel = async {
        let id = host.next_waiting().await;
        host.call("CancelTask", &json!({ "id": id.as_str() })).await
    };
    let (sent, cancelled) = tokio::join!(send, cancel);
    assert_eq!(sent["result"]["task"]["status"], cancelled["result"]["status"]);
}
