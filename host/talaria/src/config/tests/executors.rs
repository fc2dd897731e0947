//! Executors: sections, the folder, settings and grants.

use std::path::Path;

use super::{Given, component, egress};
use talaria_executors::{ComponentRef, Executor};

use crate::config::{Config, ExecutorName};

fn get<'a>(config: &'a Config, name: &str) -> &'a Executor {
    &config.executors.fixed[&name.parse::<ExecutorName>().expect("a name")]
}

#[test]
fn an_executor_with_a_foreign_component_gets_exactly_what_its_section_grants() {
    let file = r#"
        [executor.mine]
        component = "mine.wasm"
        [executor.mine.grant]
        egress = ["POST https://a.example/v1/*", "GET https://b.example/x"]
        secrets = ["A", { name = "B", to = ["https://b.example/*"] }]
        memory = "128MiB"
        [executor.bare]
        component = "/opt/bare.wasm""#;
    let given = Given::file(file).variable("A", "a");
    let config = given.load();
    let mine = get(&config, "mine");
    assert_eq!(mine.component, ComponentRef::File(given.folder.path().join("mine.wasm")));
    assert_eq!(egress(&config, mine), ["POST https://a.example/v1/*", "GET https://b.example/x"]);
    assert_eq!(mine.grant.secrets.names().collect::<Vec<_>>(), ["A", "B"]);
    assert!(mine.grant.secrets.is_set("A") && !mine.grant.secrets.is_set("B"));
    assert_eq!(mine.grant.memory(), 128 << 20);
    assert_eq!(
        config.warnings,
        ["B, which executor.mine is granted, is not set; set it, or B_FILE to the path of its file"]
    );
    let bare = get(&config, "bare");
    assert_eq!(bare.component, ComponentRef::File("/opt/bare.wasm".into()));
    assert!(bare.grant.egress.is_empty() && bare.grant.secrets.names().next().is_none());
    assert!(bare.settings.is_empty());
}

#[test]
fn a_second_gateway_is_a_second_executor() {
    let file = r#"
        [executor.other]
        component = "builtin:chat-completions"
        settings = { base_url = "http://other:1/v1/" }"#;
    let config = Given::file(file).variable("HERMES_API_BASE", "http://env:2/v1").load();
    let other = get(&config, "other");
    assert_eq!(
        other.settings["base_url"], "http://other:1/v1",
        "HERMES_API_BASE is about chat-completions only"
    );
    assert_eq!(egress(&config, other)[0], "POST http://other:1/v1/chat/completions");
}

#[test]
fn an_agent_gets_its_origin_and_a_secret_of_its_own() {
    let file = r#"
        [executor.one]
        component = "builtin:a2a"
        settings = { url = "http://one:1/agents/x" }
        [executor.two]
        component = "builtin:a2a"
        settings = { url = "https://two/card.json", interface_url = "http://three:3/rpc", token = "TWO_TOKEN" }"#;
    let config = Given::file(file).variable("A2A_TOKEN", "a").variable("TWO_TOKEN", "b").load();
    let (one, two) = (get(&config, "one"), get(&config, "two"));
    assert_eq!(egress(&config, one), ["GET http://one:1/*", "GET http://one:1/*", "POST http://one:1/*"]);
    assert_eq!(egress(&config, two), ["GET https://two/*", "GET http://three:3/*", "POST http://three:3/*"]);
    assert_eq!(one.grant.secrets.names().collect::<Vec<_>>(), ["A2A_TOKEN"]);
    assert_eq!(two.grant.secrets.names().collect::<Vec<_>>(), ["TWO_TOKEN"]);
    assert!(one.grant.secrets.is_set("A2A_TOKEN") && two.grant.secrets.is_set("TWO_TOKEN"));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn an_unnamed_built_in_executor_is_not_loaded() {
    let names =
        |given: Given| given.load().executors.fixed.keys().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(Given::nothing()), ["chat-completions", "conformance"]);
    let keys = Given::nothing().variable("OPENAI_BASE_URL", "http://a/v1").variable("OPENAI_API_KEY", "k");
    assert_eq!(names(keys), ["chat-completions", "conformance"], "a key in the environment is no wish");
    for file in ["[executors]\ndefault = \"hermes\"", "[executor.hermes]\ndeadline = \"60s\""] {
        assert_eq!(names(Given::file(file)), ["chat-completions", "conformance", "hermes"], "{file}");
    }
}

#[test]
fn a_key_of_a_built_in_grant_replaces_only_that_key() {
    let config = Given::file("[executor.chat-completions.grant]\nmemory = \"32MiB\"").load();
    let chat = get(&config, "chat-completions");
    assert_eq!(egress(&config, chat).len(), 9);
    assert_eq!(chat.grant.memory(), 32 << 20);
    let config = Given::file("[executor.chat-completions.grant]\negress = []").load();
    assert!(egress(&config, get(&config, "chat-completions")).is_empty(), "nothing is a grant too");
}

