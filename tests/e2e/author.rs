//! `talaria executor new` and `talaria executor test`: output and exit codes.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::bridge::{run, stderr, stdout, talaria};

fn dist(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/dist").join(name)
}

/// Runs `talaria executor test` on a component. Returns the exit code, standard output and standard error.
fn test(component: &str, cassette: Option<&str>, more: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = talaria(folder.path());
    command.args(["executor", "test"]).arg(dist(component)).args(more);
    if let Some(cassette) = cassette {
        std::fs::write(folder.path().join("cassette.toml"), cassette).unwrap();
        command.args(["--cassette", "cassette.toml"]);
    }
    // The test must not read these variables.
    let tested =
        run(command.env("API_SERVER_KEY", "the-real-key").env("HERMES_API_BASE", "http://127.0.0.1:1"));
    (tested.status.code(), stdout(&tested), stderr(&tested))
}

const CHAT: &str = r#"
[[turn]]
text = "hello"
expect = ["Hi there"]

[[exchange]]
request = "GET http://127.0.0.1:8642/v1/health"
json = { status = "ok" }

[[exchange]]
request = "GET http://127.0.0.1:8642/v1/models"
json = { data = [] }
[[exchange]]
request = "POST http://127.0.0.1:8642/v1/chat/completions"
contains = ['"stream":true']
events = ['{"choices":[{"delta":{"content":"Hi "}}]}', '{"choices":[{"delta":{"content":"there"}}]}', '{"choices":[{"delta":{},"finish_reason":"stop"}]}', "[DONE]"]

[[exchange]]
request = "POST http://127.0.0.1:8642/v1/chat/completions"
json = { choices = [{ message = { content = "Hi there" }, finish_reason = "stop" }] }
"#;

#[test]
fn the_turns_of_a_cassette_share_a_context() {
    let cassette = "[[turn]]\ntext = \"echo my name is Ada\"\n\
                    [[turn]]\ntext = \"history 9\"\nexpect = ['[true,\"echo my name is Ada\"],[false,\"my name is Ada\"]']\n";
    let config = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(&config, "[grant]\negress = [\"GET http://127.0.0.1:9/*\"]\n").unwrap();
    let config = config.path().to_str().unwrap();
    let (_, out, err) = test("test/probe.wasm", Some(cassette), &["--config", config, "--output", "json"]);
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    // The last step, cancel, makes a call that is not granted.
    for step in &report["steps"].as_array().unwrap()[..5] {
        assert_eq!(step["problems"].as_array().map(Vec::len), Some(0), "{step}");
    }
    assert_eq!(report["steps"][2]["calls"][0]["import"], "state.history", "{report}");
}

