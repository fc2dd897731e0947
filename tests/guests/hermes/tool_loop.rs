//! The tool loop: calls of the host's tools are run, and the model reads their results.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, PROVIDER_KEY, Provider, Reply};
use talaria_rig::{FakeTools, Ran, Rig};
use talaria_turns::{Emitted, FailureKind, ToolState, Turn};
use tokio_util::sync::CancellationToken;

use super::{KEY, deltas, message, rig_at};

const GRANTED: [&str; 4] = ["echo", "say", "long", "hang"];

/// The executor with the loop on and these tools.
async fn looping(url: &str, tools: &Arc<FakeTools>) -> Rig {
    rig_at(url).await.secret(KEY, PROVIDER_KEY).setting("tool_loop", true).tools(tools.clone(), &GRANTED)
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

/// An endpoint that answers with these messages one after the other, the last again and again.
async fn script(messages: Vec<Value>) -> FakeGateway {
    FakeGateway::start(move |request| {
        let asked = request.json()["messages"].as_array().cloned().unwrap_or_default();
        let answered = asked.iter().filter(|message| message["role"] == "assistant").count();
        let next = messages.get(answered).or(messages.last()).cloned().unwrap();
        match request.json()["stream"] == true {
            true => deltas([next]).finish("stop").into(),
            false => message(next),
        }
    })
    .await
}

fn progress(ran: &Ran) -> Vec<(String, ToolState)> {
    let tools = ran.events.iter().filter_map(|event| match event {
        Emitted::Tool(tool) => Some((tool.name.clone(), tool.state)),
        _ => None,
    });
    tools.collect()
}

/// The messages of the last request.
fn asked(endpoint: &FakeGateway) -> Vec<Value> {
    endpoint.requests().last().unwrap().json()["messages"].as_array().cloned().unwrap()
}

#[tokio::test]
async fn two_rounds_of_calls_are_run_and_their_results_reach_the_answer() {
    for streaming in [false, true] {
        let (provider, tools) = (Provider::start().await, FakeTools::new());
        let rig = looping(&provider.base_url(), &tools).await;
        let (text, name) = Provider::turn(r#"call echo {"a":1} && say {"text":"two"}"#);
        let ran = rig.execute(Turn { streaming, ..rig.turn(&text) }).await;
        assert_eq!(ran.text(), "the tool said: {\"a\":1}\ntwo");
        assert_eq!(provider.times(&name), 3);
        let called: Vec<_> =
            tools.calls().into_iter().map(|(_, tool, arguments)| (tool, arguments)).collect();
        assert_eq!(called, [("echo".into(), json!({ "a": 1 })), ("say".into(), json!({ "text": "two" }))]);
        let each = [ToolState::Started, ToolState::Completed];
        let expected =
            ["echo", "say"].into_iter().flat_map(|tool| each.map(|state| (tool.to_owned(), state)));
        assert_eq!(progress(&ran), expected.collect::<Vec<_>>());
        if streaming {
            assert_eq!(ran.deltas().concat(), ran.text());
        }
        let requests = provider.requests();
        let offered = &requests[0].json()["tools"];
        assert_eq!(offered.as_array().unwrap().len(), GRANTED.len());
        assert_eq!(
            offered[0],
            json!({ "type": "function", "function": { "name": "echo", "description": "Does echo.", "parameters": { "type": "object" } } })
        );
        let messages = &requests[1].json()["messages"];
        assert_eq!(
            (&messages[1]["tool_calls"], &messages[2]),
            (
                &json!([call("call_1", "echo", r#"{"a":1}"#)]),
                &json!({ "role": "tool", "tool_call_id": "call_1", "content": r#"{"a":1}"# })
            )
        );
    }
}

#[tokio::test]
async fn without_the_loop_calls_are_returned_and_the_hosts_tools_are_not_offered() {
    let tools = FakeTools::new();
    let endpoint = script(vec![json!({ "tool_calls": [call("call_1", "echo", "{}")] })]).await;
    let rig = rig_at(&endpoint.base_url()).await.tools(tools.clone(), &GRANTED);
    let ran = rig.run("hello").await;
    assert_eq!(serde_json::from_str::<Value>(ran.text()).unwrap(), json!([call("call_1", "echo", "{}")]));
    assert_eq!(endpoint.request().json().get("tools"), None);
    assert_eq!((tools.calls(), progress(&ran)), (vec![], vec![]));
}

#[tokio::test]
async fn calls_of_the_turns_own_tools_are_returned_whatever_else_is_called() {
    let tools = FakeTools::new();
    let both = json!([call("a", "echo", "{}"), call("b", "lookup", "{}")]);
    let endpoint = script(vec![json!({ "tool_calls": both })]).await;
    let own = json!([{ "type": "function", "function": { "name": "lookup", "parameters": {} } }]);
    let rig = looping(&endpoint.base_url(), &tools).await.setting("tools", own);
    let ran = rig.run("hello").await;
    assert_eq!(serde_json::from_str::<Value>(ran.text()).unwrap(), both);
    assert_eq!(tools.calls(), []);
    let offered = endpoint.request().json()["tools"].clone();
    let names: Vec<_> =
        offered.as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["lookup", "echo", "say", "long", "hang"]);
}

#[tokio::test]
async fn a_call_that_cannot_be_made_is_a_result_that_says_why() {
    let tools = FakeTools::new();
    let huge = format!(r#"{{"text":"{}"}}"#, "x".repeat(10 << 20));
    let calls = json!([
        call("a", "down", "{}"),
        call("b", "echo", "{\"text\":"),
        call("c", "echo", "[1]"),
        call("d", "echo", ""),
        call("e", "mcp__molecule__say", r#"{"text":"by its other name"}"#),
        call("f", "long", r#"{"bytes":500000}"#),
        call("g", "echo", &huge),
    ]);
    let endpoint = script(vec![json!({ "tool_calls": calls }), json!({ "content": "understood" })]).await;
    let ran = looping(&endpoint.base_url(), &tools).await.run("hello").await;
    assert_eq!(ran.text(), "understood");
    let messages = asked(&endpoint);
    let results: Vec<_> = messages[2..].iter().map(|message| message["content"].as_str().unwrap()).collect();
    for (result, expected) in results.iter().zip([
        r#"{"reason":"executor hermes may not call the tool down; grant it with tools = [\"down\"]","status":"failed"}"#,
        "is not JSON",
        "the arguments are not a JSON object",
        "{}",
        "by its other name",
        "[cut here: 131072 of 500000 bytes]",
        "the arguments have 10485771 bytes; 1048576 are the most",
    ]) {
        assert!(result.contains(expected), "{expected}: {}", &result[..result.len().min(300)]);
    }
    assert_eq!(results.len(), 7);
    let repeated = messages[1]["tool_calls"].as_array().unwrap();
    let repeated: Vec<_> =
        repeated.iter().map(|call| call["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!((repeated[1], repeated[2], repeated[6]), ("{}", "{}", "{}"), "a server would reject the rest");
    assert_eq!(repeated[4], r#"{"text":"by its other name"}"#);
    let failed = progress(&ran).into_iter().filter(|(_, state)| *state == ToolState::Failed).count();
    assert_eq!(failed, 4);
}

#[tokio::test]
async fn a_model_that_calls_for_ever_is_told_to_answer_and_then_fails_in_words() {
    for streaming in [false, true] {
        let tools = FakeTools::new();
        let endpoint = script(vec![json!({ "tool_calls": [call("call_1", "echo", "{}")] })]).await;
        let rig =
            looping(&endpoint.base_url(), &tools).await.setting("tool_loop", json!({ "max_rounds": 2 }));
        let ran = rig.execute(Turn { streaming, ..rig.turn("hello") }).await;
        assert_eq!(
            ran.failure().message,
            "The model went on calling tools after 2 rounds and gave no answer (settings.tool_loop.max_rounds)."
        );
        assert_eq!(tools.calls().len(), 2);
        let choices: Vec<_> =
            endpoint.requests().iter().map(|request| request.json()["tool_choice"].clone()).collect();
        assert_eq!(choices, [Value::Null, Value::Null, Value::Null, json!("none")]);
        let last = asked(&endpoint).last().unwrap()["content"].as_str().unwrap().to_owned();
        assert!(last.contains("answer now with what you have"), "{last}");
    }
}

#[tokio::test]
async fn text_beside_calls_stays_in_the_answer_and_thoughts_go_nowhere() {
    for streaming in [false, true] {
        let tools = FakeTools::new();
        let first = json!({
            "content": "<think>which tool?</think>Let me look. ", "reasoning": "secret thought",
            "tool_calls": [call("call_1", "echo", "{}")],
        });
        let endpoint = script(vec![first, json!({ "content": "<think>so</think>Found it." })]).await;
        let rig = looping(&endpoint.base_url(), &tools).await;
        let ran = rig.execute(Turn { streaming, ..rig.turn("hello") }).await;
        assert_eq!(ran.text(), "Let me look.\n\nFound it.");
        if streaming {
            assert_eq!(ran.deltas().concat(), ran.text());
        }
        let messages = asked(&endpoint);
        assert_eq!(messages[1]["content"], "Let me look.");
        let sent = Value::from(messages).to_string();
        assert!(!sent.contains("thought") && !sent.contains("which tool"), "{sent}");
    }
}

#[tokio::test]
async fn a_cancel_while_a_tool_runs_ends_the_turn() {
    let tools = FakeTools::new();
    let endpoint = script(vec![json!({ "tool_calls": [call("call_1", "hang", "{}")] })]).await;
    let rig = looping(&endpoint.base_url(), &tools).await;
    let cancelled = CancellationToken::new();
    let (ran, ()) = tokio::join!(rig.execute_until(rig.turn("hello"), cancelled.clone()), async {
        tools.called().await;
        cancelled.cancel();
    });
    assert_eq!(ran.failure().kind, FailureKind::Cancelled);
    assert_eq!(endpoint.requests().len(), 1);
}

#[tokio::test]
async fn a_turn_whose_tools_were_called_is_not_asked_again_after_a_restart() {
    let tools = FakeTools::new();
    let calls = json!({ "tool_calls": [call("call_1", "echo", "{}")] });
    let endpoint = script(vec![calls, json!({ "content": "done" })]).await;
    let rig = looping(&endpoint.base_url(), &tools).await.setting("on_restart", "retry");
    let ran = rig.run("hello").await;
    assert_eq!((ran.text(), ran.checkpoints.len()), ("done", 2), "before the model, and before the tool");
    // Interrupted before a tool was called, it is asked again; after that it is not.
    for (checkpoint, again) in [(ran.checkpoints[0].clone(), true), (ran.checkpoints[1].clone(), false)] {
        let before = endpoint.requests().len();
        let ran = rig.execute(Turn { checkpoint: Some(checkpoint), ..rig.turn("hello") }).await;
        assert_eq!(endpoint.requests().len() > before, again);
        if !again {
            assert!(ran.failure().message.contains("tools had been called"), "{:?}", ran.result);
        }
    }
    let rig = looping(&endpoint.base_url(), &tools).await;
    assert!(rig.run("hello").await.checkpoints.is_empty(), "no checkpoint, no second run");
}

#[tokio::test]
async fn an_endpoint_that_fails_between_two_rounds_is_asked_again_without_a_second_call_of_the_tool() {
    let tools = FakeTools::new();
    let failed = std::sync::atomic::AtomicBool::new(false);
    let endpoint = FakeGateway::start(move |request| {
        let is_second = request.json()["messages"].as_array().is_some_and(|messages| messages.len() > 1);
        match is_second {
            false => message(json!({ "tool_calls": [call("call_1", "echo", "{}")] })),
            true if failed.swap(true, std::sync::atomic::Ordering::Relaxed) => Reply::completion("done"),
            true => Reply::status(503, "text/plain", "busy").header("retry-after-ms", "1"),
        }
    })
    .await;
    let ran = looping(&endpoint.base_url(), &tools).await.setting("max_retries", 1).run("hello").await;
    assert_eq!((ran.text(), tools.calls().len(), endpoint.requests().len()), ("done", 1, 3));
}