#[test]
fn tools_of_the_host_are_granted_by_name_only_to_built_in_components_too() {
    let file =
        "[executor.hermes.grant]\nmemory = \"32MiB\"\n[executor.conformance.grant]\ntools = [\"list_peers\"]";
    let config = Given::file(file).load();
    assert_eq!(get(&config, "hermes").grant.tools, [""; 0]);
    assert_eq!(get(&config, "conformance").grant.tools, ["list_peers"]);
}

/// A secret's value, and whether there is a callback listener, must be known before a component is loaded.
#[test]
fn a_built_in_component_gets_what_it_declares() {
    let config = Given::nothing().load();
    for builtin in config.executors.builtins.iter() {
        let needs = component(&config, builtin.name).description().needs.clone();
        assert_eq!(builtin.preset.secrets, needs.secrets, "{}", builtin.name);
        assert_eq!(builtin.preset.callbacks, needs.callbacks, "{}", builtin.name);
    }
}

#[test]
fn settings_are_json() {
    let file = "[executor.conformance.settings]\na = 1\nb = [true, 1.5, \"x\"]\nc = { d = 2026-01-02 }";
    let settings = get(&Given::file(file).load(), "conformance").settings.clone();
    let expected = serde_json::json!({ "a": 1, "b": [true, 1.5, "x"], "c": { "d": "2026-01-02" } });
    assert_eq!(serde_json::Value::Object(settings), expected);
}

/// An executor of the folder, or why it was rejected, with paths as if the folder were the working directory.
fn dropped(given: &Given, name: &str) -> Result<Executor, String> {
    let config = given.load();
    let name: ExecutorName = name.parse().expect("a name");
    let policy = std::fs::read_to_string(config.executors.folder.policy(&name)).ok();
    let env = |name: &str| given.variables.get(name).cloned();
    let executor = config.executors.folder.executor(&name, policy.as_deref(), &env, &mut Vec::new());
    executor.map_err(|error| error.to_string().replace(&format!("{}/", given.folder.path().display()), ""))
}

#[test]
fn each_component_in_the_folder_is_an_executor() {
    let given = Given::file("[executors]\ndefault = \"dropped\"\n[executor.plain]\ndeadline = \"1s\"")
        .with("executors/dropped.wasm", "")
        .with("executors/dropped.toml", "deadline = \"2s\"\n[settings]\nx = 1")
        .with("executors/plain.wasm", "")
        .with("executors/README.md", "")
        .with("executors/.hidden.wasm", "")
        .with("executors/Bad_Name.wasm", "")
        .with("executors/lost.toml", "");
    let config = given.load();
    let folder = given.folder.path().join("executors");
    let own = dropped(&given, "dropped").expect("it is well-formed");
    assert_eq!(own.component, ComponentRef::File(folder.join("dropped.wasm")));
    assert_eq!(own.deadline.as_secs(), 2);
    assert_eq!(own.settings["x"], 1);
    let plain = dropped(&given, "plain").expect("it is well-formed");
    assert_eq!(plain.component, ComponentRef::File(folder.join("plain.wasm")));
    assert_eq!(plain.deadline.as_secs(), 1);
    assert_eq!(config.executors.fixed.len(), 2, "those of the folder are read when they are loaded");
    let listed = config.executors.folder.list().expect("it can be listed").executors;
    assert_eq!(listed.keys().map(ExecutorName::as_str).collect::<Vec<_>>(), ["dropped", "lost", "plain"]);
    assert_eq!(config.warnings.len(), 1, "{:?}", config.warnings);
    assert!(config.warnings[0].contains("Bad_Name.wasm is skipped: `Bad_Name` is not a valid executor name"));
}

#[test]
fn an_error_in_the_folder_names_its_file_and_affects_one_executor() {
    let mistake = |text: &str| {
        let given = Given::nothing().with("executors/x.wasm", "").with("executors/x.toml", text);
        dropped(&given, "x").expect_err("it has a mistake")
    };
    assert_eq!(
        mistake("\ndedline = \"1s\""),
        "executors/x.toml:2:1: unknown key `dedline`; did you mean `deadline`? \
         (known: component, deadline, concurrency, queue, fallback, fail_mode, settings, grant)"
    );
    assert_eq!(
        mistake("component = \"y.wasm\""),
        "executors/x.toml:1:13: `component`: not here: the component is the .wasm file beside this one"
    );
    assert_eq!(
        mistake("[grant]\nmemory = \"1GiB\""),
        "executors/x.toml:2:10: `grant.memory`: 1GiB is more than an executor can have; 256MiB is the most"
    );
    assert_eq!(
        mistake("listen = 1"),
        "executors/x.toml:1:1: unknown key `listen` \
         (known: component, deadline, concurrency, queue, fallback, fail_mode, settings, grant)"
    );
    assert_eq!(
        mistake("fail_mode = \"fallback\""),
        "executors/x.toml:1:13: `fail_mode`: there is no fallback; name one with `fallback`"
    );
}

