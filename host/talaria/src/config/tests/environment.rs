//! Every variable of the Python bridge.

use super::{Given, egress};
use talaria_a2a::ReplyAs;

use crate::config::{Config, ExecutorName};
use secrecy::ExposeSecret as _;

fn chat(config: &Config) -> &talaria_executors::Executor {
    &config.executors.fixed[&ExecutorName::builtin("chat-completions")]
}

fn plugin(config: &Config) -> &talaria_executors::Executor {
    &config.executors.fixed[&ExecutorName::builtin("plugin-callback")]
}

#[test]
fn hermes_api_base_is_the_gateway() {
    assert_eq!(chat(&Given::nothing().load()).settings["base_url"], "http://127.0.0.1:8642/v1");
    let config = Given::nothing().variable("HERMES_API_BASE", "https://gw.example:9/v1///").load();
    assert_eq!(chat(&config).settings["base_url"], "https://gw.example:9/v1");
    let egress = egress(&config, chat(&config));
    assert_eq!(
        egress,
        [
            "POST https://gw.example:9/v1/chat/completions",
            "GET https://gw.example:9/v1/health",
            "GET https://gw.example:9/v1/models",
            "GET https://gw.example:9/api/sessions*",
            "GET https://gw.example:9/health/detailed",
            "GET https://gw.example:9/v1/capabilities",
            "POST https://gw.example:9/v1/runs",
            "GET https://gw.example:9/v1/runs/*",
            "POST https://gw.example:9/v1/runs/*",
        ]
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
        let executor = config.executors.fixed[&ExecutorName::builtin("hermes")].clone();
        let egress = egress(&config, &executor);
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
    let runs = &config.executors.fixed[&ExecutorName::builtin("hermes-runs")];
    assert_eq!(runs.settings["base_url"], "http://gateway:8642/p/one/v1");
    let egress = egress(&config, runs);
    assert_eq!(
        egress,
        [
            "GET http://gateway:8642/p/one/v1/capabilities",
            "POST http://gateway:8642/p/one/v1/runs",
            "GET http://gateway:8642/p/one/v1/runs/*",
            "POST http://gateway:8642/p/one/v1/runs/*",
            "GET http://gateway:8642/p/one/api/sessions*",
            "POST http://gateway:8642/p/one/v1/chat/completions",
            "GET http://gateway:8642/p/one/v1/models",
            "GET http://gateway:8642/p/one/v1/health",
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
fn rejects_a_secret_that_no_header_can_hold() {
    let error = Given::nothing().variable("API_SERVER_KEY", "hunter2\nhunter3").error();
    assert!(
        error.starts_with("`executor.chat-completions.grant.secrets[0]`: the value of secret API_SERVER_KEY"),
        "{error}"
    );
    assert!(!error.contains("hunter"), "{error}");
}

#[test]
fn platform_enabled_makes_the_plugin_the_default_with_a_fallback() {
    let enabled = |value: &str| Given::nothing().variable("MOLECULE_A2A_PLATFORM_ENABLED", value).load();
    for yes in ["1", "true", "YES", " on "] {
        let config = enabled(yes);
        assert_eq!(config.executors.default.as_str(), "plugin-callback", "{yes:?}");
        assert_eq!(plugin(&config).fallback.as_ref().map(ExecutorName::as_str), Some("chat-completions"));
        assert_eq!(config.callback.unwrap().listen.to_string(), "127.0.0.1:8646");
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    }
    for no in ["", "0", "false", "no", "off"] {
        let config = enabled(no);
        assert_eq!(config.executors.default.as_str(), "chat-completions", "{no:?}");
        assert!(config.callback.is_none(), "nobody listens where nobody is to call");
        assert!(!config.executors.fixed.contains_key(&ExecutorName::builtin("plugin-callback")));
    }
    assert_eq!(
        enabled("maybe").warnings,
        [
            "MOLECULE_A2A_PLATFORM_ENABLED is neither yes (1, true, yes, on) nor no (0, false, no, off); taken as no"
        ]
    );
}

#[test]
fn a_file_can_remove_or_replace_the_fallback() {
    let fallback = |toml: &str| {
        let given = Given::file(&format!("[executor.plugin-callback]\n{toml}"));
        plugin(&given.variable("MOLECULE_A2A_PLATFORM_ENABLED", "1").load())
            .fallback
            .as_ref()
            .map(ToString::to_string)
    };
    assert_eq!(fallback("deadline = \"60s\"").as_deref(), Some("chat-completions"), "as if nothing was said");
    assert_eq!(fallback("fallback = \"none\""), None);
    assert_eq!(fallback("fallback = \"conformance\"").as_deref(), Some("conformance"));
    let without = Given::file("[executors]\ndefault = \"plugin-callback\"").load();
    assert_eq!(plugin(&without).fallback, None, "only the environment implies one");
}

#[test]
fn variables_set_the_address_of_the_plugin() {
    let settings = |given: Given| {
        let config = given.variable("MOLECULE_A2A_PLATFORM_ENABLED", "1").load();
        let executor = plugin(&config);
        assert!(executor.grant.callbacks);
        executor.settings["inbound_url"].as_str().unwrap().to_owned()
    };
    let set = |name: &str, value: &str| Given::nothing().variable(name, value);
    assert_eq!(settings(Given::nothing()), "http://127.0.0.1:8645/a2a/inbound");
    let config = Given::file("[executors]\ndefault = \"plugin-callback\"").load();
    assert_eq!(
        egress(&config, plugin(&config)),
        ["POST http://127.0.0.1:8645/a2a/inbound", "GET http://127.0.0.1:8645/a2a/health"]
    );
    assert_eq!(settings(set("MOLECULE_A2A_PLATFORM_HOST", "hermes")), "http://hermes:8645/a2a/inbound");
    assert_eq!(settings(set("MOLECULE_A2A_PLATFORM_HOST", "::1")), "http://[::1]:8645/a2a/inbound");
    assert_eq!(settings(set("MOLECULE_A2A_PLATFORM_PORT", "9")), "http://127.0.0.1:9/a2a/inbound");
    let file = "[executor.plugin-callback.settings]\ninbound_url = \"http://file:1/a2a/inbound\"";
    assert_eq!(settings(Given::file(file)), "http://file:1/a2a/inbound");
    assert_eq!(
        settings(Given::file(file).variable("MOLECULE_A2A_PLATFORM_PORT", "9")),
        "http://127.0.0.1:9/a2a/inbound",
        "the environment comes before the file"
    );
}

#[test]
fn variables_set_the_address_of_the_callback_listener() {
    let load = |given: Given| given.variable("MOLECULE_A2A_PLATFORM_ENABLED", "1").load();
    let file = || Given::file("[callback]\nlisten = \"127.0.0.2:7\"");
    let listen = |given: Given| load(given).callback.unwrap().listen.to_string();
    assert_eq!(listen(file()), "127.0.0.2:7");
    assert_eq!(listen(file().variable("MOLECULE_A2A_CALLBACK_PORT", "9")), "127.0.0.2:9");
    assert_eq!(listen(file().variable("MOLECULE_A2A_CALLBACK_HOST", "localhost")), "127.0.0.1:7");
    let beyond = || {
        Given::nothing()
            .variable("MOLECULE_A2A_PLATFORM_ENABLED", "1")
            .variable("MOLECULE_A2A_CALLBACK_HOST", "0.0.0.0")
    };
    assert_eq!(
        beyond().error(),
        "environment variable `MOLECULE_A2A_CALLBACK_HOST`: 0.0.0.0:8646 is beyond loopback, and everybody who reaches it could answer in the agent's \
         name; set MOLECULE_A2A_PLATFORM_SHARED_SECRET here and for the plugin"
    );
    let shared = beyond().variable("MOLECULE_A2A_PLATFORM_SHARED_SECRET", "of-the-plugin").load();
    let bound = "0.0.0.0:8646".parse().unwrap();
    assert_eq!(shared.callback.unwrap().reply_url(bound), "http://127.0.0.1:8646/a2a/reply");
    let told = load(Given::file("[callback]\nurl = \"http://bridge:1/a2a/reply\""));
    assert_eq!(told.callback.unwrap().reply_url(bound), "http://bridge:1/a2a/reply");
}

#[test]
fn the_shared_secret_is_used_in_both_directions_and_never_shown() {
    let given = Given::nothing()
        .variable("MOLECULE_A2A_PLATFORM_ENABLED", "1")
        .variable("MOLECULE_A2A_PLATFORM_SHARED_SECRET", "hunter2");
    let config = given.load();
    assert!(plugin(&config).grant.secrets.is_set("MOLECULE_A2A_PLATFORM_SHARED_SECRET"));
    assert!(config.callback.as_ref().unwrap().secret.is_some());
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn plugin_variables_are_checked() {
    for (name, value, what) in [
        ("MOLECULE_A2A_PLATFORM_PORT", "http", "`http` is no port; give a number from 1 to 65535"),
        ("MOLECULE_A2A_CALLBACK_PORT", "0", "`0` is no port; give a number from 1 to 65535"),
        (
            "MOLECULE_A2A_CALLBACK_HOST",
            "h",
            "`h` is not an address to listen on; give one such as `127.0.0.1`",
        ),
        ("MOLECULE_A2A_PLATFORM_HOST", "a/b", "not a host; give a name or an address, such as `127.0.0.1`"),
        ("MOLECULE_A2A_PLATFORM_HOST", "u@h", "not a host; give a name or an address, such as `127.0.0.1`"),
    ] {
        assert_eq!(
            Given::nothing().variable(name, value).error(),
            format!("environment variable `{name}`: {what}")
        );
    }
}

#[test]
fn the_plugin_gets_the_workspace_id() {
    let given = Given::nothing().variable("WORKSPACE_ID", "w").variable("MOLECULE_A2A_PLATFORM_ENABLED", "1");
    assert_eq!(plugin(&given.load()).settings["workspace_id"], "w");
}

#[test]
fn a_workspace_without_tokens_is_open_with_a_warning() {
    let config = Given::nothing().variable("WORKSPACE_ID", "w").load();
    assert_eq!(config.a2a.listen.to_string(), "0.0.0.0:8000");
    assert!(config.a2a.tokens.is_empty());
    assert_eq!(
        config.warnings,
        [
            "/configs/config.yaml: there is no such file; the defaults are used",
            "everybody who reaches 0.0.0.0:8000 may call: WORKSPACE_ID is set and there are no tokens; \
             set `a2a.auth.open = false` where the platform sends its secret, `a2a.auth.tokens`, or \
             `a2a.auth.open = true` to agree",
        ]
    );
    assert_eq!(config.a2a.reply, ReplyAs::Message, "the platform reads the parts of a message, failures too");
    let told = Given::file("[a2a]\nreply = \"auto\"").variable("WORKSPACE_ID", "w").load();
    assert_eq!(told.a2a.reply, ReplyAs::Auto);
}

#[test]
fn a_workspace_with_tokens_is_not_open() {
    let file = "[a2a]\nurl = \"http://w\"\n[a2a.auth]\ntokens = [{ name = \"p\", token = { env = \"T\" } }]";
    let config = Given::file(file).variable("WORKSPACE_ID", "w").variable("T", "t").load();
    assert_eq!((config.a2a.tokens.len(), config.a2a.platform_calls), (1, true));
    assert_eq!(config.warnings, ["/configs/config.yaml: there is no such file; the defaults are used"]);
    let file = file.replace("\"p\"", "\"workspace-platform\"");
    let error = Given::file(&file).variable("WORKSPACE_ID", "w").variable("T", "t").error();
    assert!(error.contains("is the workspace's platform; take another"), "{error}");
}

#[test]
fn the_workspace_folder_fills_in_what_the_file_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = "name: Researcher\nversion: 2.1\nmodel: m\na2a: {port: 8100, push_notifications: false}\n";
    std::fs::write(folder.path().join("config.yaml"), yaml).unwrap();
    let path = folder.path().to_string_lossy().into_owned();
    let of = |toml: &str| {
        let given = Given::file(toml).variable("WORKSPACE_ID", "w").variable("WORKSPACE_CONFIG_PATH", &path);
        given.variable("HOSTNAME", "ws-host").variable("PLATFORM_URL", "http://platform:8080/").load()
    };
    let config = of("");
    let card = config.a2a.card.current();
    assert_eq!(
        (card.name.as_str(), card.description.as_str(), card.version.as_str()),
        ("Researcher", "Researcher", "2.1")
    );
    assert_eq!((card.streaming, card.push_notifications), (true, false));
    assert_eq!(config.a2a.public_url("0.0.0.0:8100".parse().unwrap()), "http://ws-host:8100");
    assert_eq!(config.a2a.public_url("127.0.0.1:8100".parse().unwrap()), "http://127.0.0.1:8100");
    assert_eq!(config.a2a.listen.port(), 8100);
    let workspace = config.workspace.unwrap();
    assert_eq!((workspace.id(), workspace.platform_url.as_str()), ("w", "http://platform:8080"));
    assert_eq!(of("[a2a.card]\nname = \"Mine\"").a2a.card.current().name, "Mine");
}

#[test]
fn a_started_gateway_and_its_executors_share_a_key() {
    let given = Given::file("[gateway]\nhome = \"home\"\nport = 8700").variable("OPENAI_API_KEY", "sk-x");
    let config = given.load();
    let gateway = config.gateway.clone().unwrap();
    assert_eq!(gateway.launch.command, ["hermes", "gateway", "run"]);
    assert!(gateway.launch.home.is_absolute() && gateway.launch.home.ends_with("home"));
    assert!(gateway.settings.key.expose_secret().len() >= 32, "made up");
    assert!(gateway.settings.plugin.is_none());
    assert_eq!(gateway.settings.variables.len(), 1);
    let chat = config
        .executors
        .fixed
        .values()
        .find(|executor| executor.name.as_str() == "chat-completions")
        .unwrap();
    assert_eq!(chat.settings["base_url"], "http://127.0.0.1:8700/v1");
    assert!(chat.grant.secrets.is_set("API_SERVER_KEY"));

    let plugin = Given::file("[gateway]\nhome = \"home\"")
        .variable("API_SERVER_KEY", "short")
        .variable("MOLECULE_A2A_PLATFORM_ENABLED", "1")
        .variable("MOLECULE_A2A_PLATFORM_PORT", "8700")
        .load();
    let wanted = plugin.gateway.unwrap().settings;
    assert_eq!(wanted.key.expose_secret(), "short");
    assert!(plugin.warnings.iter().any(|warning| warning.contains("less than 16")), "{:?}", plugin.warnings);
    let told = wanted.plugin.unwrap();
    assert_eq!((told.port, told.callback_url.as_str()), (8700, "http://127.0.0.1:8646/a2a/reply"));
    let made_up = told.secret.unwrap();
    assert!(made_up.expose_secret().len() >= 32, "made up");
    let asked = plugin.callback.unwrap().secret.unwrap();
    assert_eq!(asked.expose_secret(), made_up.expose_secret(), "callbacks must carry it");
    let sends = plugin.executors.fixed.values().find(|executor| executor.name.as_str() == "plugin-callback");
    assert!(sends.unwrap().grant.secrets.is_set("MOLECULE_A2A_PLATFORM_SHARED_SECRET"), "messages carry it");
    for (toml, said) in [
        ("[gateway]\ncommand = \" \"", "gateway.command"),
        ("[gateway]\nuser = \"nobody-of-this-name\"", "gateway.user"),
    ] {
        let error = Given::file(toml).variable("HOME", "/h").error();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn proxies_of_the_environment_apply_and_bad_ones_end_the_start() {
    let proxy = "http://user:pass@proxy.example:3128";
    let config = Given::file("").variable("HTTPS_PROXY", proxy).load();
    assert_eq!(config.egress.proxies.describe().as_deref(), Some("https by proxy.example:3128"));
    assert_eq!(config.executors.egress.proxies.describe(), config.egress.proxies.describe());
    assert_eq!(Given::file("").load().egress.proxies.describe(), None);
    let error = Given::file("").variable("https_proxy", "socks5://user:pass@p:1").error();
    assert!(error.contains("https_proxy") && error.contains("only proxies that speak HTTP"), "{error}");
    assert!(!error.contains("pass"), "{error}");
    let idle = Given::file("[egress]\nproxy_resolves = true").load();
    assert!(idle.warnings.iter().any(|said| said.starts_with("egress.proxy_resolves has no effect")));
}

#[test]
fn a_file_without_certificates_is_a_mistake() {
    for (file, says) in [
        ("[egress]\nca = \"missing.pem\"", "`egress.ca`"),
        ("[egress]\nca = \"talaria.toml\"", "there is no certificate in it"),
    ] {
        let error = Given::file(file).error();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn the_platform_cannot_be_trusted_with_commands() {
    let file = "[executor.plugin-callback.settings]\ncommands_from = [\"workspace-platform\"]";
    let error = Given::file(file).error();
    assert!(error.contains("passes on messages of other workspaces as well"), "{error}");
    let file = file.replace("workspace-platform", "alice");
    assert_eq!(plugin(&Given::file(&file).load()).settings["commands_from"], serde_json::json!(["alice"]));
}

#[test]
fn the_runtime_config_of_a_workspace_reaches_the_default_executor() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = "runtime_config: {model: m, timeout: 5, history: none, command: x}\n";
    std::fs::write(folder.path().join("config.yaml"), yaml).unwrap();
    let path = folder.path().to_string_lossy().into_owned();
    let config =
        Given::file("").variable("WORKSPACE_ID", "w").variable("WORKSPACE_CONFIG_PATH", &path).load();
    assert_eq!(serde_json::json!(chat(&config).suggested), serde_json::json!({ "history": "none" }));
}

#[test]
fn the_template_of_a_workspace_is_valid_and_names_known_variables() {
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workspace"));
    let (manifest, troubles) = talaria_workspace::Manifest::read(folder).unwrap();
    assert!(troubles.is_empty(), "{troubles:?}");
    let models = manifest.raw["models"].as_array().unwrap();
    assert!(models.iter().any(|model| model["id"].as_str() == manifest.model.as_deref()));
    for model in models {
        let required = manifest.required_env(model["id"].as_str());
        assert!(!required.is_empty(), "{model}");
        for name in required {
            assert!(talaria_hermes::gateway::FORWARDED.contains(&name.as_str()), "{name} is not passed on");
        }
    }
}

#[test]
fn a_started_gateway_keeps_the_secret_that_it_has_or_gets_the_one_that_callbacks_need() {
    let home = tempfile::tempdir().unwrap();
    let yaml = "platforms: {molecule-a2a: {extra: {shared_secret: of-the-last-start}}}";
    std::fs::write(home.path().join("config.yaml"), yaml).unwrap();
    let gateway = format!("[gateway]\nhome = \"{}\"\n", home.path().display());
    let secrets = |more: &str| {
        let given = Given::file(&format!("{gateway}{more}"));
        let config =
            given.variable("MOLECULE_A2A_PLATFORM_ENABLED", "1").variable("MINE", "my-own-secret").load();
        let of_plugin = config.gateway.unwrap().settings.plugin.unwrap().secret.unwrap();
        let of_callbacks = config.callback.unwrap().secret.unwrap();
        (of_plugin.expose_secret().to_owned(), of_callbacks.expose_secret().to_owned())
    };
    let both = |secret: &str| (secret.to_owned(), secret.to_owned());
    assert_eq!(secrets(""), both("of-the-last-start"));
    assert_eq!(secrets("[callback]\nsecret = { env = \"MINE\" }"), both("my-own-secret"));
}
