//! `talaria doctor` finds each problem and says how to fix it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Recorded, Reply};

use crate::bridge::{run, stderr, stdout, talaria};
use crate::clock;

const KEY: &str = "a-key-of-the-tests-0123";

/// A gateway that checks its key and reports this state.
async fn gateway(state: Value) -> FakeGateway {
    let gateway = FakeGateway::start(move |request: &Recorded| match request.path.as_str() {
        "/v1/models" => Reply::json(&json!({ "data": [] })),
        "/health/detailed" => Reply::json(&json!({ "readiness": { "checks": state } })),
        _ => Reply::status(404, "text/plain", "no"),
    })
    .await;
    gateway.want_key(KEY);
    gateway
}

/// Runs the command. Returns the report and the exit code.
fn doctor(folder: &Path, variables: &[(&str, &str)]) -> (Value, Option<i32>) {
    let config = "[a2a]\nlisten = \"127.0.0.1:0\"\n[callback]\nlisten = \"127.0.0.1:0\"\n";
    fs::write(folder.join("talaria.toml"), config).unwrap();
    let mut command = talaria(folder);
    // Keys in the developer's environment would change the findings.
    for name in talaria_hermes::gateway::FORWARDED {
        command.env_remove(name);
    }
    command.args(["doctor", "--output", "json"]).env("HOME", folder).envs(variables.iter().copied());
    let output = run(&mut command);
    let report = serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    (report, output.status.code())
}

pub(super) fn finding<'r>(report: &'r Value, name: &str) -> (&'r str, &'r str, &'r str) {
    let checks = report["checks"].as_array().unwrap();
    let worst = checks
        .iter()
        .filter(|check| check["name"] == name)
        .max_by_key(|check| ["ok", "warning", "failure"].iter().position(|known| check["verdict"] == *known));
    let check = worst.unwrap_or_else(|| panic!("no {name} in {report:#}"));
    (
        check["verdict"].as_str().unwrap(),
        check["finding"].as_str().unwrap(),
        check["fix"].as_str().unwrap_or_default(),
    )
}

