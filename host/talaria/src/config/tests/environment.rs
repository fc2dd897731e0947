//! Every variable of the seeds.

use super::Given;
use crate::config::{Config, ExecutorName};

fn chat(config: &Config) -> &crate::config::Executor {
    &config.executors[&ExecutorName::builtin("chat-completions")]
}

#[test]
fn hermes_api_base_is_the_gateway() {
    assert_eq!(chat(&Given::nothing().load()).settings["base_url"], "http://127.0.0.1:8642/v1");
    let config = Given::nothing().variable("HERMES_API_BASE", "https://gw.example:9/v1///").load();
    assert_eq!(chat(&config).settings["base_url"], "https://gw.example:9/v1");
    let egress: Vec<_> = chat(&config).grant.egress.iter().map(ToString::to_string).collect();
    assert_eq!(
        egress,
        ["POST https://gw.example:9/v1/chat/completions", "GET https://gw.example:9/v1/health"]
    );
    let config = Given::nothing().variable("HERMES_API_BASE", "").load();
    assert_eq!(chat(&config).settings["base_url"], "http://127.0.0.1:8642/v1", "empty is unset");
}

#[test]
fn hermes_api_base_must_be_an_address() {
    let error = |value: &str| Given::nothing().variable("HERMES_API_BASE", value).error();
    assert_eq!(
        error("gateway:8642/v1"),
        "environment variable `HERMES_API_BASE`: `gateway:8642/v1` is no address; write it like \"http://127.0.0.1:8000\""
    );
    assert_eq!(
        error("ftp://gateway"),
        "environment variable `HERMES_API_BASE`: `ftp://gateway` is no address that starts with http:// or https://; \
         write it like \"http://127.0.0.1:8000\""
    );
    let leaky = error("http://user:hunter2@gateway/v1");
    assert!(!leaky.contains("hunter2"), "{leaky}");
}

#[test]
fn openai_base_url_is_the_endpoint_of_hermes() {
    let hermes = |given: Given| {
        let config = given.load();
        let executor = config.executors[&ExecutorName::builtin("hermes")].clone();
        let egress: Vec<_> = executor.grant.egress.iter().map(ToString::to_string).collect();
        (executor.settings["base_url"].clone(), egress, executor.grant.secrets)
    };
    let file = || Given::file("[executors]\ndefault = \"hermes\"");
    let (base, egress, secrets) = hermes(file());
    assert_eq!(base, "https://openrouter.ai/api/v1");
    assert_eq!(
        egress,
        ["POST https://openrouter.ai/api/v1/chat/completions", "GET https://openrouter.ai/api/v1/models"]
    );
    assert_eq!(secrets.names().collect::<Vec<_>>(), ["OPENAI_API_KEY"]);
    assert!(!secrets.is_set("OPENAI_API_KEY"));
    let given =
        file().variable("OPENAI_BASE_URL", "http://localhost:1234/v1/").variable("OPENAI_API_KEY", "k");
    let (base, egress, secrets) = hermes(given.variable("HERMES_API_BASE", "http://gateway/v1"));
    assert_eq!(base, "http://localhost:1234/v1");
    assert_eq!(egress[0], "POST http://localhost:1234/v1/chat/completions");
    assert!(secrets.is_set("OPENAI_API_KEY"));
    let error = Given::nothing().variable("OPENAI_BASE_URL", "openrouter").error();
    assert!(error.starts_with("environment variable `OPENAI_BASE_URL`: "), "{error}");
}

#[test]
fn hermes_api_base_is_the_gateway_of_runs_too() {
    let config = Given::file("[executors]\ndefault = \"hermes-runs\"")
        .variable("HERMES_API_BASE", "http://gateway:8642/p/one/v1/")
        .load();
    let runs = &config.executors[&ExecutorName::builtin("hermes-runs")];
    assert_eq!(runs.settings["base_url"], "http://gateway:8642/p/one/v1");
    let egress: Vec<_> = runs.grant.egress.iter().map(ToString::to_string).collect();
    assert_eq!(
        egress,
        [
            "GET http://gateway:8642/p/one/v1/capabilities",
            "POST http://gateway:8642/p/one/v1/runs",
            "GET http://gateway:8642/p/one/v1/runs/*",
            "POST http://gateway:8642/p/one/v1/runs/*",
            "GET http://gateway:8642/p/one/api/sessions/*",
        ],
        "sessions are beside the API"
    );
    assert_eq!(runs.grant.secrets.names().collect::<Vec<_>>(), ["API_SERVER_KEY"]);
}

