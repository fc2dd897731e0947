//! Traces: what a collector gets, what upstreams and webhooks get, and that nothing waits for a collector.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_fakes::{
    Exported, FakeCollector, FakeGateway, FakeToolServer, Recorded, Reply, free_port, guest, soon,
};

use crate::bridge::{Bridge, Start, call, message, request};
use crate::webhook::Webhook;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const SECRET: &str = "a-long-key-of-the-tests-7291";

const CALLBACK: &str = r#"
[executors]
default = "my-gateway"
[store]
url = "sqlite:tasks.db"
[push]
allow_private = true
[callback]
listen = "127.0.0.1:0"
secret = { env = "REPLY_SECRET" }
[callback.plain]
path = "/hooks/replies"
secret_header = "x-api-key"
message_id = "/in_reply_to"
content = "/text"
[executor.my-gateway]
component = "builtin:plugin-callback"
"#;

fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{CALLER}-{flags}")
}

fn traced<'a>(start: Start<'a>, collector: &FakeCollector) -> Start<'a> {
    start.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()).env("OTEL_BSP_SCHEDULE_DELAY", "50")
}

/// A bridge with the executor `probe`, which may call `upstream`.
fn probing<'a>(folder: &'a Path, upstream: &FakeGateway, more: &str) -> Start<'a> {
    let executors = folder.join("executors");
    std::fs::create_dir_all(&executors).unwrap();
    std::fs::write(executors.join("probe.wasm"), guest("probe")).unwrap();
    let url = format!("http://{}", upstream.address());
    let policy = format!("[settings]\nbase_url = \"{url}\"\n[grant]\negress = [\"GET {url}/v1/x\"]\n");
    std::fs::write(executors.join("probe.toml"), policy).unwrap();
    let config = "[executors]\ndefault = \"probe\"\n[store]\nurl = \"sqlite:tasks.db\"\n";
    Start::new(folder).config(&format!("{config}{more}"))
}

async fn upstream() -> FakeGateway {
    FakeGateway::always(Reply::json(&json!({ "ok": true }))).await
}

async fn send(bridge: &Bridge, params: Value, headers: &[(&str, &str)]) -> Value {
    let headers: Vec<_> = headers.iter().copied().chain([("a2a-version", "1.0")]).collect();
    call(bridge.url(), "SendMessage", params, &headers).await
}

fn named<'a>(spans: &'a [Exported], name: &str) -> &'a Exported {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    let [span] = found.as_slice() else { panic!("{} spans {name} in {spans:#?}", found.len()) };
    span
}

/// Checks that every span is in one trace, below the caller's span, and not longer than the time allows.
fn assert_tree(spans: &[Exported], edges: &[(&str, &str)]) {
    for span in spans {
        assert_eq!(span.trace, TRACE, "{span:?}");
        assert!(span.time.0 <= span.time.1, "{span:?}");
        assert_eq!(span.resource["service.name"], "bridge");
    }
    for (child, of) in edges {
        let id = if of.is_empty() { CALLER } else { named(spans, of).id.as_str() };
        for child in spans.iter().filter(|span| span.name == *child) {
            assert_eq!(child.parent, id, "{} is not below {of}: {spans:#?}", child.name);
        }
    }
}

/// The gateway behind the plugin: acknowledges messages.
async fn acknowledging() -> FakeGateway {
    FakeGateway::start(|_| Reply::json(&json!({ "ok": true }))).await
}

