//! What an operator sees and does: on the admin server, and from the command line.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Reply, soon};

use crate::bridge::{Bridge, Start, admin, request, run, stderr, stdout, talaria};
use crate::swap::{self, PROBE, Site};

const TOKEN: &str = "admin-token-0123456789";

fn url(bridge: &Bridge) -> String {
    bridge.banner["admin"].as_str().expect("an address").to_owned()
}

/// Sends JSON to the admin server.
async fn send(
    bridge: &Bridge,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Value) {
    let mut all = vec![("content-type", "application/json"), ("x-talaria-console", "1")];
    all.extend_from_slice(headers);
    let response = request(&url(bridge), method, path, &all, body).await;
    (response.status, serde_json::from_slice(&response.body).unwrap_or_default())
}

/// Runs a command of the operator against a bridge.
async fn command(bridge: &Bridge, arguments: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = talaria(folder.path());
    command.args(arguments).args(["--admin", &url(bridge)]);
    let output = tokio::task::spawn_blocking(move || run(&mut command)).await.unwrap();
    (output.status.code().unwrap_or(-1), stdout(&output), stderr(&output))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_turns_of_all_callers_are_listed_and_shown_step_by_step() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    bridge.say("hello there").await;
    bridge.say("fail please").await;

    let (status, list) = admin(&bridge, "GET", "/turns").await;
    assert_eq!(status, 200, "{list}");
    let rows = list["turns"].as_array().unwrap();
    let states: Vec<_> = rows.iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["failed", "completed"], "the newest first");
    assert_eq!((&rows[1]["text"], &rows[1]["executor"]), (&json!("hello there"), &json!("chat-completions")));
    let (_, failed) = admin(&bridge, "GET", "/turns?state=failed&search=PLEASE").await;
    assert_eq!(failed["turns"].as_array().unwrap().len(), 1, "{failed}");
    let (_, first) = admin(&bridge, "GET", "/turns?limit=1").await;
    let next = first["next"].as_str().expect("a next page");
    let (_, second) = admin(&bridge, "GET", &format!("/turns?limit=1&after={next}")).await;
    assert_eq!((&second["turns"][0]["task"], &second["next"]), (&rows[1]["task"], &Value::Null));
    assert_eq!(admin(&bridge, "GET", "/turns?state=asleep").await.0, 400);

    let task = rows[1]["task"].as_str().unwrap();
    let shown = soon("the timeline is complete", async {
        loop {
            let (_, shown) = admin(&bridge, "GET", &format!("/turns/{task}")).await;
            if shown["timelines"][0]["state"] == "completed" {
                return shown;
            }
        }
    })
    .await;
    let timeline = &shown["timelines"][0];
    let call = &timeline["steps"][0];
    assert_eq!((&call["kind"], &call["status"]), (&json!("call"), &json!(200)), "{timeline}");
    assert!(call["name"].as_str().unwrap().starts_with("POST http://127.0.0.1"), "{call}");
    assert!(timeline["total_ms"].as_f64().unwrap() >= timeline["upstream_ms"].as_f64().unwrap());
    assert_eq!(shown["messages"][0]["parts"][0]["text"], "hello there");
    let kinds: Vec<_> =
        shown["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert!(kinds.starts_with(&["accepted", "status"]), "{kinds:?}");
    assert_eq!(admin(&bridge, "GET", "/turns/nothing").await.0, 404);

    let (code, said, _) = command(&bridge, &["tasks", "list"]).await;
    assert!(code == 0 && said.contains("hello there") && said.contains("TASK"), "{said}");
    let (code, said, _) = command(&bridge, &["tasks", "show", task]).await;
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("call POST http://127.0.0.1") && said.contains("|=") && said.contains("200"),
        "{said}"
    );
    let (code, said, _) = command(&bridge, &["status"]).await;
    assert!(code == 0 && said.contains("chat-completions *") && said.contains("ready"), "{said}");
    let (code, said, _) = command(&bridge, &["executor", "list"]).await;
    assert!(code == 0 && said.contains("of the host at http://"), "{said}");
    let (code, said, _) = command(&bridge, &["tasks", "cancel", task]).await;
    assert!(code == 1 && said.is_empty(), "it has ended: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_watched_from_its_acceptance_to_its_cancel() {
    let release = std::sync::Arc::new(tokio::sync::Notify::new());
    let gateway = FakeGateway::always(Reply::completion("late").slow(&release)).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).env("HERMES_API_BASE", &gateway.base_url()).up();
    let home = tempfile::tempdir().unwrap();
    let mut watching = talaria(home.path())
        .args(["tasks", "watch", "--output", "json", "--admin", &url(&bridge)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let (to, mut changes) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = to.send(serde_json::from_str::<Value>(&line).unwrap());
        }
    });
    // Until it watches, there is nothing to see.
    soon("the watch begins", async {
        loop {
            let task = bridge.start_turn("wait").await;
            let seen = tokio::time::timeout(std::time::Duration::from_millis(500), changes.recv()).await;
            bridge.call("CancelTask", json!({ "id": task })).await;
            if seen.is_ok() {
                break;
            }
        }
    })
    .await;
    let task = bridge.start_turn("wait for it").await;
    let mut until = async |wanted: &str| {
        soon("the change is seen", async {
            loop {
                let row = changes.recv().await.expect("it watches");
                // The end of the turn comes after that of its task.
                let is_closed = wanted == "working" || row["timeline"]["state"] == wanted;
                if row["task"] == task.as_str() && row["state"] == wanted && is_closed {
                    return row;
                }
            }
        })
        .await
    };
    let running = until("working").await;
    assert_eq!((&running["running"], &running["text"]), (&json!(true), &json!("wait for it")));
    let (_, status) = admin(&bridge, "GET", "/status").await;
    assert_eq!(status["turns"]["running"], 1, "{status}");
    let (code, said, _) = command(&bridge, &["tasks", "cancel", &task]).await;
    assert_eq!((code, said.trim()), (0, format!("{task} is canceled").as_str()));
    let ended = until("canceled").await;
    assert_eq!(ended["timeline"]["state"], "canceled", "{ended}");
    watching.kill().unwrap();
    watching.wait().unwrap();
    let (_, audit) = admin(&bridge, "GET", "/audit").await;
    let last = audit["changes"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["what"], &last["task"]), (&json!("canceled"), &json!(task)), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_token_a_session_acts_and_refused_sign_ins_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = FakeGateway::always(Reply::completion("hi")).await;
    let bridge = Start::new(folder.path())
        .config("[admin]\nlisten = \"127.0.0.1:0\"\ntoken = { env = \"ADMIN_TOKEN\" }")
        .env("ADMIN_TOKEN", TOKEN)
        .env("HERMES_API_BASE", &gateway.base_url())
        .up();
    let bearer = format!("Bearer {TOKEN}");
    let bearer = [("authorization", bearer.as_str())];
    assert_eq!(send(&bridge, "POST", "/session", &[], r#"{"token":"wrong"}"#).await.0, 401);
    let response = request(
        &url(&bridge),
        "POST",
        "/session",
        &[("content-type", "application/json")],
        &json!({ "token": TOKEN }).to_string(),
    )
    .await;
    assert_eq!(response.status, 201);
    let (status, said) = send(&bridge, "PUT", "/log", &bearer, r#"{"filter":"info,access=debug"}"#).await;
    assert_eq!((status, &said["filter"]), (200, &json!("info,access=debug")), "{said}");
    assert_eq!(send(&bridge, "PUT", "/log", &bearer, r#"{"filter":"info,[span]=debug"}"#).await.0, 409);
    assert_eq!(send(&bridge, "PUT", "/log", &bearer, r#"{"filter":"info,talaria=loud"}"#).await.0, 400);
    let (status, status_now) = send(&bridge, "GET", "/status", &bearer, "").await;
    assert_eq!((status, &status_now["log"]), (200, &json!("info,access=debug")), "{status_now}");
    assert_eq!(status_now["can_change"], true);
    let audit = soon("it is recorded", async {
        loop {
            let (_, audit) = send(&bridge, "GET", "/audit", &bearer, "").await;
            let what: Vec<_> =
                audit["changes"].as_array().unwrap().iter().map(|entry| entry["what"].clone()).collect();
            if what.contains(&json!("sign-in-refused")) && what.contains(&json!("log-changed")) {
                return audit;
            }
        }
    })
    .await;
    assert!(!audit.to_string().contains(TOKEN), "{audit}");

    let (code, _, said) = command(&bridge, &["status"]).await;
    assert!(code == 1 && said.contains("admin.token"), "{said}");
    let home = tempfile::tempdir().unwrap();
    let mut with_token = talaria(home.path());
    with_token.env("THE_TOKEN", TOKEN).args(["status", "--token-env", "THE_TOKEN", "--admin", &url(&bridge)]);
    let output = tokio::task::spawn_blocking(move || run(&mut with_token)).await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_is_called_from_the_admin_server_as_the_caller_console() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    let message =
        json!({ "message": { "messageId": "m-1", "role": "ROLE_USER", "parts": [{ "text": "hello" }] } });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message });
    let (status, answer) = send(&bridge, "POST", "/a2a", &[("a2a-version", "1.0")], &call.to_string()).await;
    assert_eq!(status, 200, "{answer}");
    assert!(answer["result"].is_object(), "{answer}");
    let (_, list) = admin(&bridge, "GET", "/turns?owner=console").await;
    assert_eq!(list["turns"][0]["owner"], "console", "{list}");
    let (status, card) = admin(&bridge, "GET", "/a2a/.well-known/agent-card.json").await;
    assert_eq!(status, 200);
    assert!(card.to_string().contains(&format!("{}/a2a", url(&bridge))), "{card}");
    let foreign = [("origin", "https://evil.example"), ("content-type", "application/json")];
    let refused = request(&url(&bridge), "POST", "/a2a", &foreign, &call.to_string()).await;
    assert_eq!(refused.status, 403, "a page of another site");

    let strict = Start::new(folder.path())
        .config(
            "[store]\nurl = \"memory:\"\n[[a2a.auth.tokens]]\nname = \"peer\"\ntoken = { env = \"PEER\" }",
        )
        .env("PEER", "peer-token-0123456789")
        .arg("--demo")
        .up();
    let (status, said) = send(&strict, "POST", "/a2a", &[], &call.to_string()).await;
    assert_eq!(status, 403, "callers need a token, and the operator has none: {said}");
}

/// Without `admin.token` the admin server says nothing about turns that A2A on the same machine does not say.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_beside_the_host_sees_no_turns_of_others() {
    let tokens =
        "[store]\nurl = \"memory:\"\n[[a2a.auth.tokens]]\nname = \"peer\"\ntoken = { env = \"PEER\" }";
    let elsewhere = "[store]\nurl = \"memory:\"\n[a2a]\nauth = { open = true }";
    for (config, listen) in [(tokens, "127.0.0.1:0"), (elsewhere, "0.0.0.0:0")] {
        let folder = tempfile::tempdir().unwrap();
        let start = Start::new(folder.path()).config(config).env("PEER", "peer-token-0123456789");
        let bridge = start.listening(listen).arg("--demo").up();
        for (method, path) in [
            ("GET", "/turns"),
            ("GET", "/turns/01a1f5e7-8b20-70be-8995-badbc0fdf2c0"),
            ("GET", "/events"),
            ("POST", "/turns/01a1f5e7-8b20-70be-8995-badbc0fdf2c0/cancel"),
            ("POST", "/turns/01a1f5e7-8b20-70be-8995-badbc0fdf2c0/answer"),
            ("PUT", "/log"),
        ] {
            let (status, said) = send(&bridge, method, path, &[], "{}").await;
            assert_eq!(status, 403, "{listen} {method} {path}: {said}");
            assert!(said.to_string().contains("admin.token"), "{said}");
        }
        let (code, _, said) = command(&bridge, &["tasks", "list"]).await;
        assert_eq!(code, 1);
        assert!(said.contains("admin.token"), "{said}");
        assert_eq!(admin(&bridge, "GET", "/status").await.0, 200, "other pages stay open");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_an_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    assert_eq!(command(&bridge, &["health"]).await.0, 0);
    let (code, said, _) = command(&bridge, &["health", "--ready", "--output", "json"]).await;
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &report["ok"]), (0, &json!(true)));
    let address = url(&bridge);
    drop(bridge);
    let mut gone = talaria(folder.path());
    gone.args(["health", "--admin", &address]);
    let output = tokio::task::spawn_blocking(move || run(&mut gone)).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no host answers at"), "{}", stderr(&output));
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_talaria"));
    wrong.args(["health", "--admin", "nowhere"]);
    assert_eq!(wrong.output().unwrap().status.code(), Some(64));
}

#[tokio::test(flavor = "multi_thread")]
async fn real_answers_are_as_the_description_says() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = FakeGateway::always(Reply::completion("hi")).await;
    let bridge = Start::new(folder.path()).env("HERMES_API_BASE", &gateway.base_url()).up();
    bridge.say("hello").await;
    let (status, document) = admin(&bridge, "GET", "/openapi.json").await;
    assert_eq!(status, 200);
    let (_, list) = admin(&bridge, "GET", "/turns").await;
    let task = list["turns"][0]["task"].as_str().unwrap().to_owned();
    let paths = document["paths"].as_object().unwrap();
    let mut checked = 0;
    for (path, methods) in paths {
        let real = path.replace("{task}", &task).replace("{name}", "chat-completions");
        let Some(responses) = methods.get("get").map(|get| &get["responses"]) else { continue };
        if ["/events", "/metrics", "/", "/assets/{file}", "/openapi.json"].contains(&path.as_str()) {
            continue;
        }
        let (status, answer) = admin(&bridge, "GET", &real).await;
        assert_eq!(status, 200, "{path}: {answer}");
        let mut schema = responses[status.to_string()]["content"]["application/json"]["schema"].clone();
        schema["components"] = document["components"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&answer)
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{path}: {errors:?}\n{answer:#}");
        checked += 1;
    }
    assert!(checked >= 12, "{checked} answers were checked");
    for (method, path, body, wanted) in [
        ("POST", format!("/turns/{task}/cancel"), "", 409),
        ("POST", format!("/turns/{task}/answer"), r#"{"text":"x"}"#, 409),
        ("POST", format!("/turns/{task}/answer"), r#"{"txt":"x"}"#, 400),
        ("PUT", "/log".to_owned(), r#"{"filter":"info"}"#, 200),
        ("PUT", "/executors/a/settings".to_owned(), "{}", 403),
    ] {
        let (status, answer) = send(&bridge, method, &path, &[], body).await;
        assert_eq!(status, wanted, "{method} {path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_shown_without_any_secret() {
    let folder = tempfile::tempdir().unwrap();
    let secrets =
        ["ADMIN_TOKEN", "PEER_TOKEN", "CALLBACK_SECRET", "OCI_TOKEN", "GRANTED_SECRET", "API_SERVER_KEY"];
    let value = |name: &str| format!("canary-{}-0123456789", name.to_lowercase().replace('_', "-"));
    std::fs::write(folder.path().join("a.token"), value("FILE_TOKEN")).unwrap();
    let config = r#"
[admin]
listen = "127.0.0.1:0"
token = { env = "ADMIN_TOKEN" }
[[a2a.auth.tokens]]
name = "peer"
token = { env = "PEER_TOKEN" }
[[a2a.auth.tokens]]
name = "other"
token = { file = "a.token" }
[callback]
listen = "127.0.0.1:0"
secret = { env = "CALLBACK_SECRET" }
[oci.registry."registry.example"]
token = { env = "OCI_TOKEN" }
[executor.chat-completions]
settings = { model = "m" }
"#;
    let mut start = Start::new(folder.path()).config(config).arg("--demo");
    for name in secrets {
        start = start.env(name, &value(name));
    }
    let bridge = start.up();
    let bearer = format!("Bearer {}", value("ADMIN_TOKEN"));
    let (status, shown) = send(&bridge, "GET", "/config", &[("authorization", &bearer)], "").await;
    assert_eq!(status, 200);
    let text = shown.to_string();
    for name in secrets.iter().chain(&["FILE_TOKEN"]) {
        assert!(!text.contains(&value(name)), "{name} is in {text}");
    }
    assert_eq!(shown["admin"]["token"], json!({ "secret": "env ADMIN_TOKEN" }));
    assert_eq!(shown["a2a"]["callers"], json!(["peer", "other"]));
    assert!(text.contains(r#"{"secret":"file"}"#), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_question_of_a_turn_is_answered_by_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).config("[executors]\ndefault = \"conformance\"\n").up();
    let task = bridge.start_turn("tck-multi-turn").await;
    bridge.in_state(&task, "TASK_STATE_INPUT_REQUIRED").await;
    let (_, shown) = admin(&bridge, "GET", &format!("/turns/{task}")).await;
    assert_eq!((&shown["question"], &shown["state"]), (&json!(true), &json!("input-required")));
    let path = format!("/turns/{task}/answer");
    assert_eq!(send(&bridge, "POST", &path, &[], r#"{"text":" "}"#).await.0, 400);
    let plain = [("content-type", "application/json")];
    let bare = request(&url(&bridge), "POST", &path, &plain, r#"{"text":"done"}"#).await;
    assert_eq!(bare.status, 403, "a request that any page could send");
    let (status, said) = send(&bridge, "POST", &path, &[], r#"{"text":"done"}"#).await;
    assert_eq!((status, &said["task"]), (202, &json!(task)), "{said}");
    bridge.in_state(&task, "TASK_STATE_COMPLETED").await;
    let (_, row) = admin(&bridge, "GET", &format!("/turns?search={task}")).await;
    assert_eq!(row["turns"][0]["text"], "done", "the last message: {row}");
    let (_, audit) = admin(&bridge, "GET", "/audit").await;
    assert!(audit.to_string().contains(r#""what":"answered""#), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_is_pushed_set_and_removed_from_the_command_line() {
    let site = Site::new("");
    let bridge = site.up();
    let home = tempfile::tempdir().unwrap();
    let (component, policy) = (home.path().join("mine.wasm"), home.path().join("mine.toml"));
    std::fs::write(&component, talaria_fakes::guest("probe")).unwrap();
    std::fs::write(&policy, PROBE).unwrap();
    let run_here = async |arguments: &[&str]| {
        let mut command = talaria(home.path());
        command.env("OPERATOR_TOKEN", swap::TOKEN).args(arguments);
        command.args(["--token-env", "OPERATOR_TOKEN", "--admin", &url(&bridge)]);
        let output = tokio::task::spawn_blocking(move || run(&mut command)).await.unwrap();
        (output.status.code(), stdout(&output), stderr(&output))
    };
    let paths = [component.to_str().unwrap(), policy.to_str().unwrap()];
    let push = ["executor", "push", "mine", "--component", paths[0], "--policy", paths[1]];
    let (code, said, error) = run_here(&push).await;
    assert_eq!(code, Some(0), "{said}{error}");
    let (code, said, _) = run_here(&["executor", "status", "mine"]).await;
    assert!(code == Some(0) && said.contains("needs egress") && said.contains("granted"), "{said}");

    let bearer = format!("Bearer {}", swap::TOKEN);
    let bearer = [("authorization", bearer.as_str())];
    let put = async |body: &str| send(&bridge, "PUT", "/executors/mine/settings", &bearer, body).await;
    let (status, said) = put(r#"{"base_url":"http://127.0.0.1:9/other"}"#).await;
    assert_eq!(status, 200, "{said}");
    assert_eq!(said["executor"]["settings"]["base_url"], "http://127.0.0.1:9/other", "{said}");
    assert!(said["executor"]["schema"].is_object(), "{said}");
    let file = std::fs::read_to_string(site.file("mine.toml")).unwrap();
    assert!(file.contains("/other") && file.contains("egress"), "it stays over a restart: {file}");
    let (status, said) = put(r#"{"base_url":7}"#).await;
    assert_eq!(status, 422, "{said}");
    assert_eq!(
        std::fs::read_to_string(site.file("mine.toml")).unwrap(),
        file,
        "a refused change writes nothing"
    );
    assert_eq!(put("[1]").await.0, 400);

    assert_eq!(run_here(&["executor", "reload", "mine"]).await.0, Some(0));
    assert_eq!(run_here(&["executor", "remove", "mine"]).await.0, Some(0));
    let (code, _, error) = run_here(&["executor", "status", "mine"]).await;
    assert!(code == Some(1) && error.contains("there is no executor `mine`"), "{error}");
}