#[test]
fn a_component_without_needs_passes_without_a_grant() {
    let (code, out, err) = test("test/echo.wasm", None, &["--text", "say this", "--output", "json"]);
    assert_eq!(code, Some(0), "{out}{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let steps: Vec<&str> =
        report["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["load", "execute", "execute (streamed)", "cancel"]);
    assert_eq!(report["component"]["name"], "echo");
    assert!(report["steps"][1]["outcome"].as_str().unwrap().contains("say this"), "{report}");
}

#[test]
fn learns_the_smallest_grant_which_then_suffices() {
    let (code, learnt, err) = test("chat-completions.wasm", Some(CHAT), &["--learn"]);
    assert_eq!(code, Some(0), "{learnt}{err}");
    assert_eq!(
        learnt,
        "[grant]\negress = [\n  \"GET http://127.0.0.1:8642/v1/health\",\n  \
         \"GET http://127.0.0.1:8642/v1/models\",\n  \"POST http://127.0.0.1:8642/v1/chat/completions\",\n]\n\
         secrets = [\n  { name = \"API_SERVER_KEY\", to = [\"GET http://127.0.0.1:8642/v1/models\", \
         \"POST http://127.0.0.1:8642/v1/chat/completions\"] },\n]\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own.toml");
    std::fs::write(&own, learnt).unwrap();
    let (code, out, err) = test("chat-completions.wasm", Some(CHAT), &["--config", own.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{out}{err}");
    for shown in
        ["http.fetch", "http.open", "{secret:API_SERVER_KEY}", "text-delta ×2 \"Hi there\"", "passed"]
    {
        assert!(out.contains(shown), "{shown:?} is not in {out}");
    }
    assert!(!out.contains("the-real-key"), "no secret of this machine is read: {out}");
}

#[test]
fn a_learnt_grant_covers_every_id_in_a_path() {
    let cassette = r#"
[[exchange]]
request = "GET http://127.0.0.1:8642/v1/capabilities"
json = { features = { run_submission = true, run_status = true, run_events_sse = true, run_stop = true } }
[[exchange]]
request = "POST http://127.0.0.1:8642/v1/runs"
status = 202
json = { run_id = "run_81f2a", status = "started" }
[[exchange]]
request = "GET http://127.0.0.1:8642/v1/runs/run_81f2a/events"
events = ['{"event":"run.completed","run_id":"run_81f2a","output":"done"}']
[[exchange]]
request = "GET http://127.0.0.1:8642/v1/runs/run_81f2a"
json = { run_id = "run_81f2a", status = "completed", output = "done" }
[[exchange]]
request = "POST http://127.0.0.1:8642/v1/runs/run_81f2a/stop"
json = { status = "stopping" }
[[exchange]]
request = "GET http://127.0.0.1:8642/api/*"
json = { messages = [] }
"#;
    let (_, learnt, err) = test("hermes-runs.wasm", Some(cassette), &["--learn"]);
    assert!(learnt.contains("\"POST http://127.0.0.1:8642/v1/runs\","), "{learnt}{err}");
    assert!(learnt.contains("\"GET http://127.0.0.1:8642/v1/runs/*\","), "{learnt}{err}");
    assert!(!learnt.contains("run_81f2a"), "{learnt}{err}");
}

#[test]
fn a_cassette_plays_callbacks_too() {
    let cassette = r#"
[[turn]]
text = "hello"
expect = ["from the plugin"]
[[exchange]]
request = "GET http://127.0.0.1:8645/a2a/health"
json = { ok = true }
[[exchange]]
request = "POST http://127.0.0.1:8645/a2a/inbound"
contains = ['"content":"hello"', '"callback_url":"http://127.0.0.1:8646/a2a/reply"']
json = { ok = true, queued = true }
[[exchange]]
request = "POST http://127.0.0.1:8645/a2a/inbound"
contains = ['"content":"/stop"']
json = { ok = true, queued = true }
[[callback]]
kind = "notice"
content = "still at it"
[[callback]]
content = "from the plugin"
delay = "10ms"
"#;
    let (code, learnt, err) = test("plugin-callback.wasm", Some(cassette), &["--learn"]);
    assert_eq!(code, Some(0), "{learnt}{err}");
    assert!(learnt.contains("callbacks = true"), "{learnt}");
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own.toml");
    std::fs::write(&own, &learnt).unwrap();
    let grant = ["--config", own.to_str().unwrap()];
    let (code, out, err) = test("plugin-callback.wasm", Some(cassette), &grant);
    assert_eq!(code, Some(0), "{out}{err}");
    for shown in ["callback.expect", "callback.wait", "notice", "passed"] {
        assert!(out.contains(shown), "{shown:?} is not in {out}");
    }
    let wrong = cassette.replace("content = \"from the plugin\"", "content = \"another\"");
    let (code, out, _) = test("plugin-callback.wasm", Some(&wrong), &grant);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("the reply lacks \"from the plugin\""), "{out}");
}

#[test]
fn a_denied_call_fails_with_the_line_to_add() {
    let (code, out, _) = test("chat-completions.wasm", Some(CHAT), &[]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("egress = [\"POST http://127.0.0.1:8642/v1/chat/completions\"]"), "{out}");
    assert!(out.ends_with("failed\n"), "{out}");
}

#[test]
fn a_call_that_no_exchange_matches_fails_the_test() {
    let cassette = CHAT.replace("completions\"\njson", "elsewhere\"\njson");
    let (code, out, _) = test("chat-completions.wasm", Some(&cassette), &["--learn", "--output", "json"]);
    assert_eq!(code, Some(1), "{out}");
    let (code, out, err) = test("chat-completions.wasm", Some("[[turn]]\ntext = 'hi'\n"), &["--learn"]);
    assert_eq!(code, Some(1), "{out}");
    assert!(err.contains("the cassette has no answer for POST 127.0.0.1:8642/v1/chat/completions"), "{err}");
}

#[test]
fn an_unexpected_reply_fails_the_test() {
    let (code, _, err) =
        test("chat-completions.wasm", Some(&CHAT.replace("[\"Hi there\"]", "[\"Bye\"]")), &["--learn"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("the reply lacks \"Bye\""), "{err}");
}

#[test]
fn a_refused_component_fails_with_the_reason() {
    let (code, out, _) = test("test/trap-describe.wasm", None, &[]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("`describe` failed"), "{out}");
    let (code, out, _) = test("SOURCES", None, &[]);
    assert_eq!(code, Some(64), "not a valid name for an executor: {out}");
}

#[test]
fn unusable_files_and_flags_exit_with_64() {
    assert_eq!(test("test/nowhere.wasm", None, &[]).0, Some(64));
    assert_eq!(test("test/echo.wasm", None, &["--cassette", "nowhere.toml"]).0, Some(64));
    assert_eq!(test("test/echo.wasm", None, &["--config", "nowhere.toml"]).0, Some(64));
    let (code, _, err) = test("test/echo.wasm", Some("[[exchagne]]\n"), &[]);
    assert_eq!(code, Some(64));
    assert!(err.contains("cassette.toml:1:3") && err.contains("did you mean `exchange`?"), "{err}");
}

#[test]
fn does_not_overwrite_a_project() {
    let folder = tempfile::tempdir().unwrap();
    let new = |name: &str, language: &str| {
        run(talaria(folder.path()).args(["executor", "new", name, "--lang", language]))
    };
    let written = new("my-agent", "python");
    assert_eq!(written.status.code(), Some(0), "{}", stderr(&written));
    let again = new("my-agent", "rust");
    assert_eq!(again.status.code(), Some(1), "{}", stderr(&again));
    assert!(!folder.path().join("my-agent/Cargo.toml").exists(), "the folder was left alone");
    assert_eq!(new("../outside", "js").status.code(), Some(64));
    assert_eq!(new("other", "cobol").status.code(), Some(64));
}