// Starting a bridge blocks its thread, hence several threads.
#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_machine_has_no_findings() {
    let (folder, gateway) =
        (tempfile::tempdir().unwrap(), gateway(json!({ "model": { "status": "ok" } })).await);
    let base = gateway.base_url();
    let (report, code) = doctor(folder.path(), &[("HERMES_API_BASE", &base), ("API_SERVER_KEY", KEY)]);
    for name in ["A2A port", "store", "gateway", "gateway key", "gateway state"] {
        assert_eq!(finding(&report, name).0, "ok", "{name}: {report:#}");
    }
    assert_ne!(code, Some(1), "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_only_what_it_asked() {
    let folder = tempfile::tempdir().unwrap();
    // A gateway that asks for no key and is not hermes-agent.
    let open = older(&["gpt-x"]).await;
    open.keep_no_sessions();
    let base = open.base_url();
    let of = |key: Option<&str>| {
        let mut variables = vec![("HERMES_API_BASE", base.as_str())];
        variables.extend(key.map(|key| ("API_SERVER_KEY", key)));
        doctor(folder.path(), &variables).0
    };
    for (key, said) in [
        (None, "the gateway asks for no key"),
        (Some("short"), "whether it takes ours is not known"),
        (Some(KEY), "whether it takes ours is not known"),
    ] {
        let report = of(key);
        let (verdict, found, _) = finding(&report, "gateway key");
        assert!(verdict == "ok" && found.contains(said), "{key:?}: {found}");
        assert!(finding(&report, "gateway").1.contains("does not say that it is hermes-agent"), "{report:#}");
    }
    assert_eq!(finding(&of(None), "store owner").1, "no running host");
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_problems_of_the_gateway() {
    let (folder, gateway) = (
        tempfile::tempdir().unwrap(),
        gateway(json!({ "model": { "status": "error" }, "disk": { "status": "ok" } })).await,
    );
    let base = gateway.base_url();
    let (report, code) = doctor(folder.path(), &[("HERMES_API_BASE", "http://127.0.0.1:1/v1")]);
    assert_eq!((finding(&report, "gateway").0, code), ("failure", Some(1)));
    assert!(finding(&report, "gateway").2.contains("hermes gateway run"));

    let of = |variables: &[(&str, &str)]| {
        let all: Vec<_> = variables.iter().copied().chain([("HERMES_API_BASE", base.as_str())]).collect();
        doctor(folder.path(), &all).0
    };
    assert!(finding(&of(&[]), "gateway key").1.contains("not set"));
    assert!(finding(&of(&[("API_SERVER_KEY", "short")]), "gateway key").1.contains("less than 16"));
    fs::create_dir(folder.path().join(".hermes")).unwrap();
    fs::write(folder.path().join(".hermes/.env"), format!("API_SERVER_KEY={KEY}\n")).unwrap();
    let report = of(&[("API_SERVER_KEY", "another-key-of-the-tests")]);
    let (verdict, said, fix) = finding(&report, "gateway key");
    assert!(
        verdict == "failure" && said.contains("another than in") && fix.contains("same API_SERVER_KEY"),
        "{said} {fix}"
    );
    assert!(!report.to_string().contains(KEY), "no key is printed");
    let report = of(&[("API_SERVER_KEY", KEY)]);
    assert!(finding(&report, "gateway state").1.contains("model"), "{report:#}");
}

/// A gateway of a version without `/health/detailed` that lists these models.
async fn older(models: &'static [&'static str]) -> FakeGateway {
    FakeGateway::start(move |request: &Recorded| match request.path.as_str() {
        "/v1/models" => {
            let models: Vec<_> = models.iter().map(|id| json!({ "id": id })).collect();
            Reply::json(&json!({ "data": models }))
        }
        _ => Reply::status(404, "text/plain", "404: Not Found"),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_an_unknown_model_even_if_the_gateway_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let (configs, home) = (folder.path().join("configs"), folder.path().join(".hermes"));
    fs::create_dir(&configs).unwrap();
    let configs = configs.to_string_lossy();
    let of = |gateway: &FakeGateway, model: &str| {
        fs::write(Path::new(&*configs).join("config.yaml"), format!("name: W\n{model}")).unwrap();
        let variables = [
            ("HERMES_API_BASE", &gateway.base_url() as &str),
            ("API_SERVER_KEY", KEY),
            ("WORKSPACE_ID", "ws-1"),
            ("WORKSPACE_CONFIG_PATH", &configs),
            ("PLATFORM_URL", "http://127.0.0.1:1"),
        ];
        doctor(folder.path(), &variables).0
    };
    let other = older(&["gpt-x", "gpt-y"]).await;
    assert_eq!(finding(&of(&other, "model: gpt-y"), "model").0, "ok");
    let report = of(&other, "model: gtp-y");
    let (verdict, said, fix) = finding(&report, "model");
    assert!(verdict == "failure" && said.contains("model gtp-y; it lists gpt-x, gpt-y"), "{said}");
    assert!(fix.contains("one that it lists"), "{fix}");

    // hermes-agent lists only itself, whatever its model is.
    let hermes = older(&["hermes-agent"]).await;
    let report = of(&hermes, "model: openrouter/some");
    let (verdict, said, fix) = finding(&report, "model");
    assert!(
        verdict == "warning"
            && said.contains("could not be told whether the gateway knows the model openrouter/some"),
        "{said}"
    );
    assert!(fix.contains("error 400") && fix.contains("hermes model"), "{fix}");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("config.yaml"), "compression: {enabled: false}\n").unwrap();
    let report = of(&hermes, "");
    assert!(finding(&report, "model").1.contains("names no model"), "{report:#}");
    fs::write(home.join("config.yaml"), "model: {default: some-model}\n").unwrap();
    assert!(finding(&of(&hermes, ""), "model").1.contains("the model some-model"));
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_a_provider_key_that_is_missing_or_misleading() {
    let (folder, gateway) = (tempfile::tempdir().unwrap(), gateway(json!({})).await);
    let (base, home) = (gateway.base_url(), folder.path().join(".hermes"));
    let of = |variables: &[(&str, &str)]| {
        let always = [("HERMES_API_BASE", base.as_str()), ("API_SERVER_KEY", KEY)];
        doctor(folder.path(), &variables.iter().copied().chain(always).collect::<Vec<_>>()).0
    };
    let is_quiet =
        |report: &Value| report["checks"].as_array().unwrap().iter().all(|check| check["name"] != "provider");
    let trap = |report: &Value| {
        let (verdict, said, fix) = finding(report, "provider");
        assert!(verdict == "warning" && said.contains("openai-codex"), "{said}");
        assert!(fix.contains("HERMES_INFERENCE_PROVIDER"), "{fix}");
    };
    let openai = ("OPENAI_API_KEY", "sk-of-the-tests");
    trap(&of(&[openai]));
    trap(&of(&[openai, ("HERMES_INFERENCE_PROVIDER", "auto")]));
    assert!(is_quiet(&of(&[openai, ("HERMES_INFERENCE_PROVIDER", "openrouter")])));

    // The gateway's own files count too.
    fs::create_dir(&home).unwrap();
    fs::write(home.join(".env"), "OPENAI_API_KEY=sk-of-the-tests\n").unwrap();
    trap(&of(&[]));
    fs::write(home.join("config.yaml"), "model: {provider: custom}\n").unwrap();
    assert!(is_quiet(&of(&[openai])));

    for there in ["", "OPENROUTER_API_KEY=another\n"] {
        fs::write(home.join(".env"), there).unwrap();
        let report = of(&[("OPENROUTER_API_KEY", "sk-or-of-the-tests")]);
        let (verdict, said, fix) = finding(&report, "provider");
        assert!(
            verdict == "warning" && said.starts_with("OPENROUTER_API_KEY here, but not the same in"),
            "{said}"
        );
        assert!(fix.contains("restart the gateway"), "{fix}");
        assert!(!report.to_string().contains("sk-or-of-the-tests"), "no key is printed");
    }
}

#[test]
fn explains_a_failed_gateway_by_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join(".hermes/logs");
    fs::create_dir_all(&logs).unwrap();
    for (log, cause) in [
        ("ModuleNotFoundError: No module named 'aiohttp'", "aiohttp is missing"),
        ("ERROR Refusing to start: API_SERVER_KEY is a placeholder", "does not take its key"),
        ("OSError: [Errno 98] Address already in use", "its port is taken"),
        ("MemoryError", "out of memory"),
    ] {
        fs::write(logs.join("gateway.log"), format!("INFO starting\n{log}\n")).unwrap();
        let (report, code) = doctor(folder.path(), &[("HERMES_API_BASE", "http://127.0.0.1:1/v1")]);
        let (verdict, _, fix) = finding(&report, "gateway");
        assert_eq!((verdict, code), ("failure", Some(1)));
        assert!(fix.contains("gateway.log says why") && fix.contains(cause), "{log}: {fix}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_mistakes_in_the_plugins_configuration() {
    let (folder, gateway) = (tempfile::tempdir().unwrap(), gateway(json!({})).await);
    let base = gateway.base_url();
    fs::create_dir(folder.path().join(".hermes")).unwrap();
    let of = |yaml: &str, host: &str| {
        fs::write(folder.path().join(".hermes/config.yaml"), yaml).unwrap();
        let variables = [
            ("HERMES_API_BASE", base.as_str()),
            ("API_SERVER_KEY", KEY),
            ("MOLECULE_A2A_PLATFORM_ENABLED", "true"),
            ("MOLECULE_A2A_PLATFORM_HOST", host),
            ("MOLECULE_A2A_PLATFORM_PORT", "1"),
        ];
        doctor(folder.path(), &variables).0
    };
    let report = of("plugins: {enabled: [molecule-a2a]}", "127.0.0.1");
    let (verdict, said, fix) = finding(&report, "plugin");
    assert!(
        verdict == "failure" && said.contains("with a hyphen") && fix.contains("underscore"),
        "{said} {fix}"
    );
    assert!(finding(&of("", "127.0.0.1"), "plugin").1.contains("does not name"));
    let wrong = "plugins: {enabled: [molecule_a2a]}\nplatforms: {molecule_a2a: {enabled: true}}";
    let report = of(wrong, "127.0.0.1");
    let (_, said, fix) = finding(&report, "plugin");
    assert!(said.contains("with an underscore") && fix.contains("with a hyphen"), "{said} {fix}");
    let elsewhere = "platforms: {molecule-a2a: {extra: {callback_url: \"http://127.0.0.1:9/a2a/reply\"}}}";
    let report = of(elsewhere, "127.0.0.1");
    let (verdict, said, fix) = finding(&report, "callback");
    assert!(verdict == "failure" && said.contains("to answer at http://127.0.0.1:9/"), "{said}");
    assert!(fix.contains("callback_url: http://127.0.0.1:"), "{fix}");
    let report = of("plugins: {enabled: [molecule-a2a]}", "127.0.0.1");
    let (verdict, said, fix) = finding(&report, "callback");
    assert!(verdict == "warning" && said.contains("without a secret"), "{said}");
    assert!(fix.contains("MOLECULE_A2A_PLATFORM_SHARED_SECRET"), "{fix}");
    assert!(finding(&of("", "192.0.2.1"), "callback").1.contains("cannot reach"));
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_problems_of_the_machine() {
    let (folder, gateway) = (tempfile::tempdir().unwrap(), gateway(json!({})).await);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let operators = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let operators_at = operators.local_addr().unwrap();
    let config = format!(
        "[admin]\nlisten = \"{operators_at}\"\n[a2a]\nlisten = \"{at}\"\n[store]\nurl = \"sqlite:/proc/none/talaria.db\"\n"
    );
    let path = folder.path().join("other.toml");
    fs::write(&path, config).unwrap();
    // Nothing accepts on that port, so it is not a bridge.
    drop(gateway);
    let occupied = folder.path().join("talaria.db");
    fs::create_dir(&occupied).unwrap();
    let (report, _) = doctor(folder.path(), &[("HERMES_API_BASE", "http://127.0.0.1:1/v1")]);
    let (verdict, said, fix) = finding(&report, "store");
    assert!(
        verdict == "failure" && said.contains("cannot be written") && fix.contains("store.url"),
        "{said}"
    );

    let mut command = talaria(folder.path());
    command
        .args(["doctor", "--config", "other.toml"])
        .env("HERMES_API_BASE", "http://127.0.0.1:1/v1")
        .env("HOME", folder.path());
    command
        .env("WORKSPACE_ID", "ws-1")
        .env("WORKSPACE_CONFIG_PATH", "/no/such/folder")
        .env("PLATFORM_URL", "http://127.0.0.1:1");
    let output = run(&mut command);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    for part in [
        &format!("FAILURE  A2A port: cannot listen on {at}") as &str,
        &format!("FAILURE  operator's port: cannot listen on {operators_at}"),
        "FAILURE  store:",
        "FAILURE  platform:",
        "FAILURE  workspace folder:",
        "fix: ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_a_wrong_clock() {
    let (folder, gateway) = (tempfile::tempdir().unwrap(), gateway(json!({})).await);
    let base = gateway.base_url();
    let variables = [("HERMES_API_BASE", base.as_str()), ("API_SERVER_KEY", KEY)];
    let right = doctor(folder.path(), &variables).0;
    assert_eq!(finding(&right, "clock").0, "ok", "{right:#}");
    let library = clock::library();
    let ahead = [("LD_PRELOAD", &*library.to_string_lossy()), ("FAKETIME", "+1h")];
    let (wrong, code) = doctor(folder.path(), &[&variables[..], &ahead].concat());
    let (verdict, said, fix) = finding(&wrong, "clock");
    assert_eq!((verdict, code), ("warning", Some(2)));
    assert!(said.contains("s apart") && fix.contains("NTP"), "{said} {fix}");
}

#[test]
fn finds_tools_that_the_agent_cannot_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let packages = path("venv/lib/python3.12/site-packages");
    for name in [".hermes", "configs", "venv/bin"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    fs::create_dir_all(packages.join("hermes_agent-0.19.0.dist-info")).unwrap();
    fs::write(path("venv/bin/hermes"), format!("#!{}\n", path("venv/bin/python").display())).unwrap();
    let (bin, configs) = (path("venv/bin"), path("configs"));
    let variables = [
        ("WORKSPACE_ID", "w"),
        ("WORKSPACE_CONFIG_PATH", configs.to_str().unwrap()),
        ("PLATFORM_URL", "http://127.0.0.1:1"),
        ("PATH", bin.to_str().unwrap()),
    ];
    let tools = || {
        let (report, _) = doctor(folder.path(), &variables);
        let (verdict, finding, fix) = finding(&report, "tools");
        (verdict.to_owned(), finding.to_owned(), fix.to_owned())
    };
    let (verdict, found, fix) = tools();
    assert_eq!(verdict, "failure", "{found}");
    assert!(found.contains("has no MCP client") && fix.contains("hermes-agent[mcp]"), "{found} {fix}");
    fs::create_dir(packages.join("mcp")).unwrap();
    let (verdict, found, fix) = tools();
    assert_eq!(verdict, "warning", "{found}");
    assert!(
        found.contains("does not list the tools at http://127.0.0.1:9100/mcp") && fix.contains("[gateway]"),
        "{found}"
    );
    let server = json!({ "url": "http://127.0.0.1:9100/mcp", "headers": { "Authorization": "Bearer ${TALARIA_TOOLS_TOKEN}" } });
    fs::write(path(".hermes/config.yaml"), json!({ "mcp_servers": { "molecule": server } }).to_string())
        .unwrap();
    assert_eq!(tools().0, "ok");
}

#[test]
fn finds_side_tasks_without_a_model() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(".hermes")).unwrap();
    let of = |variables: &[(&str, &str)]| {
        let (report, _) = doctor(folder.path(), variables);
        let (verdict, found, fix) = finding(&report, "auxiliary model");
        (verdict.to_owned(), format!("{found} {fix}"))
    };
    let (verdict, said) = of(&[("OPENAI_API_KEY", "sk-of-the-tests")]);
    assert_eq!(verdict, "warning", "{said}");
    assert!(
        said.contains("no provider for images and web summaries") && said.contains("providers.md"),
        "{said}"
    );
    assert_eq!(of(&[("OPENROUTER_API_KEY", "sk-of-the-tests")]).0, "ok");
}
