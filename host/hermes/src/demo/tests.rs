//! The gateway over a real socket, called as an executor calls it.

use bytes::Bytes;
use talaria_egress::{Access, Config, Egress, Request, Response};

use super::*;

struct Demo {
    gateway: DemoGateway,
    tracker: TaskTracker,
    shutdown: CancellationToken,
    egress: Egress,
}

impl Demo {
    async fn start() -> Self {
        let (tracker, shutdown) = (TaskTracker::new(), CancellationToken::new());
        let gateway = start(&tracker, shutdown.clone()).await.expect("a free port");
        Self { gateway, tracker, shutdown, egress: Egress::new(Config::default()) }
    }

    fn root(&self) -> &str {
        self.gateway.base_url.strip_suffix("/v1").expect("the base is below /v1")
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response {
        let patterns = vec![format!("* {}/*", self.root()).parse().expect("a pattern")];
        let access = Access { executor: "test".into(), patterns, ..Access::default() };
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let url = format!("{}{path}", self.root());
        let request =
            Request { method: method.into(), url, headers, body: body.into(), ..Request::default() };
        self.egress.fetch(&access, request).await.expect("the gateway answers")
    }

    async fn chat(&self, body: Value) -> Response {
        let key = format!("Bearer {}", self.gateway.api_key.expose_secret());
        self.call("POST", "/v1/chat/completions", &[("authorization", &key)], body.to_string()).await
    }
}

fn prompt(text: &str, stream: bool) -> Value {
    json!({ "model": "m", "messages": [{ "role": "user", "content": text }], "stream": stream })
}

fn body(response: &Response) -> Value {
    serde_json::from_slice(&response.body).expect("JSON")
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

#[tokio::test]
async fn a_turn_is_answered() {
    let response = Demo::start().await.chat(prompt("hi", false)).await;
    assert_eq!(response.status, 200);
    let answer = body(&response);
    assert!(answer["id"].as_str().expect("an id").starts_with("chatcmpl-"));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("chat.completion"), &json!("m")));
    assert!(answer["created"].as_u64().expect("a date") > 1_700_000_000);
    let choice = &answer["choices"][0];
    assert_eq!((&choice["index"], &choice["finish_reason"]), (&json!(0), &json!("stop")));
    assert_eq!(choice["message"]["role"], "assistant");
    assert!(choice["message"]["content"].as_str().expect("text").starts_with("You said: \"hi\"."));
    assert_eq!(answer["usage"]["prompt_tokens"], 1);
    assert!(header(&response, "x-hermes-session-id").expect("a session").starts_with("api-"));
}

#[tokio::test]
async fn a_turn_is_streamed() {
    let response = Demo::start().await.chat(prompt("hi", true)).await;
    assert_eq!(header(&response, "content-type"), Some("text/event-stream"));
    let text = String::from_utf8(response.body.to_vec()).expect("text");
    let mut data = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let first: Value = serde_json::from_str(data.next().expect("a first event")).expect("JSON");
    assert_eq!(first["object"], "chat.completion.chunk");
    assert_eq!(first["choices"][0]["delta"], json!({ "role": "assistant" }));
    let rest: Vec<_> = data.collect();
    let (done, rest) = rest.split_last().expect("an end");
    assert_eq!(*done, "[DONE]");
    let last: Value = serde_json::from_str(rest.last().expect("a last chunk")).expect("JSON");
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert_eq!(last["choices"][0]["delta"], json!({}));
    assert_eq!(last["usage"]["prompt_tokens"], 1);
    assert!(last.get("hermes").is_none());
}

#[tokio::test]
async fn a_failure_is_a_200() {
    let demo = Demo::start().await;
    let response = demo.chat(prompt("fail now", false)).await;
    assert_eq!((response.status, header(&response, "x-hermes-completed")), (200, Some("false")));
    let answer = body(&response);
    assert_eq!(answer["choices"][0]["finish_reason"], "error");
    assert_eq!(
        (&answer["hermes"]["failed"], &answer["hermes"]["error_code"]),
        (&json!(true), &json!("agent_error"))
    );
    assert_eq!(answer["choices"][0]["message"]["content"], answer["hermes"]["error"]);
    let streamed = demo.chat(prompt("fail now", true)).await;
    let text = String::from_utf8(streamed.body.to_vec()).expect("text");
    assert!(text.contains("\"finish_reason\":\"error\"") && text.contains("\"failed\":true"), "{text}");
}

#[tokio::test]
async fn the_key_is_asked_for() {
    let demo = Demo::start().await;
    for headers in [&[][..], &[("authorization", "Bearer wrong")][..]] {
        for (method, path) in [("POST", "/v1/chat/completions"), ("GET", "/v1/models")] {
            let response = demo.call(method, path, headers, "{}").await;
            assert_eq!(response.status, 401);
            let error = json!({ "message": "Invalid API key", "type": "invalid_request_error", "code": "invalid_api_key" });
            assert_eq!(body(&response), json!({ "error": error }));
        }
    }
}

#[tokio::test]
async fn health_and_models_are_there() {
    let demo = Demo::start().await;
    for path in ["/health", "/v1/health"] {
        let response = demo.call("GET", path, &[], "").await;
        assert_eq!((response.status, &body(&response)["status"]), (200, &json!("ok")));
    }
    let key = format!("Bearer {}", demo.gateway.api_key.expose_secret());
    let models = demo.call("GET", "/v1/models", &[("authorization", &key)], "").await;
    assert_eq!(body(&models)["data"][0]["id"], "hermes-agent");
}

#[tokio::test]
async fn what_cannot_be_answered_is_refused_as_the_gateway_does() {
    let demo = Demo::start().await;
    let not_found = demo.call("GET", "/nowhere", &[], "").await;
    assert_eq!(
        (not_found.status, header(&not_found, "content-type")),
        (404, Some("text/plain; charset=utf-8"))
    );
    assert_eq!(demo.call("GET", "/v1/chat/completions", &[], "").await.status, 405);
    let cross = demo.call("GET", "/health", &[("origin", "http://evil.example")], "").await;
    assert_eq!((cross.status, cross.body.len()), (403, 0));
    assert_eq!(demo.chat(json!([1])).await.status, 500);
    assert_eq!(demo.chat(json!({})).await.status, 400);
    let key = format!("Bearer {}", demo.gateway.api_key.expose_secret());
    let send = |body: Vec<u8>| {
        let key = key.clone();
        let demo = &demo;
        async move { demo.call("POST", "/v1/chat/completions", &[("authorization", &key)], body).await }
    };
    let broken = send(b"{".to_vec()).await;
    assert_eq!(
        (broken.status, &body(&broken)["error"]["message"]),
        (400, &json!("Invalid JSON in request body"))
    );
    let large = send(vec![b' '; LARGEST_BODY + 1]).await;
    assert_eq!((large.status, &body(&large)["error"]["code"]), (413, &json!("body_too_large")));
}

#[tokio::test]
async fn it_ends_when_told() {
    let demo = Demo::start().await;
    assert_eq!(demo.call("GET", "/health", &[], "").await.status, 200);
    demo.shutdown.cancel();
    demo.tracker.close();
    // The pooled connection of the call above is open and idle; it must not hold up the end.
    let ended = tokio::time::timeout(talaria_fakes::PATIENCE, demo.tracker.wait()).await;
    assert!(ended.is_ok(), "the gateway goes on after its end");
}
