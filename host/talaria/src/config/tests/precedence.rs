//! Flags before environment before file before defaults.

use std::path::Path;
use std::time::Duration;

use secrecy::ExposeSecret;

use super::{Given, egress};
use talaria_executors::ComponentRef;

use talaria_a2a::ReplyAs;
use talaria_turns::StreamAs;

use crate::config::{ExecutorName, StoreUrl};

fn name(text: &str) -> ExecutorName {
    text.parse().expect("a name")
}

#[test]
fn an_empty_configuration_is_valid() {
    let config = Given::nothing().load();
    assert_eq!(config.file, None);
    assert_eq!(config.a2a.listen.to_string(), "127.0.0.1:8000");
    assert_eq!(config.a2a.public_url(config.a2a.listen), "http://127.0.0.1:8000");
    assert_eq!((config.a2a.reply, config.a2a.stream), (ReplyAs::Auto, StreamAs::Status));
    assert_eq!(config.a2a.max_body.bytes(), 16 << 20);
    assert!(config.a2a.tokens.is_empty());
    assert_eq!(config.a2a.card.current().skills.len(), 1, "a card without skills is not valid");
    assert!(
        matches!(&config.store, StoreUrl::Sqlite(path) if path.ends_with("talaria.db")),
        "{:?}",
        config.store
    );
    assert_eq!(config.executors.default, name("chat-completions"));
    assert_eq!(
        config.executors.fixed.keys().map(ExecutorName::as_str).collect::<Vec<_>>(),
        ["chat-completions", "conformance"]
    );
    assert_eq!((config.executors.engine.slots, config.executors.engine.scripted_slots), (1000, 100));
    assert_eq!((config.limits.turns.get(), config.limits.tasks.get()), (1000, 10_000));
    assert_eq!(config.executors.engine.cache_dir, None);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn the_design_page_loads() {
    let text = r#"
        [a2a]
        listen = "127.0.0.1:8000"
        url = "http://127.0.0.1:8000"
        [a2a.auth]
        tokens = [{ name = "platform", token = { env = "PLATFORM_TOKEN" } }]
        [a2a.card]
        name = "n"
        extensions = [{ uri = "https://example.com/e", required = true }]
        [push]
        allow_private = false
        [callback]
        listen = "127.0.0.1:8646"
        [admin]
        listen = "127.0.0.1:8001"
        [store]
        url = "memory:"
        [executors]
        default = "chat-completions"
        [executor.chat-completions]
        component = "builtin:chat-completions"
        deadline = "600s"
        [executor.chat-completions.settings]
        base_url = "http://127.0.0.1:8642/v1"
        [executor.chat-completions.grant]
        egress = ["POST http://127.0.0.1:8642/v1/chat/completions"]
        secrets = ["API_SERVER_KEY"]
        memory = "64MiB"
    "#;
    let config = Given::file(text).variable("PLATFORM_TOKEN", "t").variable("API_SERVER_KEY", "k").load();
    assert_eq!(config.a2a.tokens[0].name, "platform");
    assert_eq!(config.a2a.tokens[0].token.expose_secret(), "t");
    assert_eq!(config.warnings, ["`[callback]` has no effect: no executor is granted `callbacks`"]);
}

#[test]
fn flags_override_the_file() {
    let config = Given::file("[a2a]\nlisten = \"127.0.0.1:1\"").listen("127.0.0.1:2").load();
    assert_eq!(config.a2a.listen.port(), 2);
}

#[test]
fn the_environment_overrides_the_file() {
    let file = "[executor.chat-completions.settings]\nbase_url = \"http://file:1/v1\"\nmodel = \"m\"";
    let config = Given::file(file).variable("HERMES_API_BASE", "http://environment:2/v1/").load();
    let executor = &config.executors.fixed[&name("chat-completions")];
    assert_eq!(executor.settings["base_url"], "http://environment:2/v1");
    assert_eq!(executor.settings["model"], "m", "the rest of the settings stays");
    let egress = egress(&config, executor);
    assert_eq!(egress[0], "POST http://environment:2/v1/chat/completions", "the grant follows the settings");
}

#[test]
fn the_file_overrides_the_defaults() {
    let file = "
        [a2a]\nreply = \"task\"\nmax_body = \"1MiB\"
        [executor.chat-completions]\ndeadline = \"5s\"\nconcurrency = 7
        [engine]\nslots = 3\ncache_dir = \"cache\"
        [limits]\nturns = 9";
    let given = Given::file(file).variable("XDG_CACHE_HOME", "/unused");
    let config = given.load();
    assert_eq!(config.a2a.reply, ReplyAs::Task);
    assert_eq!(config.a2a.max_body.bytes(), 1 << 20);
    let executor = &config.executors.fixed[&name("chat-completions")];
    assert_eq!(executor.component, ComponentRef::Builtin("chat-completions".into()));
    assert_eq!((executor.deadline, executor.concurrency.get()), (Duration::from_secs(5), 7));
    assert_eq!((config.executors.engine.slots, config.executors.engine.scripted_slots), (3, 100));
    assert_eq!(config.executors.engine.cache_dir, Some(given.folder.path().join("cache")));
    assert_eq!((config.limits.turns.get(), config.limits.tasks.get()), (9, 10_000));
}

#[test]
fn the_workspace_only_changes_the_default() {
    let given = Given::file("[a2a]\nlisten = \"127.0.0.1:9\"").variable("WORKSPACE_ID", "w");
    assert_eq!(given.load().a2a.listen.to_string(), "127.0.0.1:9");
    assert_eq!(given.load().warnings, ["/configs/config.yaml: there is no such file; the defaults are used"]);
}

#[test]
fn a_named_file_replaces_the_default_one() {
    let given =
        Given::file("[limits]\nturns = 1").with("other/t.toml", "[limits]\ntasks = 2").config("other/t.toml");
    let config = given.load();
    assert_eq!((config.limits.turns.get(), config.limits.tasks.get()), (1000, 2));
    assert_eq!(config.file.as_deref(), Some(given.folder.path().join("other/t.toml").as_path()));
}

#[test]
fn the_cache_is_in_the_cache_folder_of_the_system() {
    let cache = |given: Given| given.load().executors.engine.cache_dir;
    let home = || Given::nothing().variable("HOME", "/home/a");
    assert_eq!(cache(home()).as_deref(), Some(Path::new("/home/a/.cache/talaria")));
    assert_eq!(cache(home().variable("XDG_CACHE_HOME", "/c")).as_deref(), Some(Path::new("/c/talaria")));
    assert_eq!(
        cache(home().variable("XDG_CACHE_HOME", "relative")).as_deref(),
        Some(Path::new("/home/a/.cache/talaria"))
    );
}

#[test]
fn the_card_never_names_the_unspecified_address() {
    let config = Given::nothing().load();
    let url = |bound: &str| config.a2a.public_url(bound.parse().expect("an address"));
    assert_eq!(url("0.0.0.0:80"), "http://127.0.0.1:80");
    assert_eq!(url("[::]:80"), "http://[::1]:80");
    assert_eq!(url("10.0.0.1:80"), "http://10.0.0.1:80");
    let config = Given::file("[a2a]\nurl = \"https://a.example/x/\"").load();
    assert_eq!(config.a2a.public_url("0.0.0.0:80".parse().expect("an address")), "https://a.example/x");
}

#[test]
fn the_environment_or_the_file_turns_pulling_off() {
    let offline = |file: &str, variable: &str| {
        Given::file(file).variable("TALARIA_OCI_OFFLINE", variable).load().executors.oci.offline
    };
    assert!(!offline("", ""));
    assert!(offline("[oci]\noffline = true", ""));
    assert!(offline("", "1"));
    assert!(!offline("[oci]\noffline = true", "no"));
    let config =
        Given::file("[oci.registry.\"ghcr.io\"]\ntoken = { env = \"T\" }\n[engine]\ncache_dir = \"c\"")
            .variable("T", "a-token")
            .load();
    let known = config.executors.oci.registries["ghcr.io"].credentials.as_ref().expect("credentials");
    assert_eq!(known.username, "talaria");
    assert!(!format!("{config:?}").contains("a-token"), "secrets do not print");
    assert!(config.executors.oci.cache.is_some_and(|cache| cache.ends_with("c/oci")));
}
