use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::*;

fn own(path: &Path) -> Home {
    Home::new(path, None)
}

fn settings() -> Settings {
    Settings {
        port: 8642,
        key: "a-key-of-twenty-chars".into(),
        variables: vec![("OPENAI_API_KEY".into(), "sk-1".into()), ("BAD_TOKEN".into(), "two\nlines".into())],
        model: Some("hermes-4".into()),
        provider: None,
        plugin: Some(Plugin {
            host: "127.0.0.1".into(),
            port: 8645,
            callback_url: "http://127.0.0.1:8646/a2a/reply".into(),
            secret: Some("shh".into()),
        }),
        tools: None,
    }
}

#[test]
fn the_tools_are_written_for_the_gateway_and_removed_again() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    fs::write(
        path("config.yaml"),
        "mcp_servers:\n  molecule: {command: npx, args: [x]}\n  mine: {url: http://x/mcp}\n",
    )
    .unwrap();
    let token = "a-token-of-this-host";
    let tools =
        ToolServer { name: "molecule".into(), url: "http://127.0.0.1:9100/mcp".into(), token: token.into() };
    let served = Settings { tools: Some(tools), plugin: None, ..settings() };
    assert_eq!(prepare(&own(home.path()), &served), []);
    let config = own(home.path()).config();
    let expected = json!({
        "url": "http://127.0.0.1:9100/mcp",
        "headers": { "Authorization": "Bearer ${TALARIA_TOOLS_TOKEN}" },
        "skip_preflight": true,
        "sampling": { "enabled": false },
        "elicitation": { "enabled": false },
    });
    assert_eq!(config["mcp_servers"]["molecule"], expected);
    assert_eq!(config["mcp_servers"]["mine"]["url"], "http://x/mcp");
    assert_eq!(config["tools"]["tool_search"]["enabled"], "off");
    assert_eq!(own(home.path()).variable(TOOLS_TOKEN).unwrap().expose_secret(), token);
    assert!(!fs::read_to_string(path("config.yaml")).unwrap().contains(token), "the token is in .env only");
    assert_eq!(tools_in(&own(home.path())).as_deref(), Some("http://127.0.0.1:9100/mcp"));
    assert_eq!(prepare(&own(home.path()), &Settings { tools: None, ..served }), []);
    assert_eq!(own(home.path()).config()["mcp_servers"], json!({ "mine": { "url": "http://x/mcp" } }));
    assert_eq!(tools_in(&own(home.path())), None);
}

#[test]
fn what_is_there_stays_and_what_is_needed_comes() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    fs::write(path(".env"), "# mine\nexport API_SERVER_KEY=old\nOTHER=x\nAPI_SERVER_KEY=older\n").unwrap();
    fs::write(path("config.yaml"), "# a comment\nmodel: old-model\nplugins:\n  enabled: [mine, molecule-a2a]\ncompression: {enabled: false}\n").unwrap();
    assert_eq!(prepare(&own(home.path()), &settings()), []);
    let env = fs::read_to_string(path(".env")).unwrap();
    assert_eq!(
        env,
        "# mine\nAPI_SERVER_KEY=a-key-of-twenty-chars\nOTHER=x\nAPI_SERVER_ENABLED=true\nAPI_SERVER_HOST=127.0.0.1\nAPI_SERVER_PORT=8642\nOPENAI_API_KEY=sk-1\n"
    );
    assert_eq!(path(".env").metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(own(home.path()).key().unwrap().expose_secret(), "a-key-of-twenty-chars");
    assert_eq!(own(home.path()).variable("OTHER").unwrap().expose_secret(), "x");
    assert!(own(home.path()).variable("API_SERVER").is_none());
    assert_eq!(own(home.path()).config()["model"]["default"], "hermes-4");
    let config = yaml::mapping(&fs::read_to_string(path("config.yaml")).unwrap()).unwrap();
    assert_eq!(config["plugins"]["enabled"], json!(["mine", "molecule_a2a"]));
    assert_eq!(config["platforms"]["molecule-a2a"]["extra"]["port"], 8645);
    assert_eq!(
        (&config["model"]["default"], &config["compression"]["enabled"]),
        (&json!("hermes-4"), &json!(false))
    );
    assert!(fs::read_to_string(path("config.yaml.before-talaria")).unwrap().starts_with("# a comment"));

    // Once more changes nothing.
    let inode = |name: &str| path(name).metadata().unwrap().ino();
    let before = (inode(".env"), inode("config.yaml"));
    assert_eq!(prepare(&own(home.path()), &settings()), []);
    assert_eq!((inode(".env"), inode("config.yaml")), before);
}