#[test]
fn one_executor_has_one_configuration() {
    let given = Given::file("[executor.x]\ncomponent = \"y.wasm\"").with("executors/x.wasm", "");
    assert_eq!(
        dropped(&given, "x").expect_err("there are two"),
        "talaria.toml:1:1: `executor.x`: configured twice: here and by `executors/x.*`; keep one"
    );
}

#[test]
fn versions_are_kept_beside_the_store() {
    let state = |given: Given| {
        let state = given.load().executors.state?;
        Some(state.strip_prefix(given.folder.path()).map(Path::to_owned).unwrap_or(state))
    };
    assert_eq!(state(Given::nothing()), Some("talaria.executors".into()));
    assert_eq!(state(Given::file("[store]\nurl = \"sqlite:/var/x.db\"")), Some("/var/x.executors".into()));
    assert_eq!(state(Given::file("[store]\nurl = \"memory:\"")), None);
    assert_eq!(state(Given::file("[executors]\nstate = \"kept\"")), Some("kept".into()));
    assert_eq!(
        Given::file("[store]\nurl = \"memory:\"\n[executor.conformance]\nfail_mode = \"last-good\"").error(),
        "talaria.toml:4:13: `executor.conformance.fail_mode`: nothing is kept to go back to; set `executors.state`"
    );
}

#[test]
fn the_demo_gateway_replaces_any_other() {
    let file = "[executor.chat-completions.grant]\negress = []\nmemory = \"32MiB\"";
    let mut config = Given::file(file).variable("HERMES_API_BASE", "http://env:2/v1").load();
    config.use_gateway("http://127.0.0.1:4000/v1", "demo-key".into()).expect("a gateway");
    let chat = get(&config, "chat-completions");
    assert_eq!(chat.settings["base_url"], "http://127.0.0.1:4000/v1");
    assert_eq!(egress(&config, chat)[0], "POST http://127.0.0.1:4000/v1/chat/completions");
    assert!(chat.grant.secrets.is_set("API_SERVER_KEY"));
    assert_eq!(chat.grant.memory(), 32 << 20);
}

#[test]
fn a_rule_needs_an_existing_executor_and_a_unique_name() {
    let error = |text: &str| Given::file(text).error();
    assert_eq!(
        error("[[route]]\nskill = \"a\"\nexecutor = \"conformence\""),
        "talaria.toml:3:12: `route[0].executor`: there is no executor `conformence`; did you mean `conformance`? \
         (known: chat-completions, conformance)"
    );
    assert_eq!(error("[[route]]\nskill = \"a\""), "talaria.toml:1:1: `route[0]` lacks the key `executor`");
    let two = "[[route]]\nname = \"a\"\nskill = \"a\"\nexecutor = \"conformance\"\n";
    assert_eq!(
        error(&format!("{two}{two}")),
        "talaria.toml:6:8: `route[1].name`: `a` is taken; a name is one rule's"
    );
    assert!(
        error("[[route]]\nname = \"default\"\nexecutor = \"conformance\"").contains("`default` is taken")
    );
    assert_eq!(
        error("[[route]]\nskil = \"a\"\nexecutor = \"conformance\""),
        "talaria.toml:2:1: unknown key `route[0].skil`; did you mean `skill`? \
         (known: name, skill, tenant, principal, model, metadata, weight, executor)"
    );
    for (line, said) in [
        ("skill = \"\"", "an empty pattern matches nothing"),
        ("skill = []", "an empty list matches nothing"),
        ("skill = 7", "expected a pattern such as \"acme-*\", or a list of them"),
        ("weight = 101", "101 is not a percentage"),
        ("weight = -1", "-1 is not a percentage"),
        ("weight = nan", "NaN is not a percentage"),
        ("metadata = { tier = 1 }", "expected a pattern"),
    ] {
        let error = error(&format!("[[route]]\nexecutor = \"conformance\"\n{line}"));
        assert!(error.contains(said) && error.starts_with("talaria.toml:3"), "{line}: {error}");
    }
}

#[test]
fn an_unreachable_rule_is_a_warning_and_a_rule_loads_its_built_in_executor() {
    let config = Given::file(
        "[a2a.card]\nskills = [{ id = \"chat\", name = \"Chat\", description = \"Chats.\" }]\n\
         [[route]]\nskill = [\"caht\", \"x-*\"]\nexecutor = \"hermes-runs\"\n\
         [[route]]\nexecutor = \"conformance\"\n[[route]]\nname = \"late\"\nexecutor = \"conformance\"",
    )
    .load();
    assert_eq!(
        config.warnings,
        [
            "`route[0].skill`: `caht` is no skill in `a2a.card.skills`",
            "`late` never fits: `route[1]` takes everything before it"
        ]
    );
    assert!(config.executors.fixed.keys().any(|name| name.as_str() == "hermes-runs"));
}