async fn inbound(gateway: &FakeGateway) -> Recorded {
    soon("the message arrives", async {
        loop {
            let found = gateway.requests().into_iter().find(|request| request.path == "/a2a/inbound");
            if let Some(found) = found {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

async fn reply(bridge: &Bridge, to: &Recorded) {
    let url = bridge.banner["callback"].as_str().unwrap();
    let root = url.strip_suffix("/hooks/replies").expect("the path of the configuration");
    let body = json!({ "in_reply_to": to.json()["message_id"], "text": "the answer" }).to_string();
    let headers =
        [("x-api-key", SECRET), ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")];
    let posted = request(root, "POST", "/hooks/replies", &headers, &body).await;
    assert_eq!(posted.status, 200, "{posted:?}");
}

fn with_callbacks<'a>(folder: &'a Path, gateway: &FakeGateway, collector: &FakeCollector) -> Start<'a> {
    let settings = format!("settings = {{ inbound_url = \"http://{}/a2a/inbound\" }}\n", gateway.address());
    let start = Start::new(folder).config(&format!("{CALLBACK}{settings}")).env("REPLY_SECRET", SECRET);
    traced(start, collector).env("OTEL_SERVICE_NAME", "bridge")
}

fn pushed(hook: &Webhook) -> Value {
    let mut params = message("hi");
    params["configuration"] = json!({
        "returnImmediately": true,
        "taskPushNotificationConfig": { "id": "h", "url": hook.url },
    });
    params
}

const TREE: [(&str, &str); 6] = [
    ("a2a.request", ""),
    ("turn", "a2a.request"),
    ("guest.execute", "turn"),
    ("egress.send", "guest.execute"),
    ("callback.wait", "guest.execute"),
    ("push.deliver", "turn"),
];

#[tokio::test(flavor = "multi_thread")]
async fn one_turn_is_one_trace_from_its_caller_to_the_upstream_and_back() {
    let (gateway, collector, hook) =
        (acknowledging().await, FakeCollector::start().await, Webhook::start(true).await);
    let folder = tempfile::tempdir().unwrap();
    let bridge = with_callbacks(folder.path(), &gateway, &collector).up();
    let headers = [("traceparent", parent("01")), ("tracestate", "vendor=opaque".to_owned())];
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let answer = send(&bridge, pushed(&hook), &headers).await;
    let id = answer["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let message = inbound(&gateway).await;
    reply(&bridge, &message).await;
    let task = bridge.in_state(&id, "TASK_STATE_COMPLETED").await;
    assert!(!task.to_string().contains(TRACE), "callers do not see it: {task}");
    soon("the last push comes", async {
        while !hook.deliveries().iter().any(|push| push.body.to_string().contains("TASK_STATE_COMPLETED")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let complete = |spans: &[Exported]| {
        let pushes = spans.iter().filter(|span| span.name == "push.deliver").count();
        spans.iter().any(|span| span.name == "turn") && pushes >= hook.deliveries().len()
    };
    let spans = collector.until("the turn and its pushes", complete).await;
    // The request that asked for the task brought no trace of its own, and began another.
    let spans: Vec<_> = spans.into_iter().filter(|span| span.trace == TRACE).collect();
    assert_tree(&spans, &TREE);
    for span in &spans {
        assert_eq!(span.state, "vendor=opaque");
    }
    // What the upstream and the webhook got names the span of their call.
    let call = spans.iter().find(|span| span.attribute("url.full").ends_with("/a2a/inbound")).unwrap();
    assert_eq!(message.header("traceparent"), Some(format!("00-{TRACE}-{}-01", call.id).as_str()));
    assert_eq!(message.header("tracestate"), Some("vendor=opaque"));
    assert_eq!(call.attribute("http.response.status_code"), "200");
    for push in hook.deliveries() {
        let named = spans.iter().any(|span| {
            span.name == "push.deliver"
                && push.head.contains(&format!("traceparent: 00-{TRACE}-{}-01", span.id))
        });
        assert!(named, "{}", push.head);
    }
    let wait = named(&spans, "callback.wait");
    let posted = ("0af7651916cd43dd8448eb211c80319c".to_owned(), "b7ad6b7169203331".to_owned());
    assert_eq!(wait.links, [posted]);
    let turn = named(&spans, "turn");
    assert_eq!(turn.attribute("gen_ai.operation.name"), "invoke_agent");
    assert_eq!(turn.attribute("gen_ai.agent.name"), "my-gateway");
    assert_eq!(turn.attribute("gen_ai.conversation.id"), task["contextId"].as_str().unwrap());
    assert_eq!(turn.attribute("talaria.task.id"), id);
    assert_eq!(turn.attribute("talaria.turn.state"), "completed");
    let exported = format!("{spans:?}");
    assert!(!exported.contains("the answer") && !exported.contains(SECRET), "{exported}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_on_after_a_kill() {
    let (gateway, collector, hook) =
        (acknowledging().await, FakeCollector::start().await, Webhook::start(true).await);
    let folder = tempfile::tempdir().unwrap();
    let bridge = with_callbacks(folder.path(), &gateway, &collector).up();
    let answer = send(&bridge, pushed(&hook), &[("traceparent", &parent("01"))]).await;
    let id = answer["result"]["task"]["id"].as_str().unwrap().to_owned();
    let message = inbound(&gateway).await;
    let called = |spans: &[Exported]| {
        let is_call = |span: &Exported| span.attribute("url.full").ends_with("/a2a/inbound");
        spans.iter().any(is_call) && spans.iter().any(|span| span.name == "a2a.request")
    };
    collector.until("the call", called).await;
    bridge.kill();
    let bridge = with_callbacks(folder.path(), &gateway, &collector).up();
    reply(&bridge, &message).await;
    bridge.in_state(&id, "TASK_STATE_COMPLETED").await;
    let spans = collector.has("turn").await;
    let spans: Vec<_> = spans.into_iter().filter(|span| span.trace == TRACE).collect();
    assert_tree(&spans, &TREE);
    named(&spans, "callback.wait");
    assert!(called(&spans), "what was called before the kill is below what ended after it: {spans:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guests_own_spans_are_in_the_trace_with_their_attributes() {
    let (gateway, collector) = (upstream().await, FakeCollector::start().await);
    let folder = tempfile::tempdir().unwrap();
    let start = traced(probing(folder.path(), &gateway, ""), &collector).env("OTEL_SERVICE_NAME", "bridge");
    let bridge = start.up();
    send(&bridge, message("span"), &[("traceparent", &parent("01"))]).await;
    let spans = collector.has("turn").await;
    assert_tree(&spans, &[("probe.work", "guest.execute")]);
    let span = named(&spans, "probe.work");
    assert_eq!((span.attribute("kind"), span.attribute("step")), ("test", "two"));
    assert_eq!(span.events, ["halfway"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_call_is_in_the_trace_with_the_line_that_would_allow_it() {
    let (gateway, collector) = (upstream().await, FakeCollector::start().await);
    let folder = tempfile::tempdir().unwrap();
    let bridge = traced(probing(folder.path(), &gateway, ""), &collector).up();
    bridge.say(&format!("fetch http://{}/private?token={SECRET}", gateway.address())).await;
    let spans = collector.has("turn").await;
    let call = named(&spans, "egress.send");
    assert_eq!((call.attribute("talaria.denied"), call.attribute("error.type")), ("true", "denied"));
    assert!(call.error.as_ref().is_some_and(|why| why.contains("egress = [\"GET ")), "{call:?}");
    assert_eq!(call.attribute("url.full"), format!("http://{}/private", gateway.address()));
    let sent: Vec<u8> = collector.posts().iter().flat_map(|post| post.body.to_vec()).collect();
    assert!(!String::from_utf8_lossy(&sent).contains(SECRET), "{spans:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_traceparent_is_ignored_and_an_unsampled_one_is_only_passed_on() {
    let (gateway, collector) = (upstream().await, FakeCollector::start().await);
    let folder = tempfile::tempdir().unwrap();
    let bridge = traced(probing(folder.path(), &gateway, ""), &collector).up();
    let text = format!("fetch http://{}/v1/x", gateway.address());
    let last = || gateway.requests().last().unwrap().clone();
    let huge = format!("{}-{}", parent("01"), "f".repeat(4_000));
    let bad = [
        "",
        "garbage",
        &parent("01").to_uppercase(),
        &format!("00-{}-{CALLER}-01", "0".repeat(32)),
        &format!("00-{TRACE}-{}-01", "0".repeat(16)),
        &parent("01").replacen("00", "ff", 1),
        &huge,
    ];
    for (nth, bad) in bad.iter().enumerate() {
        send(&bridge, message(&text), &[("traceparent", bad), ("tracestate", "a=1")]).await;
        let spans = collector
            .until("another turn", |spans| spans.iter().filter(|span| span.name == "turn").count() > nth);
        let spans = spans.await;
        assert!(spans.iter().all(|span| span.trace != TRACE && span.state.is_empty()), "{bad:.60}");
        let sent = last();
        let header = sent.header("traceparent").expect("a trace of its own");
        assert!(!header.contains(TRACE) && sent.header("tracestate").is_none(), "{bad:.60}");
    }
    send(&bridge, message(&text), &[("traceparent", &parent("00"))]).await;
    let passed = last().header("traceparent").unwrap().to_owned();
    assert!(passed.starts_with(&format!("00-{TRACE}-")) && passed.ends_with("-00"), "{passed}");
    bridge.terminate();
    let (code, log) = bridge.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(collector.spans().iter().all(|span| span.trace != TRACE), "it is not recorded");
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_that_are_off_leave_no_trace() {
    let gateway = upstream().await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = probing(folder.path(), &gateway, "").up();
    let text = format!("fetch http://{}/v1/x", gateway.address());
    let answer =
        send(&bridge, message(&text), &[("traceparent", &parent("01")), ("tracestate", "a=1")]).await;
    assert!(answer["result"]["message"].is_object() || answer["result"]["task"].is_object(), "{answer}");
    let sent = gateway.request();
    assert_eq!((sent.header("traceparent"), sent.header("tracestate")), (None, None));
    bridge.terminate();
    let (_, log) = bridge.end();
    assert!(!log.contains(TRACE) && !log.contains("trace_id"), "{log}");
    let stored = std::fs::read(folder.path().join("tasks.db")).unwrap();
    assert!(!String::from_utf8_lossy(&stored).contains(TRACE), "nothing is stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_down_costs_one_line_and_no_turn() {
    let gateway = upstream().await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = probing(folder.path(), &gateway, "")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://127.0.0.1:{}", free_port()))
        .env("OTEL_BSP_SCHEDULE_DELAY", "10")
        .env("OTEL_BSP_MAX_QUEUE_SIZE", "8")
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "50")
        .up();
    for turn in 0..40 {
        assert_eq!(bridge.say(&format!("echo {turn}")).await, turn.to_string());
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(bridge.say("echo still").await, "still");
    bridge.terminate();
    let (code, log) = bridge.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("spans were not exported").count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_holds_up_neither_turns_nor_the_stop() {
    let (gateway, collector) = (upstream().await, FakeCollector::answering(|_| Reply::hang()).await);
    let folder = tempfile::tempdir().unwrap();
    let bridge =
        traced(probing(folder.path(), &gateway, ""), &collector).env("OTEL_BSP_MAX_QUEUE_SIZE", "8").up();
    for turn in 0..40 {
        assert_eq!(bridge.say(&format!("echo {turn}")).await, turn.to_string());
    }
    let began = std::time::Instant::now();
    bridge.terminate();
    let (code, log) = bridge.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "before the post's own time is over: {:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_recorded_only_when_switched_on_and_then_without_secrets() {
    const SAID: &str = "the-weather-in-Oslo";
    let gateway = upstream().await;
    for on in [false, true] {
        let collector = FakeCollector::start().await;
        let folder = tempfile::tempdir().unwrap();
        let more = if on { "[telemetry]\ncontent = true\n" } else { "" };
        let start = traced(probing(folder.path(), &gateway, more), &collector);
        let headers = format!("x-collector-key={SECRET}");
        let bridge = start.env("OTEL_EXPORTER_OTLP_HEADERS", &headers).up();
        bridge.say(&format!("echo {SAID} {SECRET}")).await;
        let spans = collector.has("turn").await;
        assert_eq!(collector.posts()[0].header("x-collector-key"), Some(SECRET));
        let turn = named(&spans, "turn");
        assert_eq!(turn.attribute("gen_ai.input.messages").contains(SAID), on, "{turn:?}");
        assert_eq!(turn.attribute("gen_ai.output.messages").contains(SAID), on, "{turn:?}");
        let told = format!("{spans:?}");
        assert_eq!(told.contains(SAID), on, "{told}");
        assert!(!told.contains(SECRET), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reasoning_of_a_model_is_a_span_and_nowhere_else() {
    const THOUGHT: &str = "nobody but the operator reads this thought";
    let answer = json!({ "content": "from the model", "reasoning": THOUGHT });
    let usage = json!({ "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10 });
    let endpoint = FakeGateway::start(move |request| match request.path.as_str() {
        "/v1/models" => Reply::json(&json!({ "data": [] })),
        _ => Reply::json(
            &json!({ "choices": [{ "message": answer, "finish_reason": "stop" }], "usage": usage }),
        ),
    })
    .await;
    let collector = FakeCollector::start().await;
    let folder = tempfile::tempdir().unwrap();
    let config = "[executors]\ndefault = \"hermes\"\n[executor.hermes.settings]\nmodel = \"nousresearch/hermes-4-70b\"\n\
                  [telemetry]\ncontent = true\n";
    let bridge = traced(Start::new(folder.path()).config(config).arg("--log=trace"), &collector)
        .env("OPENAI_BASE_URL", &endpoint.base_url())
        .env("OPENAI_API_KEY", "sk-or-0123456789abcdef")
        .up();
    assert_eq!(bridge.say("hi").await, "from the model");
    let spans = collector.has("turn").await;
    let reasoning = named(&spans, "hermes.reasoning");
    assert_eq!(reasoning.attribute("hermes.reasoning_preview"), THOUGHT);
    assert_eq!(reasoning.attribute("hermes.reasoning_length"), THOUGHT.len().to_string());
    assert_eq!(reasoning.parent, named(&spans, "guest.execute").id);
    let elsewhere: Vec<_> = spans.iter().filter(|span| span.name != "hermes.reasoning").collect();
    assert!(!format!("{elsewhere:?}").contains(THOUGHT), "{elsewhere:#?}");
    let turn = named(&spans, "turn");
    assert_eq!(turn.attribute("gen_ai.request.model"), "nousresearch/hermes-4-70b");
    assert_eq!(turn.attribute("gen_ai.usage.input_tokens"), "7");
    assert_eq!(turn.attribute("gen_ai.usage.output_tokens"), "3");
    bridge.terminate();
    let (_, log) = bridge.end();
    assert!(!log.contains(THOUGHT), "the log holds a thought");
    assert!(log.contains(&turn.trace), "the lines of the turn name its trace");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_variable_ends_the_start_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let output = crate::bridge::run(
        crate::bridge::talaria(folder.path())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    );
    let said = crate::bridge::stderr(&output);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("OTEL_EXPORTER_OTLP_PROTOCOL") && said.contains("http/protobuf"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_tool_names_its_span_to_the_server() {
    let (gateway, collector, tools) =
        (upstream().await, FakeCollector::start().await, FakeToolServer::start().await);
    let folder = tempfile::tempdir().unwrap();
    let more = format!("[tools.servers.docs]\nurl = \"{}\"\n", tools.url());
    let start = traced(probing(folder.path(), &gateway, &more), &collector);
    let policy = "[grant]\ntools = [\"docs__echo\"]\n";
    std::fs::write(folder.path().join("executors/probe.toml"), policy).unwrap();
    let bridge = start.env("OTEL_SERVICE_NAME", "bridge").up();
    send(&bridge, message("tool docs__echo {}"), &[("traceparent", &parent("01"))]).await;
    let spans = collector.has("turn").await;
    assert_tree(&spans, &[("execute_tool docs__echo", "guest.execute")]);
    let span = named(&spans, "execute_tool docs__echo");
    assert_eq!(span.attribute("gen_ai.tool.name"), "docs__echo");
    let [call] = tools.received("tools/call").try_into().unwrap();
    assert_eq!(call["params"]["_meta"]["traceparent"], format!("00-{TRACE}-{}-01", span.id));
}