#[test]
fn a_prompt_becomes_the_soul_and_what_was_there_first_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap();
    fs::write(home.path().join("SOUL.md"), "theirs").unwrap();
    for prompt in ["one", "two", "two"] {
        write_soul(&own(home.path()), prompt).unwrap();
        assert_eq!((read("SOUL.md").as_str(), read("SOUL.md.before-talaria").as_str()), (prompt, "theirs"));
    }
}

#[test]
fn a_config_that_cannot_be_read_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    for bad in ["a: [", "plugins: 7", "plugins: {enabled: x}"] {
        fs::write(home.path().join("config.yaml"), bad).unwrap();
        assert_eq!(prepare(&own(home.path()), &settings()).len(), 1, "{bad}");
        assert_eq!(fs::read_to_string(home.path().join("config.yaml")).unwrap(), bad);
    }
}

#[test]
fn the_traps_of_the_plugins_names_are_told() {
    let home = tempfile::tempdir().unwrap();
    let trouble = |yaml: &str| {
        fs::write(home.path().join("config.yaml"), yaml).unwrap();
        plugin_problem(&own(home.path())).map(|(what, _)| what)
    };
    assert!(trouble("").unwrap().contains("does not name"));
    assert!(trouble("plugins: {enabled: [molecule-a2a]}").unwrap().contains("hyphen"));
    assert!(trouble("plugins: {enabled: [molecule_a2a]}").unwrap().contains("no `molecule-a2a`"));
    assert!(
        trouble("plugins: {enabled: [molecule_a2a]}\nplatforms: {molecule_a2a: {}}")
            .unwrap()
            .contains("underscore")
    );
    assert_eq!(
        trouble("plugins: {enabled: [molecule_a2a]}\nplatforms: {molecule-a2a: {enabled: true}}"),
        None
    );
}

#[test]
fn a_custom_endpoint_is_written_as_the_gateway_reads_it() {
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned().into());
    let endpoint = vec![
        variable("HERMES_CUSTOM_BASE_URL", "https://api.openai.com/v1"),
        variable("HERMES_CUSTOM_API_KEY", "sk-2"),
        variable("HERMES_CUSTOM_API_MODE", "chat_completions"),
    ];
    let merged = |settings: Settings| {
        let mut config = json!({ "model": "old", "compression": {} }).as_object().cloned().unwrap();
        merge_config(&mut config, &settings).unwrap();
        Value::Object(config)["model"].clone()
    };
    let bare = || Settings { model: None, plugin: None, variables: endpoint.clone(), ..settings() };
    assert_eq!(
        merged(bare()),
        json!({
            "default": "old", "provider": "custom", "base_url": "https://api.openai.com/v1", "api_key": "sk-2",
            "api_mode": "chat_completions",
        })
    );
    let chosen = Settings { provider: Some("openrouter".into()), model: Some("m".into()), ..bare() };
    assert_eq!(
        (&merged(chosen.clone())["provider"], &merged(chosen)["default"]),
        (&json!("openrouter"), &json!("m"))
    );
    // A key alone is no endpoint.
    let key = Settings { variables: vec![variable("HERMES_CUSTOM_API_KEY", "sk-2")], ..bare() };
    assert_eq!(merged(key), json!("old"));
}
