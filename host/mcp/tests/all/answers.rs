//! Whatever a server answers, the model gets a sentence and the operator a fix.

use serde_json::{Value, json};
use talaria_fakes::{FakeToolServer, Reply, Stream};

use crate::kit::Client;

/// A reply to the call of a tool, and what the sentence says.
fn replies() -> Vec<(Reply, &'static str)> {
    let status = |status, body: &str| Reply::status(status, "application/json", body.to_owned());
    let document = |body: &str| status(200, body);
    let events = |text: &str| Reply::from(Stream::default().bytes(text.to_owned()));
    vec![
        (status(401, "{}"), "it answered 401"),
        (status(403, ""), "it answered 403"),
        (status(405, ""), "it answered 405"),
        (status(429, ""), "it answered 429"),
        (status(500, r#"{"error":{"code":1,"message":"out of\ndisk"}}"#), "it answered 500: out of disk"),
        (status(302, "").header("location", "http://169.254.169.254/"), "it answered 302"),
        (status(202, ""), "it answered 202 without the response"),
        (Reply::status(200, "text/html", "<html>"), "it answered with \"text/html\", which is not MCP"),
        (Reply::status(200, "", "{}"), "it answered with \"\""),
        (document(""), "its answer is not JSON"),
        (document("<html>"), "its answer is not JSON"),
        (document("{}"), "not the response to the request"),
        (document(r#"{"id":999,"result":{}}"#), "not the response to the request"),
        (document("data: {}\n\n"), "its answer is not JSON"),
        (document(&"[".repeat(100_000)), "nested too deeply"),
        (document(&format!("[{}0]", "0,".repeat(100_000))), "of too many values"),
        (document(&"x".repeat(10 << 20)), "longer than 4194304 bytes"),
        (Reply::status(200, "text/event-stream", "{}"), "its stream ended before the answer"),
        (events("data: {}\n\n"), "its stream ended before the answer"),
        (events("event: other\ndata: <\n\n"), "its stream ended before the answer"),
        (events("data: <html>\n\n"), "its answer is not JSON"),
        (events(&"data: {}\n\n".repeat(1 << 20)), "longer than 4194304 bytes"),
        (Stream::default().bytes("data: {}\n\n").cut().into(), "connection closed before the end"),
        (Reply::raw("not HTTP"), "not valid HTTP"),
    ]
}

#[tokio::test]
async fn whatever_a_server_answers_the_model_gets_a_sentence() {
    for (reply, sentence) in replies() {
        let server = FakeToolServer::start().await;
        let client = Client::new(&server.url());
        client.offers(&["docs__echo", "docs__fail"]).await;
        server.answer_with(move |method, _| (method == "tools/call").then(|| reply.clone()));
        let why = client.unavailable().await;
        assert!(why.contains(sentence), "{sentence}: {why}");
        assert!(why.len() < 600 && !why.contains(char::is_control), "{why}");
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_explained_to_its_operator() {
    let page = Reply::status(200, "text/html", "<html>");
    let version = |version: Value| {
        move |message: &Value| {
            let result = json!({ "protocolVersion": version, "capabilities": {} });
            Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
        }
    };
    let (old, none) = (version(json!("1999-01-01")), version(Value::Null));
    let bad_session = version(json!("2025-06-18"));
    type Answer = Box<dyn Fn(&Value) -> Reply + Send>;
    let answers: [(Answer, &str, &str); 6] = [
        (Box::new(|_| Reply::status(401, "text/plain", "")), "it answered 401", "check `token`"),
        (Box::new(|_| Reply::status(307, "text/plain", "")), "it answered 307", "redirects are not followed"),
        (Box::new(move |_| page.clone()), "text/html", "check that `url`"),
        (Box::new(old), "version \"1999-01-01\"", "check that `url`"),
        (Box::new(none), "version \"\"", "check that `url`"),
        (
            Box::new(move |message| bad_session(message).header("mcp-session-id", "{secret:authorization}")),
            "the id of its session",
            "check that `url`",
        ),
    ];
    for (answer, what, fix) in answers {
        let server = FakeToolServer::start().await;
        server.answer_with(move |method, message| (method == "initialize").then(|| answer(message)));
        let client = Client::new(&server.url());
        let fault = client.server.check().await.unwrap_err();
        assert!(fault.what.contains(what) && fault.fix.contains(fix), "{what}: {fault:?}");
    }
}
