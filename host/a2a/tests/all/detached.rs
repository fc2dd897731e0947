//! A turn belongs to its task, not to the request that started it.

use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::kit::{Host, message, patiently};

#[tokio::test]
async fn a_turn_carries_on_after_its_client_disconnects() {
    let host = Host::start().await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": { "message": message("wait") } });
    let body = body.to_string();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nA2A-Version: 1.0\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = host.connect().await;
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let task = host.next_waiting().await;
    drop(stream);
    // After a complete exchange the server has noticed the end of that connection.
    let working = host.call("GetTask", &json!({ "id": task.as_str() })).await["result"].clone();
    assert_eq!(working["status"]["state"], "TASK_STATE_WORKING");

    host.script.go.add_permits(1);
    let ended = host.ended(&task).await;
    assert_eq!(ended["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(ended["artifacts"][0]["parts"], json!([{ "text": "echo: wait" }]));
    assert_eq!(host.made(), 1);
}

#[tokio::test]
async fn a_shutdown_waits_for_requests_in_flight() {
    let host = Host::start().await;
    let send = json!({ "message": message("wait") });
    let (answer, ()) = tokio::join!(host.call("SendMessage", &send), async {
        host.next_waiting().await;
        host.shutdown.cancel();
        host.script.go.add_permits(1);
    });
    assert_eq!(answer["result"]["message"]["parts"][0]["text"], "echo: wait");
    host.tasks.close();
    patiently(host.tasks.wait()).await;
    assert!(tokio::net::TcpStream::connect(host.address).await.is_err(), "the port is closed");
}