#[test]
fn api_server_key_is_a_secret_by_name() {
    let secrets = |given: Given| chat(&given.load()).grant.secrets.clone();
    let unset = secrets(Given::nothing());
    assert_eq!(unset.names().collect::<Vec<_>>(), ["API_SERVER_KEY"]);
    assert!(!unset.is_set("API_SERVER_KEY"), "a gateway without a key is no error");
    assert!(!secrets(Given::nothing().variable("API_SERVER_KEY", "")).is_set("API_SERVER_KEY"));
    assert!(secrets(Given::nothing().variable("API_SERVER_KEY", "k")).is_set("API_SERVER_KEY"));
    let given = Given::nothing().with("key", "k\n");
    let path = given.folder.path().join("key");
    assert!(
        secrets(given.variable("API_SERVER_KEY_FILE", &path.display().to_string())).is_set("API_SERVER_KEY")
    );
}

#[test]
fn a_secret_never_shows_in_debug_output() {
    let config = Given::file("[a2a.auth]\ntokens = [{ name = \"a\", token = { env = \"T\" } }]")
        .variable("T", "hunter2")
        .variable("API_SERVER_KEY", "hunter2")
        .load();
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn a_secret_that_no_header_can_hold_is_refused() {
    let error = Given::nothing().variable("API_SERVER_KEY", "hunter2\nhunter3").error();
    assert!(
        error.starts_with("`executor.chat-completions.grant.secrets[0]`: the value of secret API_SERVER_KEY"),
        "{error}"
    );
    assert!(!error.contains("hunter"), "{error}");
}

#[test]
fn platform_enabled_wants_what_is_not_here_yet() {
    let warnings =
        |value: &str| Given::nothing().variable("MOLECULE_A2A_PLATFORM_ENABLED", value).load().warnings;
    for yes in ["1", "true", "YES", " on "] {
        let text = "MOLECULE_A2A_PLATFORM_ENABLED asks for the executor `plugin-callback`, which this version does not ship; \
                    `chat-completions` is used";
        assert_eq!(warnings(yes), [text], "{yes:?}");
    }
    for no in ["", "0", "false", "no", "off"] {
        assert!(warnings(no).is_empty(), "{no:?}");
    }
    assert_eq!(
        warnings("maybe"),
        [
            "MOLECULE_A2A_PLATFORM_ENABLED is neither yes (1, true, yes, on) nor no (0, false, no, off); taken as no"
        ]
    );
}

#[test]
fn plugin_variables_are_checked_and_have_no_effect() {
    let set = |name: &str, value: &str| Given::nothing().variable(name, value);
    assert_eq!(
        set("MOLECULE_A2A_CALLBACK_HOST", "h").load().warnings,
        ["MOLECULE_A2A_CALLBACK_HOST has no effect in this version"]
    );
    let given =
        set("MOLECULE_A2A_PLATFORM_PORT", "8645").variable("MOLECULE_A2A_PLATFORM_SHARED_SECRET", "hunter2");
    let warnings = given.load().warnings;
    assert_eq!(
        warnings,
        ["MOLECULE_A2A_PLATFORM_PORT, MOLECULE_A2A_PLATFORM_SHARED_SECRET have no effect in this version"]
    );
    for (name, value) in [("MOLECULE_A2A_PLATFORM_PORT", "http"), ("MOLECULE_A2A_CALLBACK_PORT", "0")] {
        assert_eq!(
            set(name, value).error(),
            format!("environment variable `{name}`: `{value}` is no port; give a number from 1 to 65535")
        );
    }
}

#[test]
fn a_workspace_is_open_and_says_so() {
    let config = Given::nothing().variable("WORKSPACE_ID", "w").load();
    assert_eq!(config.a2a.listen.to_string(), "0.0.0.0:8000");
    assert!(config.a2a.tokens.is_empty());
    assert_eq!(
        config.warnings,
        [
            "everybody who reaches 0.0.0.0:8000 may call: WORKSPACE_ID is set and there are no tokens; \
             set `a2a.auth.tokens`, or `a2a.auth.open = true` to agree",
            "`a2a.url` is not set: the card says http://127.0.0.1:8000, which works on this machine only",
        ]
    );
}

#[test]
fn a_workspace_with_tokens_is_not_open() {
    let file = "[a2a]\nurl = \"http://w\"\n[a2a.auth]\ntokens = [{ name = \"p\", token = { env = \"T\" } }]";
    let config = Given::file(file).variable("WORKSPACE_ID", "w").variable("T", "t").load();
    assert_eq!(config.a2a.tokens.len(), 1);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}
