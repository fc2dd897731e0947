//! `talaria workspace prompt` and `talaria check` in a workspace.

use serde_json::{Value, json};

use crate::bridge::{run, stderr, stdout, talaria};
use crate::workspace::Folders;

#[test]
fn the_prompt_is_printed_with_the_source_of_every_part() {
    let folders = Folders::new("name: R\nmodel: m\nprompt_files: [a.md, missing.md]\n");
    folders.write("a.md", "text of a");
    folders.write("plugins/style/rules/r.md", "rule of r");
    let prompt = |extra: &[&str]| {
        let mut command = talaria(&folders.bridge());
        command
            .args(["workspace", "prompt"])
            .args(extra)
            .env("WORKSPACE_ID", "ws-1")
            .env("WORKSPACE_CONFIG_PATH", folders.configs());
        run(&mut command)
    };
    let text = stdout(&prompt(&[]));
    for part in [
        "configs/a.md (9 bytes)\ntext of a",
        "plugins/style/rules/r.md",
        "left out: ",
        "missing.md: there is no such file",
        "workspace ws-1, model m",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let report: Value = serde_json::from_str(&stdout(&prompt(&["--output", "json"]))).unwrap();
    assert_eq!(
        (&report["workspace"], &report["model"], &report["tools"]),
        (&json!("ws-1"), &json!("m"), &json!([]))
    );
    assert_eq!(report["parts"][0]["text"], "text of a");
    let none = run(talaria(&folders.bridge()).args(["workspace", "prompt"]));
    assert_eq!(none.status.code(), Some(1));
    assert!(stderr(&none).contains("set WORKSPACE_ID"), "{}", stderr(&none));
}

#[test]
fn exits_with_64_if_the_workspace_is_invalid() {
    let folders = Folders::new("a: [");
    let check = |variables: &[(&str, &str)]| {
        let mut command = talaria(&folders.bridge());
        command.args(["check"]).env("WORKSPACE_CONFIG_PATH", folders.configs());
        run(command.envs(variables.iter().copied()))
    };
    for (variables, said) in [
        (vec![("WORKSPACE_ID", "ws-1")], "config.yaml: not YAML"),
        (vec![("WORKSPACE_ID", "../ws")], "WORKSPACE_ID"),
        (vec![("WORKSPACE_ID", "a b")], "is no id"),
        (
            vec![("WORKSPACE_ID", "w"), ("WORKSPACE_CONFIG_PATH", "/nowhere"), ("PLATFORM_URL", "nonsense")],
            "PLATFORM_URL",
        ),
    ] {
        let output = check(&variables);
        assert_eq!(output.status.code(), Some(64), "{variables:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{said}: {}", stderr(&output));
    }
}
